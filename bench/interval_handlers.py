"""The handler of bench/intervals.py: each call appends one line to a file of its process."""

import os
import time
from pathlib import Path

from scheduler.client import TrackedDue, on_due
from scheduler.domain.instants import rfc3339

JOB_TYPE = "bench.interval"


@on_due(JOB_TYPE, tracked=True)
def record_call(due: TrackedDue) -> None:
    """Record the occurrence, the attempt and the time of the call."""
    with (Path(os.environ["BENCH_CALLS"]) / f"{os.getpid()}.calls").open("a", encoding="utf-8") as file:
        file.write(f"{due.job_id} {rfc3339(due.due_at)} {due.run.attempt} {time.time():.3f}\n")
