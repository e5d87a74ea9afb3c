"""Bounds how many bytes of rows a process reads at once.

Large values are left out: in their place a claim, or a batch that locks its rows, gets a marker with their stored
size, which Postgres knows without reading them. A claim fetches them afterwards as far as there is room. A batch
of commands or results is executed in smaller parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg2.extensions

from scheduler.domain.errors import SchedulerError
from scheduler.postgres.claims import array
from scheduler.resources import query

# What one claim holds, apart from its last row. A batch takes several times as much: as rows, bodies and frames.
MAX_CLAIM_BYTES = 4 * 1024 * 1024
MAX_LOCKED_BYTES = 16 * 1024 * 1024  # of the rows that a batch of commands or results is about
FEW = 4  # rows are read whole, however large they are
_MARK = "\x01"  # begins no JSON text
_RESERVED = 10  # each class of priority with something due has this fraction of the bytes for certain

Row = tuple[Any, ...]


def inline_limits(limit: int) -> tuple[int, int]:
    """Return up to which stored size a claim of so many rows returns values that are compressed, and others.

    Compression by Postgres saves up to 99 %, so a compressed value may be much larger than it looks.
    """
    return min(1400, 700_000 // limit), min(8192, MAX_CLAIM_BYTES // limit)


class RowsTooLarge(SchedulerError):  # noqa: N818 - a state, not an accident
    """These rows have too many bytes to be read together: read fewer."""


def marked_if_large(column: str, compressed: str = "1400", plain: str = "8192") -> str:
    """Return a JSON column as text in a select list, or the marker; the limits may be parameters."""
    large = (f"pg_column_size({column}) > {compressed} AND (pg_column_compression({column}) IS NOT NULL "
             f"OR pg_column_size({column}) > {plain})")
    return f"CASE WHEN {large} THEN chr(1) || pg_column_size({column}) ELSE {column}::text END AS {column}"


class ValueReader(Protocol):
    """What fetches the values: the session of a claim, or a CursorReader."""

    expansions: dict[str, float]

    def query(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run a statement in the same transaction and return its rows."""


class CursorReader:
    """Fetches with a cursor."""

    def __init__(self, cursor: psycopg2.extensions.cursor) -> None:
        self._cursor = cursor
        self.expansions: dict[str, float] = {}

    def query(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        self._cursor.execute(statement, values)
        return self._cursor.fetchall()


@dataclass(frozen=True, slots=True)
class LargeValues:
    """The columns of a table whose values may be large, and where they are in a row; its key is the first."""

    table: str
    key: str
    columns: tuple[str, ...]
    indexes: tuple[int, ...]

    def inline_size(self, rows: Sequence[Row]) -> int | None:
        """Return how many characters the values have, None if some are left out."""
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
        """Return the first rows of each class that fit together, with their large values, and their size.

        Each class keeps at least one row.
        """
        kept: list[list[Row]] = []
        used = 0
        for index, rows in enumerate(classes):
            later = sum(bool(each) for each in classes[index + 1 :])
            room = MAX_CLAIM_BYTES - used - later * (MAX_CLAIM_BYTES // _RESERVED)
            found, size = self._fetch_class(session, rows, room)
            kept.append(found)
            used += size
        return kept, used

    def _fetch_class(self, session: ValueReader, rows: Sequence[Row], room: int) -> tuple[list[Row], int]:
        kept: list[Row] = []
        size = 0
        while len(kept) < len(rows) and (size < room or not kept):
            for row in self._fetch_some(session, rows[len(kept) :], room - size):
                if size >= room and kept:
                    return kept, size
                kept.append(row)
                size += self._size(row)
        return kept, size

    def _fetch_some(self, session: ValueReader, rows: Sequence[Row], room: int) -> list[Row]:
        """Return the first rows with their values, about as many as there is room for, and at least one."""
        expansion = session.expansions.get(self.table)
        some: list[Row] = []
        large: dict[str, int] = {}
        for row in rows:
            stored, is_large = self._stored(row), self._is_large(row)
            room -= int(stored * (expansion or 1.0)) if is_large else stored
            # Until one was read, nothing is known of their real size.
            if some and (room < 0 or (is_large and large and expansion is None)):
                break
            some.append(row)
            if is_large:
                large[row[0]] = stored
        if not large:
            return some
        found = {
            key: values for key, *values in session.query(
                query("claims/large_values", table=self.table, key=self.key,
                      values=", ".join(f"{name}::text" for name in self.columns)),
                {"ids": array(large)},
            )
        }
        completed = [self._completed(row, found[row[0]]) if row[0] in large else row for row in some]
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
