"""Finds the SQL and JSON Schema files, in a checkout and in an installed wheel alike."""

from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """Return the folder `sql` or `schemas`: inside the package when installed, beside it in a checkout."""
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


@cache
def query(name: str, **parts: str) -> str:
    """Return the text of `sql/queries/<name>.sql`, each `{part}` in it filled in: names of ours, never a value."""
    text = (folder("sql") / "queries" / f"{name}.sql").read_text(encoding="utf-8")
    for part, filling in parts.items():
        text = text.replace(f"{{{part}}}", filling)
    return text
