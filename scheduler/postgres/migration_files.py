"""Read the numbered migration files and parse their statements."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scheduler.domain.errors import Misconfigured
from scheduler.resources import folder

_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
# Comments, quoted text in which a semicolon does not end the statement, and the rest.
_PIECE = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$|;|[^-'$;]+|.", re.DOTALL)
# A file whose statements run one by one outside a transaction; only these two kinds, which can be repeated.
_CONCURRENTLY = re.compile(r"-- Concurrently\b")
_INDEX = re.compile(
    r"(?P<verb>CREATE)(?P<unique>\s+UNIQUE)?\s+INDEX\s+CONCURRENTLY\s+IF\s+NOT\s+EXISTS\s+(?P<index>\w+)"
    r"\s+ON\s+(?P<table>\w+)\s*(?P<rest>.+)"
    r"|(?P<drop>DROP)\s+INDEX\s+CONCURRENTLY\s+IF\s+EXISTS\s+(?P<dropped>\w+)",
    re.DOTALL | re.IGNORECASE,
)


_CREATED = re.compile(
    r"create\s+(?:or\s+replace\s+)?(table|type|function)\s+(?:if\s+not\s+exists\s+)?(\w+)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class IndexChange:
    """An index to create concurrently, or without a table, to drop."""

    index: str
    table: str | None = None
    unique: bool = False
    rest: str = ""


@dataclass(frozen=True, slots=True)
class Migration:
    """One migration file."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def concurrently(self) -> bool:
        """Whether the first line is `-- Concurrently`: indexes are created while the tables are in use."""
        return bool(_CONCURRENTLY.match(self.sql))

    @property
    def purpose(self) -> str:
        """The first sentence of the comment."""
        lines = re.match(r"(?:--[^\n]*\n?)*", self.sql)
        assert lines  # noqa: S101 - an empty match at least
        text = " ".join(line.removeprefix("--").strip() for line in lines[0].splitlines())
        return re.sub(r"^Concurrently[:.]?\s*", "", re.split(r"(?<=[.])\s", text, maxsplit=1)[0])

    def statements(self) -> list[str]:
        """Return the statements without comments."""
        return list(_split(self.sql))

    def created(self, *kinds: str) -> list[str]:
        """Return the names of the objects of these kinds (TABLE, TYPE, FUNCTION) that the file creates."""
        matches = map(_CREATED.match, self.statements())
        return [match[2].lower() for match in matches if match and match[1].upper() in kinds]

    def index_changes(self) -> list[IndexChange]:
        """Return the index changes of a `-- Concurrently` file. Raises Misconfigured for other statements."""
        return [self._index_change(statement) for statement in self.statements()]

    def _index_change(self, statement: str) -> IndexChange:
        match = _INDEX.fullmatch(statement)
        if match is None:
            raise Misconfigured(
                f"{self.name} says Concurrently, so that its statements run outside a transaction, and again "
                "after a crash: only CREATE INDEX CONCURRENTLY IF NOT EXISTS name ON table … and DROP INDEX "
                f"CONCURRENTLY IF EXISTS name may be in it, not: {' '.join(statement.split())[:80]}"
            )
        if match["drop"]:
            return IndexChange(match["dropped"])
        return IndexChange(match["index"], match["table"], bool(match["unique"]), match["rest"])


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
    """Return this program's migrations in order."""
    migrations = []
    for path in sorted((where or folder("sql") / "migrations").glob("*.sql")):
        name = _NAME.fullmatch(path.name)
        if name is None:
            raise Misconfigured(f"{path.name} is not a migration's name, like 0002_add_column.sql")
        migrations.append(Migration(int(name[1]), path.name, path.read_text(encoding="utf-8")))
    if [migration.version for migration in migrations] != list(range(1, len(migrations) + 1)):
        raise Misconfigured("migrations must be numbered 0001, 0002, … without gaps or duplicates")
    return migrations
