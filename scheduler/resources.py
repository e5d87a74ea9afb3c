"""Locate the SQL and JSON Schema files in a checkout or an installed wheel."""

from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """Return the folder `sql` or `schemas`: in the package if installed, next to it in a checkout."""
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


@cache
def query(name: str, **parts: str) -> str:
    """Return the text of `sql/queries/<name>.sql` with every `{part}` replaced, by SQL and never by a value."""
    text = (folder("sql") / "queries" / f"{name}.sql").read_text(encoding="utf-8")
    for part, filling in parts.items():
        text = text.replace(f"{{{part}}}", filling)
    return text
