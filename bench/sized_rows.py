"""Jobs, open runs, history and delayed messages at a given size, like a shop with a month's retention."""

import json
import random
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from bench import console, delayed, runs
from bench.servers import PAYLOAD, insert, without_indexes
from bench.sizes import (
    ARCHIVE,
    CANCEL,
    CLAIM,
    DUE,
    FIND,
    PAGE,
    PRUNE,
    PRUNES,
    SCATTERED,
    STORE,
    STORED,
    STORES,
    VACUUM,
    Sized,
    repeated,
    timed,
)
from bench.yardsticks import BODY
from scheduler.commands.apply_batch import apply_commands
from scheduler.commands.apply_delayed import store_delayed
from scheduler.commands.apply_results import record_results
from scheduler.domain.delayed.delay import Delay
from scheduler.domain.delayed.message import ReceivedMessage
from scheduler.domain.message_parser import parse_command
from scheduler.domain.messages import ResultStatus
from scheduler.domain.runs.result import Result
from scheduler.domain.runs.transitions import deliver_run
from scheduler.postgres.claims import LONG_AGO, Claim, ClaimSession
from scheduler.postgres.connection import connect, transaction
from scheduler.postgres.delayed import due as delayed_due
from scheduler.postgres.delayed import store as delayed_store
from scheduler.postgres.delayed.operator_queries import DelayedFilter, list_delayed
from scheduler.postgres.jobs import due as jobs_due
from scheduler.postgres.jobs.lists import JobFilter, list_jobs
from scheduler.postgres.maintenance_queries import MaintenanceSession
from scheduler.postgres.priority_classes import FROM_THE_BOTTOM
from scheduler.postgres.runs import due as runs_due
from scheduler.postgres.runs.lists import RunFilter, find_run, list_runs

DAYS = console.HISTORY_DAYS
NOW_DUE = "now() - interval '1 second'"


def spread(count: int, days: float, sign: str = "-") -> str:
    """Return the instant of row n, spread evenly over past or future days."""
    return f"now() {sign} ({count} - n + 1) * interval '{days * 86400 / count:.9f} seconds'"


class Jobs(Sized):
    """Jobs: one in ten recurs, five are pending one-shots and four are done."""

    kind, table = "jobs", "jobs"

    def load(self) -> None:
        created, ahead = spread(self.count, DAYS - 1), spread(self.count, DAYS, "+")
        self.old = old = self.rounds * PRUNES * STORED
        done = f"(n <= {old} OR n % 10 > 5)"
        # Some due rows are spread over the table in random order.
        due = f"random() < {1.2 * self.rounds * DUE / ((self.count - old) * 0.5)} AND n % 10 > 0"
        with without_indexes(self.bed, "jobs"):
            insert(self.bed, "jobs", {
                "id": "gen_random_uuid()", "job_type": "'bench.job'", "payload": f"'{json.dumps(PAYLOAD)}'::json",
                "status": f"(CASE WHEN {done} THEN 'done' ELSE 'pending' END)::job_status",
                "next_run_at": f"CASE WHEN {done} THEN NULL WHEN {due} THEN now() - random() * interval '1 hour' ELSE {ahead} END", "starts_at": ahead, "created_at": created,
                "every": f"CASE WHEN NOT {done} AND n % 10 = 0 THEN interval '1 day' END",
                "finished_at": f"CASE WHEN n <= {old} THEN now() - interval '40 days' WHEN {done} THEN {created} END",
                "tenant": "CASE WHEN n % 10 = 1 THEN 'acme' ELSE 'default' END",
            }, self.count)

    def last_page(self) -> tuple[datetime, Any]:
        # The oldest are pruned.
        last = "SELECT created_at, id::text FROM jobs ORDER BY created_at, id OFFSET %s LIMIT 1"
        return self.bed.sql(last, (self.old + PAGE,))[0]

    def turn(self) -> dict[str, float]:
        costs = self.claimed(SCATTERED, jobs_due.claim, self._settle, FROM_THE_BOTTOM)
        # These rows were stored together and are due before the rest.
        self.bed.fill(DUE, "now() - interval '2 hours' + n * interval '1 millisecond'", created_at="clock_timestamp()")
        costs |= {
            **self.claimed(CLAIM, jobs_due.claim, self._settle, FROM_THE_BOTTOM),
            **self.stored(apply_commands, [[self._request() for _ in range(STORED)] for _ in range(STORES)]),
            **self.listed(lambda connection, after: list_jobs(connection, JobFilter(), PAGE, after)),
            PRUNE: self._pruned(),
        }
        return costs | {VACUUM: self.vacuum("jobs", 2 * DUE + PRUNES * STORED)}

    @staticmethod
    def _settle(session: ClaimSession, claim: Claim[Any]) -> None:
        at, ids = claim.claimed_at, [job.id for job in claim.things]
        jobs_due.settle(session, jobs_due.JobSettlement(at, at, done=ids))

    @staticmethod
    def _request() -> Any:
        at = datetime.now(UTC) + timedelta(days=1 + random.random() * (DAYS - 1))
        body = {"id": str(uuid4()), "job_type": "bench.job", "payload": PAYLOAD, "run_at": at.isoformat()}
        return parse_command("request", json.dumps(body).encode(), max_payload_bytes=1 << 20)

    def _pruned(self) -> float:
        with closing(MaintenanceSession(self.bed.database_url, "bench")) as session:
            deleted = 0

            def prune() -> None:
                nonlocal deleted
                deleted += session.prune(DAYS, STORED)

            seconds = sum(timed(prune) for _ in range(PRUNES))
            assert deleted == PRUNES * STORED, deleted
            return seconds / deleted * 1e6


