"""Find rows that another session has locked, without waiting."""

from collections.abc import Collection

from psycopg2 import errors

from scheduler.domain.errors import Unavailable
from scheduler.postgres.claims import array
from scheduler.postgres.connection import Cursor
from scheduler.resources import query

# Producers lock rows while they publish, for 50 to 500 ms; consumers wait that long.
LOCK_TIMEOUT = "1s"
_BRIEF_WAIT = "100ms"


def wait_briefly(cursor: Cursor) -> None:
    """Shorten the lock timeout until the transaction ends."""
    cursor.execute(query("locks/wait_briefly"), {"wait": _BRIEF_WAIT})


def find_locked(cursor: Cursor, table: str, ids: Collection[str], *, key: str = "id", row: str = "id") -> set[str]:
    """Return the values of `key` with rows that another session has locked; lock the other rows.

    `row` is the primary key. Raises Unavailable if the whole table is locked.
    """
    if not ids:
        return set()
    try:
        cursor.execute(query("locks/find_locked", table=table, key=key, id=row), {"ids": array(ids)})
    except errors.LockNotAvailable as error:
        raise Unavailable(f"Postgres: another session has locked the table {table}") from error
    return {locked for locked, in cursor.fetchall()}
