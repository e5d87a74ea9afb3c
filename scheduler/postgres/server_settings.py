"""Check the settings of the Postgres server against those in docs/operating.md."""

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.postgres.connection import Connection, translated
from scheduler.resources import query

_MB, _GB = 1024**2, 1024**3
_MINUTE = 60

_MUST_BE_ON = {
    "fsync": "a power failure can destroy the database",
    "full_page_writes": "a power failure can destroy pages that were being written",
    "synchronous_commit": "a crash loses commands that were acknowledged, and emits events again",
    "autovacuum": "tables and indexes grow without limit, and claims become slower",
}
_COMPRESSION_COST = (
    "settling a job at a random position writes 22.5 kB of WAL without compression and 13.2 kB with lz4, at 49 "
    "and 55 µs of processor time; with pglz (on) it takes 235 µs"
)
_CHECKPOINTS = "checkpoints are more frequent, and the first change of a page after each writes 8 kB of WAL"
_SIZE_COSTS = {
    "shared_buffers": "pages of jobs and their indexes are read from the operating system or the disk",
    "max_wal_size": _CHECKPOINTS,
    "checkpoint_timeout": _CHECKPOINTS,
    "maintenance_work_mem": "vacuum reads all indexes several times, and migrations build indexes more slowly",
}


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Minimum settings for a number of jobs."""

    jobs: int
    shared_buffers: int
    max_wal_size: int
    checkpoint_timeout: int
    maintenance_work_mem: int


RECOMMENDATIONS = (
    Recommendation(1_000_000, 512 * _MB, 4 * _GB, 15 * _MINUTE, 128 * _MB),
    Recommendation(10_000_000, 2 * _GB, 16 * _GB, 30 * _MINUTE, 512 * _MB),
    Recommendation(100_000_000, 16 * _GB, 64 * _GB, 30 * _MINUTE, 1 * _GB),
)


@dataclass(frozen=True, slots=True)
class ServerSetting:
    """A setting: as shown, its bytes or seconds, and whether it can be lz4."""

    shown: str
    amount: int | None = None
    knows_lz4: bool = False


@dataclass(frozen=True, slots=True)
class Advice:
    """A setting that should be changed, and what its value costs."""

    name: str
    value: str
    recommended: str
    cost: str


def recommendation(jobs: int) -> Recommendation:
    """Return the settings for a number of jobs."""
    return next((advised for advised in RECOMMENDATIONS if jobs <= advised.jobs), RECOMMENDATIONS[-1])


def read_settings(connection: Connection) -> tuple[int, dict[str, ServerSetting]]:
    """Return the estimated number of jobs, and the settings that matter."""
    names = [*_MUST_BE_ON, "wal_compression", *_SIZE_COSTS]
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("stats/jobs_estimate"))
        [(jobs,)] = cursor.fetchall()
        cursor.execute(query("stats/server_settings"), {"names": names})
        return jobs, {name: ServerSetting(*values) for name, *values in cursor.fetchall()}


def advice(jobs: int, settings: Mapping[str, ServerSetting]) -> list[Advice]:
    """Return the settings that should be changed, dangerous ones first."""
    advice = [
        Advice(name, settings[name].shown, "on", cost)
        for name, cost in _MUST_BE_ON.items() if settings[name].shown == "off"
    ]
    compression = settings["wal_compression"]
    if compression.knows_lz4 and compression.shown != "lz4":
        advice.append(Advice("wal_compression", compression.shown, "lz4", _COMPRESSION_COST))
    least = recommendation(jobs)
    for name, cost in _SIZE_COSTS.items():
        amount, wanted = settings[name].amount, getattr(least, name)
        if amount is not None and amount < wanted:
            advice.append(Advice(name, settings[name].shown, as_setting(name, wanted), cost))
    return advice


def as_setting(name: str, amount: int) -> str:
    """Format a size or a time as in postgresql.conf."""
    if name == "checkpoint_timeout":
        return f"{amount // _MINUTE}min"
    return f"{amount // _GB}GB" if amount % _GB == 0 else f"{amount // _MB}MB"
