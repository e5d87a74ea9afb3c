"""Backfill: the occurrences of a range again, each as a separate one-shot job at the original time."""

import json
from datetime import datetime, timedelta
from uuid import UUID, uuid5

from scheduler.api.console.formatting import local
from scheduler.domain.instants import rfc3339
from scheduler.domain.jobs.job import Job
from scheduler.views.jobs import request_text

MOST = 200  # occurrences at a time
LONGEST = timedelta(days=366)
_KEPT = ("job_type", "description", "tenant", "priority", "route", "run", "target")
_MAX_NAME = 200


def backfill_id(job: Job, due_at: datetime) -> str:
    """Return the id of the job for one occurrence: the same each time."""
    return str(uuid5(UUID(job.id), f"backfill/{rfc3339(due_at)}"))


def backfill_request(job: Job, due_at: datetime) -> bytes:
    """Return the request of the job for one occurrence."""
    fields = json.loads(request_text(job, masked=False))
    definition = job.requested
    name = f"{local(due_at, definition.spec.timezone)}, backfill of {definition.name or definition.job_type}"
    copied = {name: fields[name] for name in _KEPT if name in fields} | {
        "id": backfill_id(job, due_at), "run_at": rfc3339(due_at), "name": name[:_MAX_NAME],
    }
    # The payload as it was written: JSON in Python would change the digits of its numbers.
    return f'{json.dumps(copied)[:-1]}, "payload": {definition.payload}}}'.encode()
