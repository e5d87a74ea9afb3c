"""Benchmark tracked jobs: whole life, results, retries, history, and claims with many finished runs."""

import contextlib
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable

import pika
from pika.adapters.select_connection import SelectConnection

from bench import emit, ingest, report
from bench.lag import receive
from bench.servers import PAYLOAD, Bed, finished_in
from scheduler.dev.servers import Stack
from scheduler.domain.runs.transitions import deliver_run
from scheduler.emitting.source import BatchTimes
from scheduler.emitting.sources.jobs import DueJobs
from scheduler.postgres.claims import ClaimSession
from scheduler.postgres.priority_classes import FROM_THE_BOTTOM
from scheduler.postgres.runs import due as runs_due
from scheduler.rabbit.frames import AmqpMessage, DueMessage
from scheduler.rabbit.link import Link
from scheduler.rabbit.publisher import Publisher, Receipt

BATCH = 500
POLICY = '{"start_timeout": 604800}'
# A run as the producer records it; values are SQL expressions of the row number n.
RUN = {
    "event_id": "gen_random_uuid()", "status": "'delivered'", "job_id": "gen_random_uuid()",
    "job_type": "'bench.job'", "due_at": "now()", "origin": "'schedule'", "policy": f"'{POLICY}'",
    "event": f"'{{\"job_type\": \"bench.job\", \"payload\": {json.dumps(PAYLOAD)}}}'", "attempt": "1",
    "counted": "1", "emitted_at": "now()", "deadline": "now() + interval '7 days'",
    "wake_at": "now() + interval '7 days'",
}
ATTEMPTS = '[{"attempt": 1, "outcome": "succeeded", "worker": "w", "finished_at": "2026-12-01T08:00:00+00:00"}]'
FINISHED = {name: value for name, value in RUN.items() if name not in ("wake_at", "deadline")} | {
    "status": "'succeeded'", "finished_at": "now()", "worker": "'w'", "attempts": f"'{ATTEMPTS}'",
    "event": "'{}'",
}


def worker() -> None:
    """Report every event as succeeded until killed, with minimal work, because it shares the two cores."""
    waiting: list[DueMessage] = []
    publisher = Publisher(Link(os.environ["AMQP_URL"], "bench"))

    def report_all() -> None:
        while True:
            some, waiting[:] = waiting[:], []
            publisher.send(some).wait(60)
            time.sleep(0.02)

    def done(_: object, __: object, about: pika.BasicProperties, ___: bytes) -> None:
        body = f'{{"event_id":"{about.message_id}","attempt":1,"status":"succeeded","worker":"w"}}'
        waiting.append(DueMessage(body.encode(), None, 0, exchange="schedule.commands", routing_key="result",
                                  kind="ScheduleResult", mandatory=False))

    def opened(channel: pika.channel.Channel) -> None:
        channel.basic_consume("mainapp_due", done, auto_ack=True)

    connection = SelectConnection(
        pika.URLParameters(os.environ["AMQP_URL"]),
        on_open_callback=lambda connection: connection.channel(on_open_callback=opened),
    )
    threading.Thread(target=report_all, daemon=True).start()
    connection.ioloop.start()


def fill(bed: Bed, count: int, table: str = "runs", **columns: str) -> None:
    """Insert `count` runs."""
    columns = (RUN if table == "runs" else FINISHED) | columns
    bed.sql(f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(columns.values())} "
            f"FROM generate_series(1, {count}) AS n")
    bed.sql(f"VACUUM ANALYZE {table}")
    bed.sql("CHECKPOINT")


def empty(bed: Bed) -> None:
    bed.sql("TRUNCATE jobs, runs, run_history")
    for queue in ("mainapp_due", "scheduler_results"):
        bed.purge(queue)


def untracked(bed: Bed, count: int, **env: str) -> float:
    """Return one-shot events per second of one replica, with an idle consumer."""
    empty(bed)
    emit.one_shots(bed, count)
    with bed.process("scheduler", "consumer"):
        return emit.drain(bed, count, 1, **env)


