"""The id of this process in `replicas`: new after each start."""

from uuid import uuid4

REPLICA_ID = uuid4()
