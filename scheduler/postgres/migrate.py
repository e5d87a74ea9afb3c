"""Brings the database to the current schema: numbered files, each applied once, in order."""

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psycopg2
import psycopg2.extensions

from scheduler.domain.errors import Misconfigured, Unavailable
from scheduler.ops.logs import get_logger
from scheduler.postgres.connection import Connection, connect, transaction
from scheduler.resources import folder, query

log = get_logger(__name__)

_LOCK = 0x5C4ED01E  # any number that nobody else uses: held while migrating
_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One file."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class State:
    """A file and when it was applied, if it was."""

    migration: Migration
    applied_at: datetime | None


def files(where: Path | None = None) -> list[Migration]:
    """Return the migrations that this program carries, in order."""
    found = []
    for path in sorted((where or folder("sql") / "migrations").glob("*.sql")):
        name = _NAME.fullmatch(path.name)
        if name is None:
            raise Misconfigured(f"{path.name} is not a migration's name, like 0002_add_column.sql")
        found.append(Migration(int(name[1]), path.name, path.read_text(encoding="utf-8")))
    if len({each.version for each in found}) != len(found):
        raise Misconfigured("migrations must be numbered 0001, 0002, …, and no number is there twice")
    return found


def status(url: str, migrations: list[Migration] | None = None) -> list[State]:
    """Return which migrations are applied and which are not; change nothing."""
    migrations = files() if migrations is None else migrations
    connection = connect(url, "migrate")
    try:
        with transaction(connection) as cursor:
            cursor.execute(query("migrations/exists"))
            applied = _applied(cursor) if cursor.fetchall() == [(True,)] else {}
    finally:
        connection.close()
    _check(migrations, applied)
    return [State(each, applied[each.version][2] if each.version in applied else None) for each in migrations]


def migrate(url: str, migrations: list[Migration] | None = None) -> list[Migration]:
    """Apply what is missing, each file in a transaction of its own, and return what was applied."""
    migrations = files() if migrations is None else migrations
    # A long index build is no reason to give up, nor is another replica that migrates first.
    connection = connect(url, "migrate", statement_timeout="0", lock_timeout="0")
    try:
        with transaction(connection) as cursor:
            cursor.execute(query("migrations/lock"), {"lock": _LOCK})
        with transaction(connection) as cursor:
            cursor.execute(query("migrations/create"))
            applied = _applied(cursor)
        _check(migrations, applied)
        missing = [each for each in migrations if each.version not in applied]
        for each in missing:
            _apply(connection, each)
        return missing
    finally:
        connection.close()  # and with it the lock


def _applied(cursor: psycopg2.extensions.cursor) -> dict[int, tuple[str, str, datetime]]:
    cursor.execute(query("migrations/list"))
    return {version: (name, checksum, at) for version, name, checksum, at in cursor.fetchall()}


def _check(migrations: list[Migration], applied: dict[int, tuple[str, str, datetime]]) -> None:
    known = {each.version: each for each in migrations}
    for version, (name, checksum, _) in sorted(applied.items()):
        mine = known.get(version)
        if mine is None:
            raise Misconfigured(
                f"the database is newer than this program: it has migration {name}, and this program ends at "
                f"{max(known, default=0):04}. Run the version of the program that brought it, or a later one."
            )
        if mine.checksum != checksum:
            raise Misconfigured(
                f"migration {mine.name} was changed after it was applied to this database (checksum "
                f"{checksum[:12]}… there, {mine.checksum[:12]}… here). Restore the file, and put the change "
                "into a new migration."
            )


def _apply(connection: Connection, migration: Migration) -> None:
    try:
        with transaction(connection) as cursor:
            cursor.execute(migration.sql)
            values = {"version": migration.version, "name": migration.name, "checksum": migration.checksum}
            cursor.execute(query("migrations/record"), values)
    except (psycopg2.Error, Unavailable) as error:
        # A connection that broke is worth another try; a statement that cannot run is not.
        if isinstance(error, Unavailable) and not isinstance(error.__cause__, psycopg2.ProgrammingError):
            raise
        text = " ".join(str(error).split())
        raise Misconfigured(f"migration {migration.name} failed and was rolled back: {text}") from error
    log.info("migration applied", migration=migration.name)
