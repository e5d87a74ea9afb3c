"""Apply pending migrations, each once, in order."""

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

_LOCK = 0x5C4ED01E  # advisory lock, held while migrating
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class MigrationState:
    """A migration and the time it was applied, if it was."""

    migration: Migration
    applied_at: datetime | None


def status(url: str, migrations: list[Migration] | None = None) -> list[MigrationState]:
    """Return all migrations with their state; change nothing."""
    migrations = files() if migrations is None else migrations
    connection = connect(url, "migrate")
    try:
        with transaction(connection) as cursor:
            cursor.execute(query("migrations/exists"))
            applied = _applied(cursor) if cursor.fetchall() == [(True,)] else {}
    finally:
        connection.close()
    _check(migrations, applied)
    return [
        MigrationState(migration, applied[migration.version][2] if migration.version in applied else None)
        for migration in migrations
    ]


def migrate(url: str, migrations: list[Migration] | None = None) -> list[Migration]:
    """Apply pending migrations, each in its own transaction or concurrently; return them."""
    migrations = files() if migrations is None else migrations
    # No timeouts: an index build or another replica's migration may take long.
    connection = connect(url, "migrate", statement_timeout="0", lock_timeout="0")
    try:
        _wait_for_turn(connection)
        with transaction(connection) as cursor:
            cursor.execute(query("migrations/create"))
            applied = _applied(cursor)
        _check(migrations, applied)
        pending = [migration for migration in migrations if migration.version not in applied]
        for migration in pending:
            _apply(connection, migration)
        return pending
    finally:
        connection.close()  # also releases the lock


def _wait_for_turn(connection: Connection) -> None:
    logged = False
    while True:
        with transaction(connection) as cursor:
            cursor.execute(query("migrations/try_lock"), {"lock": _LOCK})
            if cursor.fetchall() == [(True,)]:
                return
        if not logged:
            log.info("waiting for another replica to migrate")
            logged = True
        time.sleep(_POLL_SECONDS)


def _applied(cursor: psycopg2.extensions.cursor) -> dict[int, tuple[str, str, datetime]]:
    cursor.execute(query("migrations/list"))
    return {version: (name, checksum, at) for version, name, checksum, at in cursor.fetchall()}


def _check(migrations: list[Migration], applied: dict[int, tuple[str, str, datetime]]) -> None:
    by_version = {migration.version: migration for migration in migrations}
    for version, (name, checksum, _) in sorted(applied.items()):
        mine = by_version.get(version)
        if mine is None:
            raise Misconfigured(
                f"the database is newer than this program: it has migration {name}, and this program ends at "
                f"{max(by_version, default=0):04}. Run the program version with that migration, or a later one."
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
        # A broken connection is worth a retry; an invalid statement is not.
        if isinstance(error, Unavailable) and not isinstance(error.__cause__, psycopg2.ProgrammingError):
            raise
        text = " ".join(str(error).split())
        state = "failed; the next run resumes it" if migration.concurrently else "failed and was rolled back"
        raise Misconfigured(f"migration {migration.name} {state}: {text}") from error
    log.info("migration applied", migration=migration.name)


def _apply_at_once(connection: Connection, migration: Migration) -> None:
    with transaction(connection) as cursor:
        cursor.execute(migration.sql)
        _record(cursor, migration)


def _apply_concurrently(connection: Connection, migration: Migration) -> None:
    """Run each statement separately, skipping those done before a crash."""
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
