"""Find rows that another session has locked, without waiting."""

from collections.abc import Collection
from typing import NamedTuple

from psycopg2 import errors

from scheduler.domain.errors import Unavailable
from scheduler.postgres.claims import array
from scheduler.postgres.connection import Cursor
from scheduler.resources import query

# Producers lock rows while they publish, for 50 to 500 ms; consumers wait that long.
LOCK_TIMEOUT = "1s"
_BRIEF_WAIT = "100ms"


class RowKeys(NamedTuple):
    """Rows of a table; `row` is its primary key."""

    table: str
    ids: Collection[str]
    key: str = "id"
    row: str = "id"


def find_locked(cursor: Cursor, *tables: RowKeys) -> set[str]:
    """Return the keys of rows that another session has locked; lock the other rows.

    Shortens the lock timeout until the transaction ends. All is one round trip: to a distant database a batch with
    locked rows would otherwise take half as long again. Raises Unavailable if a whole table is locked.
    """
    tables = tuple(rows for rows in tables if rows.ids)
    parts = [
        query("locks/find_locked", table=rows.table, key=rows.key, id=rows.row, ids=f"%(ids{number})s")
        for number, rows in enumerate(tables)
    ]
    values = {f"ids{number}": array(rows.ids) for number, rows in enumerate(tables)}
    statements = [query("locks/wait_briefly"), "\nUNION ALL\n".join(parts)]
    try:
        cursor.execute(";\n".join(filter(None, statements)), {"wait": _BRIEF_WAIT, **values})
    except errors.LockNotAvailable as error:
        names = ", ".join(sorted({rows.table for rows in tables}))
        raise Unavailable(f"Postgres: another session has locked one of the tables {names}") from error
    return {locked for locked, in cursor.fetchall()} if parts else set()
