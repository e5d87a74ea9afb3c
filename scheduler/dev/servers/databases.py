"""Create and drop databases on a server given by its URL."""

import time
from contextlib import closing
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import psycopg2
from psycopg2 import errors, sql

from scheduler.resources import query

_DEADLINE_SECONDS = 60.0

def create(server_url: str, name: str, template: str | None) -> str:
    """Create a database and return its URL."""
    _execute(server_url, "create_database", name=name, template=template or "template1")
    return urlunsplit(urlsplit(server_url)._replace(path=f"/{quote(name, safe='')}"))


def drop(server_url: str, name: str) -> None:
    """Drop a database and end its sessions."""
    _execute(server_url, "drop_database", name=name)


def name_of(url: str) -> str:
    """Return the database that a URL names."""
    return unquote(urlsplit(url).path.removeprefix("/"))


def _execute(server_url: str, statement: str, **names: str) -> None:
    quoted = {part: sql.Identifier(name) for part, name in names.items()}
    command = sql.SQL(query(f"dev/{statement}")).format(**quoted)
    limit = time.monotonic() + _DEADLINE_SECONDS
    with closing(psycopg2.connect(server_url)) as connection:
        connection.autocommit = True  # databases are not created or dropped inside a transaction
        with connection.cursor() as cursor:
            while True:
                try:
                    cursor.execute(command)
                except errors.ObjectInUse:
                    # A busy server may need longer to end sessions than the five seconds that Postgres waits.
                    if time.monotonic() > limit:
                        raise
                else:
                    return