class OpenRuns(Sized):
    """Emitted attempts of one week."""

    kind, table = "open runs", "runs"

    def load(self) -> None:
        ahead = spread(self.count, 7, "+")
        with without_indexes(self.bed, "runs"):
            insert(self.bed, "runs", runs.RUN | {"due_at": spread(self.count, 7), "deadline": ahead, "wake_at": ahead},
                   self.count)

    def last_page(self) -> tuple[datetime, Any]:
        return self.bed.sql(f"SELECT due_at, event_id::text FROM runs ORDER BY due_at, event_id OFFSET {PAGE} LIMIT 1")[0]

    def turn(self) -> dict[str, float]:
        waiting = {"status": "'waiting'", "retry_at": NOW_DUE, "wake_at": NOW_DUE, "deadline": "NULL::timestamptz"}
        ids = sample(self, "runs", "event_id", "attempt = 1", STORES * STORED)
        results = [Result(event_id, 1, ResultStatus.SUCCEEDED, worker="w") for event_id in ids]
        insert(self.bed, "runs", runs.RUN | waiting, DUE)
        costs = {
            **self.claimed(CLAIM, runs_due.claim, self._settle, FROM_THE_BOTTOM),
            **self.stored(record_results, [results[n : n + STORED] for n in range(0, len(results), STORED)]),
            **self.claimed(ARCHIVE, runs_due.claim, archive, FROM_THE_BOTTOM),
            **self.listed(lambda connection, after: list_runs(connection, RunFilter(), PAGE, after)),
        }
        return costs | {VACUUM: self.vacuum("runs", DUE + 2 * STORES * STORED)}

    @staticmethod
    def _settle(session: ClaimSession, claim: Claim[Any]) -> None:
        changed = [deliver_run(run, run.event_id, run.occurrence, claim.claimed_at) for run in claim.things]
        runs_due.settle(session, runs_due.RunSettlement(changed=changed))


def archive(session: ClaimSession, claim: Claim[Any]) -> None:
    """Move ended runs to the history, like a producer after announcing them."""
    runs_due.settle(session, runs_due.RunSettlement(ended=[run.event_id for run in claim.things]))


def sample(sized: Sized, table: str, name: str, condition: str, count: int) -> list[str]:
    """Return the ids of random rows."""
    ids = [str(value) for value, in sized.bed.sql(
        f"SELECT DISTINCT {name} FROM (SELECT gen_random_uuid() AS at FROM generate_series(1, {count * 3 // 2}) OFFSET 0) AS dice, "
        f"LATERAL (SELECT {name} FROM {table} WHERE {name} >= at AND {condition} ORDER BY {name} LIMIT 1) AS row")]
    assert len(ids) >= count
    return random.sample(ids, count)


