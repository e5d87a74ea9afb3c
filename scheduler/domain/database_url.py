"""The address of the sidecar's tables."""

from typing import Self

DEFAULT_SCHEMA = "scheduler"


class DatabaseUrl(str):  # noqa: SLOT000 - text cannot have slots
    """A libpq URL, with the Postgres schema that has the sidecar's tables."""

    schema: str

    def __new__(cls, url: str, schema: str = DEFAULT_SCHEMA) -> Self:
        made = super().__new__(cls, url)
        made.schema = schema
        return made


def schema_of(url: str) -> str:
    """Return the URL's schema; that of plain text is the default."""
    return url.schema if isinstance(url, DatabaseUrl) else DEFAULT_SCHEMA
