"""Measure the lock waits on `jobs` while this release's migrations are applied to a large table in use.

The goal covers locks only: a statement may also be slow because the machine or its disk is building an index.
"""

import threading
import time
from dataclasses import dataclass, field

import psycopg2

from bench import report
from scheduler.dev.servers import Stack
from scheduler.postgres.migrate import migrate
from scheduler.postgres.migration_files import Migration, files

PREVIOUS_RELEASE = 5  # the last migration of bda1c27's successor, ecf5ad7
MAX_MS = 200
PROBES = {
    "insert": "INSERT INTO jobs (id, job_type, next_run_at) VALUES (gen_random_uuid(), 'probe', now() + interval '1 day')",
    "claim": "SELECT id FROM jobs WHERE status = 'pending' AND wake_at <= now() ORDER BY wake_at LIMIT 1 "
             "FOR UPDATE SKIP LOCKED",
    "read": "SELECT count(*) FROM (SELECT FROM jobs WHERE status = 'pending' LIMIT 10) AS few",
}
# Current lock waits on the table, without the migration itself.
WAITING = (
    "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - waitstart)), 0)::float8 * 1000 FROM pg_locks "
    "JOIN pg_stat_activity USING (pid) WHERE NOT granted AND relation = 'jobs'::regclass "
    "AND application_name <> 'scheduler migrate'"
)


@dataclass
class Prober:
    """Sessions that use the table constantly, and one whose transactions last a second."""

    url: str
    longest: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._probe, args=probe) for probe in PROBES.items()]
        self._threads += [threading.Thread(target=self._linger), threading.Thread(target=self._watch)]
        for thread in self._threads:
            thread.start()

    def _probe(self, name: str, statement: str) -> None:
        connection = psycopg2.connect(self.url)
        with connection.cursor() as cursor:
            while not self._stop.wait(0.002):
                started = time.perf_counter()
                cursor.execute(statement)
                connection.commit()
                self.longest[name] = max(self.longest.get(name, 0.0), (time.perf_counter() - started) * 1000)
        connection.close()

    def _linger(self) -> None:
        connection = psycopg2.connect(self.url)
        with connection.cursor() as cursor:
            while not self._stop.wait(0.5):
                cursor.execute(PROBES["insert"])
                self._stop.wait(1.0)
                connection.rollback()
        connection.close()

    def _watch(self) -> None:
        connection = psycopg2.connect(self.url)
        connection.autocommit = True
        with connection.cursor() as cursor:
            while not self._stop.wait(0.002):
                cursor.execute(WAITING)
                [(waited,)] = cursor.fetchall()
                self.longest["lock"] = max(self.longest.get("lock", 0.0), waited)
        connection.close()

    def take(self) -> tuple[float, float]:
        """Return the longest lock wait and the longest statement since the last call, in milliseconds."""
        longest, self.longest = self.longest, {}
        return longest.pop("lock", 0.0), max(longest.values(), default=0.0)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def fill(url: str, count: int) -> None:
    """Create the previous release's schema with `count` pending jobs."""
    migrate(url, [migration for migration in files() if migration.version <= PREVIOUS_RELEASE])
    connection = psycopg2.connect(url)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("SET maintenance_work_mem = '512MB'; SELECT indexname, indexdef FROM pg_indexes "
                       "WHERE tablename = 'jobs' AND indexname <> 'jobs_pkey'")
        indexes = cursor.fetchall()
        cursor.execute("ALTER TABLE jobs DROP CONSTRAINT jobs_pkey")
        for name, _ in indexes:
            cursor.execute(f"DROP INDEX {name}")
        cursor.execute(
            "INSERT INTO jobs (id, job_type, payload, next_run_at, starts_at) SELECT gen_random_uuid(), 'bench.job', "
            "'{\"invoice\": 42}', at, at FROM generate_series(1, %s) AS n, "
            "LATERAL (SELECT now() + interval '1 day' + n * interval '1 millisecond' AS at) AS moment", (count,))
        cursor.execute("ALTER TABLE jobs ADD PRIMARY KEY (id)")
        for _, definition in indexes:
            cursor.execute(definition)
        cursor.execute("VACUUM ANALYZE jobs")
        cursor.execute("CHECKPOINT")
    connection.close()


def apply(url: str, prober: Prober, migration: Migration) -> tuple[float, float, float]:
    """Apply one migration; return the longest lock wait (ms), the longest statement (ms), and its seconds."""
    prober.take()
    started = time.perf_counter()
    migrate(url, [file for file in files() if file.version <= migration.version])
    return *prober.take(), time.perf_counter() - started


def run(stack: Stack, count: int = 10_000_000) -> list[report.Row]:
    """Measure each migration since the previous release."""
    url = stack.create_database()
    rows, details = [], {}
    try:
        started = time.perf_counter()
        fill(url, count)
        print(f"    {count:,} rows in {time.perf_counter() - started:.0f} s", flush=True)
        prober = Prober(url)
        try:
            time.sleep(5)
            details["none"] = _, idle = prober.take()
            for migration in (migration for migration in files() if migration.version > PREVIOUS_RELEASE):
                waited, slowest, seconds = apply(url, prober, migration)
                details[migration.name] = [waited, slowest, seconds]
                print(f"    {migration.name:<40} {waited:8.1f} ms {slowest:8.1f} ms {seconds:8.1f} s", flush=True)
                context = f"slowest statement {slowest:.0f} ms, without a migration {idle:.0f} ms; took {seconds:.1f} s"
                rows.append(report.limit(f"longest wait for a lock on jobs ({count:,} rows) while {migration.name} is applied",
                                         waited, MAX_MS, "ms", context))
        finally:
            prober.stop()
    finally:
        stack.drop_database(url)
    report.write("migrations", rows, details)
    return rows
