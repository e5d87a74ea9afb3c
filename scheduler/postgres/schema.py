"""The Postgres schema of the sidecar's tables, and the names that sidecars of one database must not share."""

from functools import cache
from hashlib import sha256

from psycopg2.extensions import cursor as Cursor  # noqa: N812 - a type

from scheduler.domain.database_url import DEFAULT_SCHEMA
from scheduler.postgres.migration_files import files
from scheduler.resources import query

LEGACY = "public"  # of release 0.2
_CHANNEL = "scheduler_wakeup"


def find(cursor: Cursor, wanted: str) -> str:
    """Return the schema to use: `wanted`, unless only `public` has the tables, as in a database of release 0.2."""
    cursor.execute(query("sessions/find_tables"), {"schemas": [wanted, LEGACY]})
    schemas = {name for name, in cursor.fetchall()}
    if wanted in schemas or LEGACY not in schemas:
        return wanted
    cursor.execute(query("sessions/first_migration", schema=LEGACY))
    return LEGACY if cursor.fetchall() == [_first_migration()] else wanted


@cache
def _first_migration() -> tuple[str, str]:
    first = files()[0]
    return first.name, first.checksum


def session(schema: str) -> dict[str, str]:
    """Return the settings of a session. Temporary tables come last, so that none hides a table of the sidecar."""
    return {"search_path": f'"{schema}", pg_temp', "scheduler.wakeup_channel": channel(schema)}


def channel(schema: str) -> str:
    """Return the channel that wakes producers. Two schemas share the old name: a needless wake-up does no harm."""
    if schema in (LEGACY, DEFAULT_SCHEMA):
        return _CHANNEL
    return f"{_CHANNEL}_{sha256(schema.encode()).hexdigest()[:16]}"


def lock_key(schema: str, key: int) -> int:
    """Return the key of an advisory lock for a schema; in `public` it is that of release 0.2."""
    if schema == LEGACY:
        return key
    return int.from_bytes(sha256(f"{key} {schema}".encode()).digest()[:8], signed=True)
