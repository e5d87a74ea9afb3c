"""Creates and drops databases on a server given by its URL."""

import time
from contextlib import closing
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import psycopg2
from psycopg2 import errors, sql

_PATIENCE = 60.0


def create(server_url: str, name: str, template: str | None) -> str:
    """Create a database and return its URL."""
    command = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
    if template:
        command += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
    _execute(server_url, command)
    return urlunsplit(urlsplit(server_url)._replace(path=f"/{quote(name, safe='')}"))


def drop(server_url: str, name: str) -> None:
    """Drop a database and whoever is connected to it."""
    command = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    _execute(server_url, command)


def name_of(url: str) -> str:
    """Return the database that a URL names."""
    return unquote(urlsplit(url).path.removeprefix("/"))


def _execute(server_url: str, command: sql.Composable) -> None:
    limit = time.monotonic() + _PATIENCE
    with closing(psycopg2.connect(server_url)) as connection:
        connection.autocommit = True  # databases are not created or dropped inside a transaction
        with connection.cursor() as cursor:
            while True:
                try:
                    cursor.execute(command)
                except errors.ObjectInUse:
                    # A busy server takes a while to end a session that was closed or terminated; five seconds of
                    # that Postgres waits by itself.
                    if time.monotonic() > limit:
                        raise
                else:
                    return