def lives(bed: Bed, count: int) -> float:
    """Return runs per second from due to history, with one replica, one consumer and a worker that reports at once."""
    empty(bed)
    bed.fill(count, "now() + interval '1 hour'", run=f"'{POLICY}'")
    bed.analyze()
    with contextlib.ExitStack() as stack:
        for role in (("scheduler", "consumer"), ("scheduler", "producer")):
            stack.enter_context(bed.process(*role))
        stack.enter_context(bed.process("bench.runs", wait=False))
        bed.sql("UPDATE jobs SET next_run_at = now() + interval '2 seconds'")
        bed.sql("VACUUM jobs")
        bed.sql("SELECT pg_sleep_until(min(next_run_at)) FROM jobs")
        started = time.monotonic()
        finished_in(bed, "NOT EXISTS (SELECT 1 FROM jobs WHERE status = 'pending')", started)
        finished_in(bed, "NOT EXISTS (SELECT 1 FROM runs)", started)
        return count / finished_in(bed, f"(SELECT count(*) FROM run_history) = {count}", started)


def results(bed: Bed, count: int) -> float:
    """Return results stored per second by one consumer on a full queue, timed from its first."""
    empty(bed)
    fill(bed, count)
    ids = [event_id for event_id, in bed.sql("SELECT event_id FROM runs")]
    link = Link(bed.amqp_url, "bench")
    publisher = Publisher(link)
    properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
    for start in range(0, count, 2000):
        bodies = [json.dumps({"event_id": event_id, "attempt": 1, "status": "succeeded", "worker": "w"}).encode()
                  for event_id in ids[start : start + 2000]]
        publisher.send([AmqpMessage("schedule.commands", "result", body, properties) for body in bodies]).wait(60)
    link.close()
    with bed.process("scheduler", "consumer", wait=False):
        some = "EXISTS (SELECT 1 FROM runs WHERE status = 'succeeded')"
        finished_in(bed, some, time.monotonic())
        started = time.monotonic()
        finished_in(bed, f"(SELECT status = 'succeeded' FROM runs WHERE event_id = '{ids[-1]}')", started)
        return count / finished_in(bed, "NOT EXISTS (SELECT 1 FROM runs WHERE status = 'delivered')", started)


def retry_lag(bed: Bed, rate: int, seconds: int) -> list[float]:
    """Return the milliseconds from a retry's due time to receipt by a host, at a steady rate with two replicas."""
    empty(bed)
    count = rate * seconds
    with bed.process("scheduler", "producer"), bed.process("scheduler", "producer"):
        at = f"now() + interval '8 seconds' + n * interval '{1 / rate} seconds'"
        stamp = f"to_char(({at}) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
        event = f"('{{\"payload\": {json.dumps(PAYLOAD)},\"due_at\":\"' || {stamp} || '\"}}')::json"
        fill(bed, count, status="'waiting'", retry_at=at, wake_at=at, event=event, deadline="NULL")
        return receive(bed, count, seconds + 15)


def run(stack: Stack, rounds: int = 5, count: int = 30_000) -> list[report.Row]:
    """Measure the whole life of runs, results, the history and a retry's lag."""
    with Bed(stack, "default") as bed:
        rates = report.interleaved(rounds, {
            "untracked": lambda: untracked(bed, count),
            "untracked, history of all": lambda: untracked(bed, count, SCHEDULER_HISTORY="all"),
            "tracked, whole life": lambda: lives(bed, count),
            "requests stored": lambda: ingest.ours(bed, count, 1),
            "results stored": lambda: results(bed, count),
        })
        late = retry_lag(bed, 100, 40)  # long enough that a single disk stall is less than a hundredth
    rate = report.medians(rates)
    rows = [
        report.at_least("tracked runs, whole life, 1 producer and 1 consumer", rate["tracked, whole life"],
                        rate["untracked"], "untracked events", 0.35),
        report.at_least("results stored, 1 consumer", rate["results stored"], rate["requests stored"],
                        "requests stored", 0.7),
        report.at_least("one-shot events, SCHEDULER_HISTORY=all", rate["untracked, history of all"],
                        rate["untracked"], "tracked", 0.85),
        report.limit("lag of a retry at 100/s, p99", statistics.quantiles(late, n=100)[98], 20, "ms"),
    ]
    report.write("runs", rows, rates | {"retry lag ms": late})
    return rows


