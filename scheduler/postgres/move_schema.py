"""Move a database of release 0.2 from `public` to the sidecar's own schema."""

from scheduler.domain.database_url import schema_of
from scheduler.postgres.brief_locks import with_brief_lock
from scheduler.postgres.client_timeout import TimedConnection
from scheduler.postgres.connection import transaction
from scheduler.postgres.migrate import (
    applied_migrations,
    create_schema,
    created,
    exclusive_migration,
    explained,
    refuse_existing,
)
from scheduler.postgres.migration_files import files
from scheduler.postgres.schema import LEGACY
from scheduler.resources import query

_STEPS = (
    ("move_tables", "TABLE"), ("move_types", "TYPE"), ("move_functions", "FUNCTION"), ("share_schema", "TABLE"),
)


def move(url: str) -> bool:
    """Move all objects in one transaction, without rewriting a table; return False if there is nothing to move."""
    with exclusive_migration(url) as connection:
        if schema_of(url) == connection.schema:
            return False
        with explained(schema_of(url)):
            with_brief_lock(connection, lambda: _move(connection, schema_of(url)))
        return True


def _move(connection: TimedConnection, target: str) -> None:
    with transaction(connection) as cursor:
        applied = applied_migrations(cursor, connection.schema)
        migrations = [migration for migration in files() if migration.version in applied]
        refuse_existing(cursor, target, [*created(migrations), "schema_migrations"])
        create_schema(cursor, target)
        for statements, kind in _STEPS:
            names = [name for migration in migrations for name in migration.created(kind)]
            values = {"source": LEGACY, "target": target, "names": names}
            cursor.execute(query(f"migrations/{statements}"), values)
            for (statement,) in cursor.fetchall():
                cursor.execute(statement)
