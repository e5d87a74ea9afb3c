"""Apply pending migrations, each once, in order."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg2

from scheduler.domain.database_url import schema_of
from scheduler.domain.errors import Misconfigured, Unavailable
from scheduler.ops.logs import get_logger
from scheduler.postgres import schema
from scheduler.postgres.brief_locks import with_brief_lock
from scheduler.postgres.client_timeout import TimedConnection
from scheduler.postgres.concurrent_indexes import change_index
from scheduler.postgres.connection import Connection, Cursor, Unstorable, connect, transaction, translated
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
            applied = applied_migrations(cursor, connection.schema)
            _check(migrations, applied)
            refuse_existing(cursor, connection.schema, created(_pending(migrations, applied)))
    finally:
        connection.close()
    return [
        MigrationState(migration, applied[migration.version][2] if migration.version in applied else None)
        for migration in migrations
    ]


def migrate(url: str, migrations: list[Migration] | None = None) -> list[Migration]:
    """Apply pending migrations, each in its own transaction or concurrently; return them."""
    migrations = files() if migrations is None else migrations
    with exclusive_migration(url) as connection:
        with explained(connection.schema), transaction(connection) as cursor:
            applied = applied_migrations(cursor, connection.schema)
            _check(migrations, applied)
            pending = _pending(migrations, applied)
            refuse_existing(cursor, connection.schema, created(pending))
            if not applied:
                create_schema(cursor, connection.schema)
                cursor.execute(query("migrations/create"))
        for migration in pending:
            _apply(connection, migration)
        return pending


def require_migrated(url: str, name: str) -> None:
    """Raise NotMigrated if no migration was ever applied, Unavailable if the database cannot be reached."""
    connection = connect(url, name)
    try:
        with transaction(connection) as cursor:
            cursor.execute(query("migrations/list"))
    finally:
        connection.close()


@contextmanager
def exclusive_migration(url: str) -> Iterator[TimedConnection]:
    """Provide a connection that holds the lock against other replicas' migrations."""
    while True:
        # No timeouts: an index build or another replica's migration may take long.
        connection = connect(url, "migrate", statement_timeout="0", lock_timeout="0")
        try:
            _wait_for_turn(connection)
            with transaction(connection) as cursor:
                moved = schema.find(cursor, schema_of(url)) != connection.schema
            if not moved:  # by another replica while this one waited
                yield connection
                return
        finally:
            connection.close()  # also releases the lock


def _wait_for_turn(connection: TimedConnection) -> None:
    logged = False
    key = schema.lock_key(connection.schema, _LOCK)
    while True:
        with transaction(connection) as cursor:
            cursor.execute(query("migrations/try_lock"), {"lock": key})
            if cursor.fetchall() == [(True,)]:
                return
        if not logged:
            log.info("waiting for another replica to migrate")
            logged = True
        time.sleep(_POLL_SECONDS)


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Raise Misconfigured for a statement that Postgres refuses: a retry does not help."""
    try:
        yield
    except Unavailable as error:
        if not isinstance(error.__cause__, psycopg2.ProgrammingError):
            raise
        raise Misconfigured(f"the tables in schema {name} cannot be created: {error}. Let a superuser run "
                            "sql/roles/roles.sql, or create the schema for this role") from error


def applied_migrations(cursor: Cursor, name: str) -> dict[int, tuple[str, str, datetime]]:
    """Return the recorded migrations; raises Misconfigured if another tool records its own in this table."""
    cursor.execute(query("migrations/exists"), {"schema": name})
    if cursor.fetchall() == [(False,)]:
        return {}
    cursor.execute(query("sessions/find_tables"), {"schemas": [name]})
    if not cursor.fetchall():
        raise _foreign(name, ["schema_migrations"])
    cursor.execute(query("migrations/list"))
    return {version: (name, checksum, at) for version, name, checksum, at in cursor.fetchall()}


def created(migrations: list[Migration]) -> list[str]:
    """Return the tables and types that the migrations create."""
    return [name for migration in migrations for name in migration.created("TABLE", "TYPE")]


def refuse_existing(cursor: Cursor, name: str, names: list[str]) -> None:
    """Raise Misconfigured if the schema has tables or types with these names."""
    cursor.execute(query("migrations/existing"), {"schema": name, "names": names})
    if foreign := [table for table, in cursor.fetchall()]:
        raise _foreign(name, foreign)


def _foreign(name: str, tables: list[str]) -> Misconfigured:
    things = ", ".join(f"{name}.{table}" for table in tables)
    return Misconfigured(f"the schema {name} contains tables that the sidecar did not create: {things}. Nothing "
                         "was changed. Use a database or schema of its own: set SCHEDULER_SCHEMA to a new name")


def create_schema(cursor: Cursor, name: str) -> None:
    """Create the schema unless it exists, which needs no privilege."""
    cursor.execute(query("migrations/schema_exists"), {"schema": name})
    if cursor.fetchall() == [(False,)]:
        cursor.execute(query("migrations/create_schema", schema=name))


def _pending(migrations: list[Migration], applied: dict[int, Any]) -> list[Migration]:
    return [migration for migration in migrations if migration.version not in applied]


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


def _record(cursor: Cursor, migration: Migration) -> None:
    values = {"version": migration.version, "name": migration.name, "checksum": migration.checksum}
    cursor.execute(query("migrations/record"), values)
