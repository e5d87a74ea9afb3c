"""Queries on the host's database connection: psycopg2, psycopg 3, SQLAlchemy or Django."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from scheduler.client.errors import NotInTransaction
from scheduler.resources import folder

_IDLE = 0  # libpq's PQTRANS_IDLE, in both psycopgs


def tables() -> str:
    """Return the SQL of the inbox and the outbox, for the host's migrations."""
    path = folder("sql") / "host"
    return "\n".join((path / f"{name}.sql").read_text(encoding="utf-8") for name in ("inbox", "outbox"))


@cache
def query(name: str) -> str:
    """Return the text of `sql/host/queries/<name>.sql`."""
    return (folder("sql") / "host" / "queries" / f"{name}.sql").read_text(encoding="utf-8")


def execute(database: Any, name: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Run a query of the kit in the transaction that `database` is in, and return its rows.

    `database` is a DB-API connection or cursor, Django's `connection`, or SQLAlchemy's Connection or Session.
    """
    if hasattr(database, "get_bind") and callable(getattr(database, "connection", None)):
        database = database.connection()  # SQLAlchemy: the session's own connection
    if hasattr(database, "exec_driver_sql"):
        _check(database.connection.dbapi_connection)
        result = database.exec_driver_sql(query(name), tuple(values))
        return [tuple(row) for row in result] if result.returns_rows else []
    if callable(getattr(database, "cursor", None)):  # Django's cursor wraps another
        with database.cursor() as cursor:
            return _on_cursor(cursor, name, values)
    return _on_cursor(database, name, values)


def _on_cursor(cursor: Any, name: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    _check(cursor.connection)
    cursor.execute(query(name), tuple(values))
    return [_columns(row) for row in cursor.fetchall()] if cursor.description else []


def _columns(row: Any) -> tuple[Any, ...]:
    """Return a row as a tuple; the host's cursor may return dictionaries."""
    return tuple(row.values() if isinstance(row, dict) else row)


def _check(connection: Any) -> None:
    """Raise NotInTransaction if the connection would commit separately from the host's changes."""
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    if getattr(connection, "autocommit", False) is True and status == _IDLE:
        raise NotInTransaction(
            "this connection commits every statement automatically: open a transaction first "
            "(Django: transaction.atomic(); psycopg: connection.transaction(), or autocommit off)"
        )
