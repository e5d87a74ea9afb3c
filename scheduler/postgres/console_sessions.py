"""Store the console's sessions of users who signed in with OpenID Connect."""

from dataclasses import dataclass
from datetime import timedelta

from scheduler.postgres.connection import Connection, transaction, translated
from scheduler.resources import query


@dataclass(frozen=True, slots=True)
class StoredSession:
    """The user of a session, with the role's name; `tenant` is None for all tenants."""

    sub: str
    role: str
    tenant: str | None
    created_at: float  # Unix seconds


def insert_session(  # noqa: PLR0917 - one argument for each column
    connection: Connection, digest: bytes, sub: str, role: str, tenant: str | None, lifetime: timedelta
) -> None:
    """Store a session."""
    with translated(), transaction(connection) as cursor:
        cursor.execute(query("console_sessions/insert"), (digest, sub, role, tenant, lifetime))


def find_session(connection: Connection, digest: bytes) -> StoredSession | None:
    """Return a session that has neither expired nor ended."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("console_sessions/find"), (digest,))
        row = cursor.fetchone()
        return None if row is None else StoredSession(*row)


def delete_session(connection: Connection, digest: bytes) -> None:
    """End a session."""
    with translated(), transaction(connection) as cursor:
        cursor.execute(query("console_sessions/delete"), (digest,))
