"""Brings the database to the current schema: numbered files, each applied once, in order."""

import time
from dataclasses import dataclass
from datetime import datetime

import psycopg2
import psycopg2.extensions

from scheduler.domain.errors import Misconfigured, Unavailable
from scheduler.ops.logs import get_logger
from scheduler.postgres.brief_locks import with_brief_lock
from scheduler.postgres.concurrent_indexes import change_index
from scheduler.postgres.connection import Connection, Unstorable, connect, transaction, translated
from scheduler.postgres.migration_files import Migration, files
from scheduler.resources import query

log = get_logger(__name__)

_LOCK = 0x5C4ED01E  # any number that nobody else uses: held while migrating
_ASK_AGAIN_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class MigrationState:
    """A file and when it was applied, if it was."""

    migration: Migration
    applied_at: datetime | None


def status(url: str, migrations: list[Migration] | None = None) -> list[MigrationState]:
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
    return [MigrationState(each,
                           applied[each.version][2] if each.version in applied else None) for each in migrations]


def migrate(url: str, migrations: list[Migration] | None = None) -> list[Migration]:
    """Apply what is missing, each file in a transaction of its own or concurrently; return what was."""
    migrations = files() if migrations is None else migrations
    # A long index build is no reason to give up, nor is another replica that migrates first.
    connection = connect(url, "migrate", statement_timeout="0", lock_timeout="0")
    try:
        _wait_for_turn(connection)
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


def _wait_for_turn(connection: Connection) -> None:
    said = False
    while True:
        with transaction(connection) as cursor:
            cursor.execute(query("migrations/try_lock"), {"lock": _LOCK})
            if cursor.fetchall() == [(True,)]:
                return
        if not said:
            log.info("another replica migrates: waiting for it")
            said = True
        time.sleep(_ASK_AGAIN_SECONDS)


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
        if migration.concurrently:
            _apply_concurrently(connection, migration)
        else:
            with_brief_lock(connection, lambda: _apply_at_once(connection, migration))
    except (psycopg2.Error, Unavailable, Unstorable) as error:
        # A connection that broke is worth another try; a statement that cannot run is not.
        if isinstance(error, Unavailable) and not isinstance(error.__cause__, psycopg2.ProgrammingError):
            raise
        text = " ".join(str(error).split())
        left = "failed and goes on from there when it is run again" if migration.concurrently else (
            "failed and was rolled back"
        )
        raise Misconfigured(f"migration {migration.name} {left}: {text}") from error
    log.info("migration applied", migration=migration.name)


def _apply_at_once(connection: Connection, migration: Migration) -> None:
    with transaction(connection) as cursor:
        cursor.execute(migration.sql)
        _record(cursor, migration)


def _apply_concurrently(connection: Connection, migration: Migration) -> None:
    """Run each statement by itself: what is done already, after a crash, is passed over."""
    changes = migration.index_changes()
    connection.autocommit = True
    try:
        for change in changes:
            change_index(connection, change)
        with translated(), connection.cursor() as cursor:
            _record(cursor, migration)
    finally:
        if not connection.closed:
            connection.autocommit = False


def _record(cursor: psycopg2.extensions.cursor, migration: Migration) -> None:
    values = {"version": migration.version, "name": migration.name, "checksum": migration.checksum}
    cursor.execute(query("migrations/record"), values)
