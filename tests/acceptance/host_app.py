"""A host's handler process, as a host would write it; the test kills it at random."""

import os
import threading

import psycopg

from scheduler.client import Due, Runner, on_due, once

PAUSE = threading.Event()


@on_due("effect")
def take_effect(event: Due) -> None:
    with psycopg.connect(os.environ["HOST_DATABASE_URL"]) as database:
        if once(database, event.event_id):
            database.execute(
                "INSERT INTO effects (job_id, due_at) VALUES (%s, %s)", (event.job_id, event.due_at)
            )
    PAUSE.wait(0.01)  # a wider target: done, and not yet acknowledged


Runner(os.environ["AMQP_URL"], delays=(0.2, 0.5)).run_until_signal()