class History(Sized):
    """Ended runs of one month, with one partition per day."""

    kind, table = "history", "run_history"

    def load(self) -> None:
        self.kept = DAYS - 1
        console.make_days(self.bed)
        with without_indexes(self.bed, "run_history"):
            console.fill_runs(self.bed, [str(uuid4()) for _ in range(console.RUNNING)], self.count)

    def last_page(self) -> tuple[datetime, Any]:
        # The first day is incomplete, so it is dropped in advance.
        with closing(MaintenanceSession(self.bed.database_url, "bench")) as session:
            session.keep_partitions(self.kept)
        last = "SELECT due_at, event_id::text FROM run_history ORDER BY due_at, event_id OFFSET %s LIMIT 1"
        return self.bed.sql(last, (self.rounds * self.count // DAYS + PAGE,))[0]

    def turn(self) -> dict[str, float]:
        ended = runs.RUN | {"status": "'succeeded'", "finished_at": NOW_DUE, "wake_at": NOW_DUE, "worker": "'w'",
                            "attempts": f"'{runs.ATTEMPTS}'"}
        insert(self.bed, "runs", ended, DUE)
        self.bed.sql("ANALYZE runs")
        [(some,)] = self.bed.sql("SELECT event_id::text FROM run_history WHERE due_at < now() - interval '10 days' "
                                 "ORDER BY due_at DESC LIMIT 1")
        costs = {
            **self.claimed(STORE, runs_due.claim, archive, FROM_THE_BOTTOM),
            **self.listed(lambda connection, after: list_runs(connection, RunFilter(), PAGE, after)),
            PRUNE: self._pruned(),
        }
        with closing(self.reader()) as connection:
            costs[FIND] = repeated(lambda: find_run(connection, some)) * 1e3
        self.bed.sql("VACUUM runs")
        return costs | {VACUUM: self.vacuum(f"run_history_{datetime.now(UTC):%Y%m%d}", DUE)}

    def _pruned(self) -> float:
        """Drop one more day."""
        self.kept -= 1
        with closing(MaintenanceSession(self.bed.database_url, "bench")) as session:
            return timed(lambda: session.keep_partitions(self.kept)) / (self.count / DAYS) * 1e6


class Delayed(Sized):
    """Messages due in the next month, each with a UUID."""

    kind, table = "delayed messages", "delayed_messages"

    def load(self) -> None:
        with without_indexes(self.bed, "delayed_messages"):
            insert(self.bed, "delayed_messages", self._row(f"{spread(self.count, DAYS, '+')} + interval '1 day'"), self.count)

    @staticmethod
    def _row(when: str) -> dict[str, str]:
        return delayed.row(when) | {"message_id": "gen_random_uuid()"}

    def last_page(self) -> tuple[datetime, Any]:
        return self.bed.sql(f"SELECT wake_at, id FROM delayed_messages ORDER BY wake_at DESC, id DESC OFFSET {PAGE} LIMIT 1")[0]

    def turn(self) -> dict[str, float]:
        insert(self.bed, "delayed_messages", self._row(NOW_DUE), DUE)
        costs = {
            **self.claimed(CLAIM, delayed_due.claim, self._settle, (LONG_AGO,)),
            **self.stored(store_delayed, [[self._arrived() for _ in range(STORED)] for _ in range(STORES)]),
            **self.listed(lambda connection, after: list_delayed(connection, DelayedFilter(), PAGE, after)),
            CANCEL: self._cancelled(),
        }
        return costs | {VACUUM: self.vacuum("delayed_messages", DUE + PRUNES * STORED)}

    @staticmethod
    def _settle(session: ClaimSession, claim: Claim[Any]) -> None:
        delayed_due.settle(session, delayed_due.DelayedSettlement(done=[message.id for message in claim.things]))

    @staticmethod
    def _arrived() -> ReceivedMessage:
        delay = Delay(int((1 + random.random() * (DAYS - 1)) * delayed.DAY_MS))
        properties = b"".join(delayed.PROPERTIES.encode())
        return ReceivedMessage("schedule.delayed", delayed.KEY.encode(), delay, str(uuid4()), properties, BODY)

    def _cancelled(self) -> float:
        ids = sample(self, "delayed_messages", "message_id", "message_id IS NOT NULL", PRUNES * STORED)
        with closing(connect(self.bed.database_url, "bench")) as connection:
            def cancel(some: list[str]) -> None:
                with transaction(connection) as cursor:
                    assert len(delayed_store.cancel(cursor, some, ())) == len(some)

            return sum(timed(lambda some=ids[n::PRUNES]: cancel(some)) for n in range(PRUNES)) / len(ids) * 1e6


KINDS: tuple[type[Sized], ...] = (Jobs, OpenRuns, History, Delayed)
