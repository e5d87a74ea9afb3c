"""Limit the bytes of rows that a process reads at once.

A claim, or a batch that locks its rows, gets markers instead of large values, with the stored size, which Postgres
knows without reading the value. A claim then fetches the values that fit. A batch of commands or results is split.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg2.extensions

from scheduler.domain.errors import SchedulerError
from scheduler.postgres.claims import array
from scheduler.resources import query

# Limit of one claim without its last row. A batch needs several times as much memory, for rows, bodies and frames.
MAX_CLAIM_BYTES = 4 * 1024 * 1024
MAX_LOCKED_BYTES = 16 * 1024 * 1024  # of the rows of a batch of commands or results
FEW = 4  # up to this many rows are read complete, regardless of size
_MARK = "\x01"  # no JSON text starts with it
_RESERVED = 10  # a tenth of the bytes is reserved for each priority class with due rows

Row = tuple[Any, ...]


def inline_limits(limit: int) -> tuple[int, int]:
    """Return the maximum stored size of compressed and of other values that a claim of `limit` rows returns.

    Postgres's compression saves up to 99 %, so a compressed value may be much larger than its stored size.
    """
    return min(1400, 700_000 // limit), min(8192, MAX_CLAIM_BYTES // limit)


class RowsTooLarge(SchedulerError):  # noqa: N818 - an expected outcome, not a failure
    """These rows have too many bytes to be read together: read fewer."""


def marked_if_large(column: str, compressed: str = "1400", plain: str = "8192") -> str:
    """Return the select expression for a JSON column as text, or its marker; the limits may be parameters."""
    large = (f"pg_column_size({column}) > {compressed} AND (pg_column_compression({column}) IS NOT NULL "
             f"OR pg_column_size({column}) > {plain})")
    return f"CASE WHEN {large} THEN chr(1) || pg_column_size({column}) ELSE {column}::text END AS {column}"


class ValueReader(Protocol):
    """Fetches values: a ClaimSession or a CursorReader."""

    expansions: dict[str, float]

    def query(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run a statement in the same transaction and return its rows."""


class CursorReader:
    """A ValueReader that uses a cursor."""

    def __init__(self, cursor: psycopg2.extensions.cursor) -> None:
        self._cursor = cursor
        self.expansions: dict[str, float] = {}

    def query(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        self._cursor.execute(statement, values)
        return self._cursor.fetchall()


@dataclass(frozen=True, slots=True)
class LargeValues:
    """The columns of a table with large values, and their indexes in a row; the key is the row's first value."""

    table: str
    key: str
    columns: tuple[str, ...]
    indexes: tuple[int, ...]

    def inline_size(self, rows: Sequence[Row]) -> int | None:
        """Return the number of characters of the values, or None if there are markers."""
        size = 0
        for index in self.indexes:
            texts = [row[index] for row in rows if row[index] is not None]
            if texts and min(texts) < "\x02":
                return None
            size += sum(map(len, texts))
        return size

    def check(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return the rows, or raise RowsTooLarge."""
        size = self.inline_size(rows)
        if size is None or size > MAX_LOCKED_BYTES:
            raise RowsTooLarge("Postgres: these rows have too many bytes to be read together")
        return rows

    def fetch(self, session: ValueReader, classes: Sequence[Sequence[Row]]) -> tuple[list[list[Row]], int]:
        """Return the first rows of each class that fit, at least one, with large values; and the total size."""
        fetched: list[list[Row]] = []
        used = 0
        for index, rows in enumerate(classes):
            later = sum(bool(later_rows) for later_rows in classes[index + 1 :])
            room = MAX_CLAIM_BYTES - used - later * (MAX_CLAIM_BYTES // _RESERVED)
            fitting, size = self._fetch_class(session, rows, room)
            fetched.append(fitting)
            used += size
        return fetched, used

    def _fetch_class(self, session: ValueReader, rows: Sequence[Row], room: int) -> tuple[list[Row], int]:
        fetched: list[Row] = []
        size = 0
        while len(fetched) < len(rows) and (size < room or not fetched):
            for row in self._fetch_some(session, rows[len(fetched) :], room - size):
                if size >= room and fetched:
                    return fetched, size
                fetched.append(row)
                size += self._size(row)
        return fetched, size

    def _fetch_some(self, session: ValueReader, rows: Sequence[Row], room: int) -> list[Row]:
        """Return the first rows with their values, about as many as fit, at least one."""
        expansion = session.expansions.get(self.table)
        some: list[Row] = []
        large: dict[str, int] = {}
        for row in rows:
            stored, is_large = self._stored(row), self._is_large(row)
            room -= int(stored * (expansion or 1.0)) if is_large else stored
            # The real size is unknown until one value was read.
            if some and (room < 0 or (is_large and large and expansion is None)):
                break
            some.append(row)
            if is_large:
                large[row[0]] = stored
        if not large:
            return some
        values_by_key = {
            key: values for key, *values in session.query(
                query("claims/large_values", table=self.table, key=self.key,
                      values=", ".join(f"{name}::text" for name in self.columns)),
                {"ids": array(large)},
            )
        }
        completed = [self._completed(row, values_by_key[row[0]]) if row[0] in large else row for row in some]
        seen = max(self._size(row) / max(1, large[row[0]]) for row in completed if row[0] in large)
        session.expansions[self.table] = max(seen, 0.9 * (expansion or 0.0))
        return completed

    def _is_large(self, row: Row) -> bool:
        return any(row[index] is not None and row[index].startswith(_MARK) for index in self.indexes)

    def _stored(self, row: Row) -> int:
        texts = [row[index] for index in self.indexes if row[index] is not None]
        return sum(int(text[1:]) if text.startswith(_MARK) else len(text) for text in texts)

    def _size(self, row: Row) -> int:
        return sum(len(row[index]) for index in self.indexes if row[index] is not None)

    def _completed(self, row: Row, values: Sequence[str | None]) -> Row:
        completed = list(row)
        for index, value in zip(self.indexes, values, strict=True):
            completed[index] = value
        return tuple(completed)
