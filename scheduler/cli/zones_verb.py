"""`scheduler zones`: the zone data, and what planning jobs again with it would change."""

import json
from argparse import Namespace
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from scheduler.cli.verb_helpers import open_connection, table
from scheduler.domain.instants import rfc3339
from scheduler.domain.jobs.job import Job
from scheduler.domain.recurrence.zone_data import current
from scheduler.postgres.connection import Connection, database_time, translated
from scheduler.postgres.jobs.zones import count_outdated_jobs, read_outdated_jobs
from scheduler.postgres.zone_changes import ZoneChange, find_zone_changes
from scheduler.postgres.zone_files import RecordedZones
from scheduler.settings import Settings

_BATCH = 500
_HEAD = ("JOB", "TYPE", "TENANT", "ZONE", "PLANNED", "WILL BE")


def show(settings: Settings, args: Namespace) -> None:
    """Print the version, its source, the number of waiting jobs, and with --plan each job that will move."""
    with open_connection(settings, "zones") as connection:
        connection.set_session(readonly=True)
        with translated(), connection.cursor() as cursor:
            changes = find_zone_changes(cursor, RecordedZones(), database_time(cursor))
            waiting = count_outdated_jobs(cursor, [(change.zone, change.since) for change in changes])
        items = list(_plan(connection, changes)) if args.plan else []
    data = current()
    if args.json:
        summary = {"version": data.version, "source": data.source, "waiting": waiting}
        print(json.dumps(summary | ({"items": items} if args.plan else {})))
        return
    print(f"version  {data.version}\nsource   {data.source}\nwaiting  {waiting:,}")
    if args.plan:
        rows = [[value or "never" for value in item.values()] for item in items]
        print("\n".join(["", *table(_HEAD, rows)]) if items else "\nNo next run will move.")


def _plan(connection: Connection, changes: Sequence[ZoneChange]) -> Iterator[dict[str, Any]]:
    with translated(), connection.cursor() as cursor:
        now = database_time(cursor)
    for change in changes:
        jobs = read_outdated_jobs(connection, change.zone, change.since)
        while batch := list(islice(jobs, _BATCH)):
            with translated(), connection.cursor() as cursor:
                change.prepare(cursor, batch)
            for job in batch:
                after = change.plan(job, now)
                if after.next_run_at != job.next_run_at:
                    yield _item(job, after, change.zone)


def _item(before: Job, after: Job, zone: str) -> dict[str, Any]:
    return {
        "job_id": before.id, "job_type": before.requested.job_type, "tenant": before.tenant, "timezone": zone,
        "old_next_run_at": None if before.next_run_at is None else rfc3339(before.next_run_at),
        "next_run_at": None if after.next_run_at is None else rfc3339(after.next_run_at),
    }
