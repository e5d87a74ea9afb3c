"""How long anyone waits for `jobs` while the migrations of this release are applied to a large table in use.

The goal is about locks: a statement may also be slow because the machine, or its disk, is busy making an index.
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
MOST_MS = 200
PROBES = {
    "insert": "INSERT INTO jobs (id, job_type, next_run_at) VALUES (gen_random_uuid(), 'probe', now() + interval '1 day')",
    "claim": "SELECT id FROM jobs WHERE status = 'pending' AND wake_at <= now() ORDER BY wake_at LIMIT 1 "
             "FOR UPDATE SKIP LOCKED",
    "read": "SELECT count(*) FROM (SELECT FROM jobs WHERE status = 'pending' LIMIT 10) AS few",
}
# How long anyone but the migration itself has waited for a lock on the table by now.
WAITING = (
    "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - waitstart)), 0)::float8 * 1000 FROM pg_locks "
    "JOIN pg_stat_activity USING (pid) WHERE NOT granted AND relation = 'jobs'::regclass "
    "AND application_name <> 'scheduler migrate'"
)


@dataclass
class Prober:
    """Sessions that use the table all the time, and one whose transactions last a second."""

    url: str
    longest: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._probe, args=each) for each in PROBES.items()]
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
        """Return the longest wait for a lock, and the longest statement, in milliseconds since the last look."""
        found, self.longest = self.longest, {}
        return found.pop("lock", 0.0), max(found.values(), default=0.0)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def fill(url: str, count: int) -> None:
    """Bring the database to the previous release's schema, with so many pending jobs."""
    migrate(url, [each for each in files() if each.version <= PREVIOUS_RELEASE])
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
    """Apply one migration; return the longest wait for a lock, the longest statement (ms), and the seconds it took."""
    prober.take()
    started = time.perf_counter()
    migrate(url, [each for each in files() if each.version <= migration.version])
    return *prober.take(), time.perf_counter() - started


def run(stack: Stack, count: int = 10_000_000) -> list[report.Row]:
    """Measure each migration since the previous release."""
    url = stack.create_database()
    rows, found = [], {}
    try:
        started = time.perf_counter()
        fill(url, count)
        print(f"    {count:,} rows in {time.perf_counter() - started:.0f} s", flush=True)
        prober = Prober(url)
        try:
            time.sleep(5)
            found["none"] = _, idle = prober.take()
            for each in (each for each in files() if each.version > PREVIOUS_RELEASE):
                waited, slowest, seconds = apply(url, prober, each)
                found[each.name] = [waited, slowest, seconds]
                print(f"    {each.name:<40} {waited:8.1f} ms {slowest:8.1f} ms {seconds:8.1f} s", flush=True)
                beside = f"slowest statement {slowest:.0f} ms, without a migration {idle:.0f} ms; took {seconds:.1f} s"
                rows.append(report.limit(f"longest wait for a lock on jobs ({count:,} rows) while {each.name} is applied",
                                         waited, MOST_MS, "ms", beside))
        finally:
            prober.stop()
    finally:
        stack.drop_database(url)
    report.write("migrations", rows, found)
    return rows
