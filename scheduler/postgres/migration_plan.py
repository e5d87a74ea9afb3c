"""Describe the effects and estimated durations of pending migrations."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from scheduler.postgres.connection import connect, transaction
from scheduler.postgres.migrate import status
from scheduler.postgres.migration_files import Migration
from scheduler.resources import query

# Measured here with 10 million rows (docs/deploying.md); a slow or busy disk takes several times as long.
_INDEX_SECONDS_A_ROW = 2.2e-6
_WRITE_SECONDS_A_ROW = 20e-6
_SLOWEST = 5
_MOMENT_SECONDS = 0.2
_MINUTES_FROM_SECONDS = 120


@dataclass(frozen=True, slots=True)
class TableSize:
    """Size of a table according to its statistics."""

    rows: int
    bytes: int

    def __str__(self) -> str:
        return f" ({self.rows:,} rows, {self.bytes / 1e6:,.0f} MB)"


def _kind(pattern: str, description: str, seconds_a_row: float = 0.0) -> tuple[re.Pattern[str], str, float]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL), description, seconds_a_row


_INDEX = r"\s+(?:if\s+not\s+exists\s+)?(?P<name>\w+)\s+on\s+(?:only\s+)?(?P<table>\w+)"
# The first matching pattern describes a statement.
_KINDS = (
    _kind(rf"create\s+(?:unique\s+)?index\s+concurrently{_INDEX}",
          "creates index {name} on {table}{size} while it is in use", _INDEX_SECONDS_A_ROW),
    _kind(rf"create\s+(?:unique\s+)?index{_INDEX}",
          "creates index {name} on {table}{size}, which blocks writes", _INDEX_SECONDS_A_ROW),
    _kind(r"drop\s+index\s+concurrently\s+(?:if\s+exists\s+)?(?P<name>\w+)",
          "drops index {name} while it is in use"),
    _kind(r"alter\s+table\s+(?:only\s+)?(?P<table>\w+)\b.*\b(?:type\b|set\s+not\s+null|add\s+(?:constraint|check))",
          "changes table {table}{size}, which is read or rewritten under a lock", _WRITE_SECONDS_A_ROW),
    _kind(r"alter\s+table\s+(?:only\s+)?(?P<table>\w+)",
          "changes table {table}{size}: a brief lock, no rewrite"),
    _kind(r"insert\s+into\s+(?P<name>\w+)\b.*\bfrom\s+(?P<table>\w+)", "fills {name} from {table}{size}",
          _WRITE_SECONDS_A_ROW),
    _kind(r"(?:update|insert\s+into|delete\s+from)\s+(?P<table>\w+)", "writes rows of {table}{size}",
          _WRITE_SECONDS_A_ROW),
    _kind(r"create\s+(?:or\s+replace\s+)?(?P<what>\w+)\s+(?:if\s+not\s+exists\s+)?(?P<name>\w+)",
          "creates {what} {name}"),
    _kind(r"(?:alter|drop)\s+(?P<what>\w+)\s+(?:if\s+exists\s+)?(?P<name>\w+)", "changes {what} {name}"),
)
_CREATED = re.compile(r"create\s+table\s+(?:if\s+not\s+exists\s+)?(\w+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StatementEffect:
    """Description of a statement, and its estimated seconds on a fast machine."""

    text: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.text}: {duration(self.seconds)}"


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """A pending migration and its effects."""

    migration: Migration
    effects: list[StatementEffect]


def plan(url: str, migrations: list[Migration] | None = None) -> list[MigrationStep]:
    """Return the steps of `migrate`; change nothing."""
    pending = [state.migration for state in status(url, migrations) if state.applied_at is None]
    connection = connect(url, "migrate")
    try:
        with transaction(connection) as cursor:
            def size(table: str) -> TableSize | None:
                cursor.execute(query("migrations/table_size"), {"table": table})
                [(rows, size)] = cursor.fetchall()
                return None if size is None else TableSize(int(rows), int(size))

            return [MigrationStep(migration, _effects(migration, size)) for migration in pending]
    finally:
        connection.close()


def duration(seconds: float) -> str:
    """Return the estimated duration, from a fast machine to a slow one."""
    if seconds < _MOMENT_SECONDS:
        return "a moment"
    low = max(1.0, seconds)
    return f"{_seconds(low)} to {_seconds(low * _SLOWEST)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _MINUTES_FROM_SECONDS else f"{seconds / 60:.0f} min"


def _effects(migration: Migration, size: Callable[[str], TableSize | None]) -> list[StatementEffect]:
    created = set(_CREATED.findall(migration.sql))
    return [
        _effect(statement, lambda table: None if table in created else size(table))
        for statement in migration.statements()
    ]


def _effect(statement: str, size: Callable[[str], TableSize | None]) -> StatementEffect:
    for pattern, description, seconds_a_row in _KINDS:
        if match := pattern.match(statement):
            names = {name: text.lower() for name, text in match.groupdict().items()}
            table = size(names["table"]) if "table" in names else None
            return StatementEffect(description.format(size=table or "", **names),
                                   table.rows * seconds_a_row if table else 0.0)
    return StatementEffect(f"runs {' '.join(statement.split())[:80]}", 0.0)