def jobs_cost(bed: Bed, batches: int) -> float:
    """Return the microseconds per job to claim, record and settle overlap-limited tracked jobs."""
    source, session, seconds = DueJobs(), ClaimSession(bed.database_url, "bench"), []
    for _ in range(batches):
        started = time.perf_counter()
        claim = source.claim(session, BATCH, FROM_THE_BOTTOM)
        at = claim.claimed_at
        emissions = [source.decide(job, at) for job in claim.things]
        source.record(session, emissions, at)
        source.settle(session, [(emission, [Receipt.CONFIRMED], None) for emission in emissions], [], BatchTimes(at, at, at))
        seconds.append((time.perf_counter() - started) / len(emissions) * 1e6)
    session.close()
    return statistics.median(seconds)


def runs_cost(bed: Bed, batches: int) -> float:
    """Return the microseconds per run to claim and settle due retries."""
    session, bound, seconds = ClaimSession(bed.database_url, "bench"), FROM_THE_BOTTOM, []
    for _ in range(batches):
        started = time.perf_counter()
        claim = runs_due.claim(session, BATCH, bound)
        changed = [deliver_run(run, run.event_id, run.occurrence, claim.claimed_at) for run in claim.things]
        runs_due.settle(session, runs_due.RunSettlement(changed=changed))
        seconds.append((time.perf_counter() - started) / len(changed) * 1e6)
        bound = claim.resume_from
    session.close()
    return statistics.median(seconds)


def claimed(bed: Bed, batches: int) -> dict[str, float]:
    """Return the cost of each claim without the first batches of a new session."""
    costs = {}
    for name, measure in (("jobs", jobs_cost), ("runs", runs_cost)):
        bed.sql("DELETE FROM runs WHERE status = 'waiting'")
        bed.sql("DELETE FROM jobs")
        if name == "jobs":
            bed.fill((batches + 5) * BATCH, run="'{\"overlap\": \"skip\", \"start_timeout\": 604800}'")
        else:
            due = "now() - interval '1 second'"
            fill(bed, (batches + 5) * BATCH, status="'waiting'", retry_at=due, wake_at=due, deadline="NULL")
        bed.analyze()
        measure(bed, 5)
        costs[name] = measure(bed, batches)
        bed.sql("DELETE FROM runs WHERE job_id IN (SELECT id FROM jobs)")
        bed.sql("DELETE FROM runs WHERE attempt > 1")
        bed.sql("VACUUM runs")
    return costs


def fill_history(bed: Bed, count: int) -> None:
    """Insert finished runs into the history; build the indexes afterwards, which is faster."""
    [(partition,)] = bed.sql("SELECT 'run_history_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')")
    indexes = bed.sql("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'run_history'")
    for name, _ in indexes:
        bed.sql(f"DROP INDEX {name}")
    for _ in range(10):
        columns = ", ".join(FINISHED)
        bed.sql(f"INSERT INTO {partition} ({columns}) SELECT {', '.join(FINISHED.values())} "
                f"FROM generate_series(1, {count // 10}) AS n")
    for _, definition in indexes:
        bed.sql(f"SET maintenance_work_mem = '512MB'; {definition}")
    bed.sql("VACUUM ANALYZE run_history")


def claims(stack: Stack, finished: int = 10_000_000, opened: int = 100_000) -> list[report.Row]:
    """Measure claims with many finished and open runs compared with none; loading ten million takes minutes."""
    with Bed(stack) as none, Bed(stack) as many:
        fill_history(many, finished)
        fill(many, opened)
        return compared(none, many, f"{finished:,} finished and {opened:,} open runs")


def compared(none: Bed, many: Bed, what: str, rounds: int = 3, batches: int = 40) -> list[report.Row]:
    """Claim from both, alternating."""
    measurements: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, bed in (("none", none), ("many", many)):
            for kind, cost in claimed(bed, batches).items():
                measurements.setdefault(f"{kind}, {name}", []).append(cost)
                print(f"    {kind}, {name:<40} {cost:>12,.1f}", flush=True)
    cost = report.medians(measurements)
    rows = [
        report.at_most(f"claim + settle {thing}, {what}", cost[f"{kind}, many"], cost[f"{kind}, none"], "none", 1.1, " µs")
        for kind, thing in (("jobs", "a tracked job"), ("runs", "a due retry"))
    ]
    report.write("runs-claims", rows, measurements)
    return rows


PARTS: dict[str, Callable[[Stack], list[report.Row]]] = {"runs": run, "runs-claims": claims}

if __name__ == "__main__":
    sys.exit(worker())
