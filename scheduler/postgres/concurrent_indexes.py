"""Create and drop indexes while the tables are in use, and repair them after a crash."""

from functools import partial
from typing import Any

from scheduler.ops.logs import get_logger
from scheduler.postgres.brief_locks import with_brief_lock
from scheduler.postgres.connection import Connection, translated
from scheduler.postgres.migration_files import IndexChange
from scheduler.resources import query

log = get_logger(__name__)
_MAX_NAME = 63


def change_index(connection: Connection, change: IndexChange) -> None:
    """Create or drop one index on an autocommit connection; a later failure does not undo it."""
    if change.table is None:
        _run(connection, query("migrations/drop_index", index=change.index))
    elif _ask(connection, "migrations/is_partitioned", table=change.table) == [(True,)]:
        _make_on_partitions(connection, change, change.table)
    else:
        _make(connection, change, change.index, change.table)


def _make(connection: Connection, change: IndexChange, index: str, table: str) -> None:
    if _ask(connection, "migrations/index_state", index=index) == [(False,)]:
        log.warning("recreating an index whose build was interrupted", index=index, table=table)
        _run(connection, query("migrations/drop_index", index=index))
    _run(connection, _text("migrations/create_index", change, index=index, table=table))


def _make_on_partitions(connection: Connection, change: IndexChange, table: str) -> None:
    parent = _text("migrations/create_parent_index", change, index=change.index, table=table)
    with_brief_lock(connection, partial(_run, connection, parent))
    for (partition,) in _ask(connection, "migrations/list_unindexed_partitions", table=table, index=change.index):
        part = _part_name(change.index, partition.removeprefix(table))
        _make(connection, change, part, partition)
        attach = query("migrations/attach_index", index=change.index, part=part)
        with_brief_lock(connection, partial(_run, connection, attach))


def _part_name(index: str, ending: str) -> str:
    return index[: _MAX_NAME - len(ending)] + ending


def _text(name: str, change: IndexChange, *, index: str, table: str) -> str:
    return query(name, unique="UNIQUE" if change.unique else "", index=index, table=table, rest=change.rest)


def _run(connection: Connection, statement: str) -> None:
    with translated(), connection.cursor() as cursor:
        cursor.execute(statement)


def _ask(connection: Connection, name: str, **values: str) -> list[tuple[Any, ...]]:
    with translated(), connection.cursor() as cursor:
        cursor.execute(query(name), values)
        return cursor.fetchall()
