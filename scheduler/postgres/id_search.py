"""Search for ids by prefix."""

from scheduler.postgres.connection import Connection, translated
from scheduler.resources import query


def list_ids(connection: Connection, kind: str, first: str, last: str, limit: int) -> list[tuple[str, ...]]:
    """Return the ids from `first` to `last` of a kind (job, run, delayed), with a few other columns."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(query(f"ids/{kind}"), {"first": first, "last": last, "limit": limit})
        return [tuple(value or "" for value in row) for row in cursor.fetchall()]
