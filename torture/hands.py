"""Handlers for the client library under test; they record executions in a journal.

Imported by `scheduler worker --handlers hands`, or run as a program with its own `Runner`. Not part of the
harness: it runs in a process of the system under test.
"""

import asyncio
import json
import os
import time
from typing import Any

from scheduler.client import Runner, on_due


def note(event: Any, what: str) -> None:
    line = json.dumps({"event_id": str(event.event_id), "job": str(event.job_id), "attempt": event.run.attempt if event.run else 0,
                       "what": what, "t": time.time(), "pid": os.getpid(), "tracked": event.run is not None})
    with open(os.environ["TORTURE_JOURNAL"], "a", encoding="utf-8") as journal:  # noqa: PTH123 - as short as a host would
        journal.write(line + "\n")


@on_due("handle.sync")
def handle(event: Any) -> dict[str, int]:
    note(event, "begin")
    time.sleep(event.payload["seconds"])
    note(event, "end")
    return {"n": event.payload["n"]}


@on_due("handle.coroutine")
async def handle_coroutine(event: Any) -> dict[str, int]:
    note(event, "begin")
    await asyncio.sleep(event.payload["seconds"])
    note(event, "end")
    return {"n": event.payload["n"]}


if __name__ == "__main__":
    Runner(os.environ["AMQP_URL"], workers=4, unknown="drop").run_until_signal()
