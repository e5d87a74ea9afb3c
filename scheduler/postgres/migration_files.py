"""The numbered files that make the schema, and the statements in them."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scheduler.domain.errors import Misconfigured
from scheduler.resources import folder

_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
# What a semicolon may stand in without ending the statement, and comments.
_PIECE = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$|;|[^-'$;]+|.", re.DOTALL)
# Its statements run one by one, outside a transaction, and only these two kinds: both can be repeated.
_CONCURRENTLY = re.compile(r"-- Concurrently\b")
_INDEX = re.compile(
    r"(?P<verb>CREATE)(?P<unique>\s+UNIQUE)?\s+INDEX\s+CONCURRENTLY\s+IF\s+NOT\s+EXISTS\s+(?P<index>\w+)"
    r"\s+ON\s+(?P<table>\w+)\s*(?P<rest>.+)"
    r"|(?P<drop>DROP)\s+INDEX\s+CONCURRENTLY\s+IF\s+EXISTS\s+(?P<dropped>\w+)",
    re.DOTALL | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class IndexChange:
    """An index to make, or with no table to drop, while others read and write."""

    index: str
    table: str | None = None
    unique: bool = False
    rest: str = ""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def concurrently(self) -> bool:
        """Whether its first line says `-- Concurrently`: its indexes are made while the tables are in use."""
        return bool(_CONCURRENTLY.match(self.sql))

    @property
    def purpose(self) -> str:
        """The first sentence of its comment."""
        lines = re.match(r"(?:--[^\n]*\n?)*", self.sql)
        assert lines  # noqa: S101 - an empty match at least
        text = " ".join(line.removeprefix("--").strip() for line in lines[0].splitlines())
        return re.sub(r"^Concurrently[:.]?\s*", "", re.split(r"(?<=[.])\s", text, maxsplit=1)[0])

    def statements(self) -> list[str]:
        """Return its statements without comments."""
        return list(_split(self.sql))

    def index_changes(self) -> list[IndexChange]:
        """Return what a file that says `-- Concurrently` does, or say what it may not."""
        return [self._index_change(statement) for statement in self.statements()]

    def _index_change(self, statement: str) -> IndexChange:
        found = _INDEX.fullmatch(statement)
        if found is None:
            raise Misconfigured(
                f"{self.name} says Concurrently, so that its statements run outside a transaction, and again "
                "after a crash: only CREATE INDEX CONCURRENTLY IF NOT EXISTS name ON table … and DROP INDEX "
                f"CONCURRENTLY IF EXISTS name may be in it, not: {' '.join(statement.split())[:80]}"
            )
        if found["drop"]:
            return IndexChange(found["dropped"])
        return IndexChange(found["index"], found["table"], bool(found["unique"]), found["rest"])


def _split(sql: str) -> Iterator[str]:
    statement = ""
    for piece in _PIECE.finditer(sql):
        if piece[0].startswith("--"):
            continue
        if piece[0] != ";":
            statement += piece[0]
            continue
        yield statement.strip()
        statement = ""
    if statement.strip():
        yield statement.strip()


def files(where: Path | None = None) -> list[Migration]:
    """Return the migrations that this program carries, in order."""
    found = []
    for path in sorted((where or folder("sql") / "migrations").glob("*.sql")):
        name = _NAME.fullmatch(path.name)
        if name is None:
            raise Misconfigured(f"{path.name} is not a migration's name, like 0002_add_column.sql")
        found.append(Migration(int(name[1]), path.name, path.read_text(encoding="utf-8")))
    if [each.version for each in found] != list(range(1, len(found) + 1)):
        raise Misconfigured("migrations must be numbered 0001, 0002, … without gaps or doubles")
    return found
