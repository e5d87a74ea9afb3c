"""For a host's own tests: a sidecar in the same process, with a clock that the test moves."""

from scheduler.testing.client import InProcessClient
from scheduler.testing.sidecar import Sidecar

__all__ = ["InProcessClient", "Sidecar"]
