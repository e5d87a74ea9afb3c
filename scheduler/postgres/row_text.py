"""Rows as text: what tables of any kind share when they are written from the fields of the domain."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta
from json.encoder import encode_basestring_ascii as _quoted  # what json.dumps makes of a text, and quicker

Row = Sequence[str | None]
Column = Sequence[str | None]


def names(kind: type, *but: str) -> tuple[str, ...]:
    """Return the names of a dataclass's fields, which are columns, but for these."""
    return tuple(each.name for each in fields(kind) if each.name not in but)


def interval(span: timedelta) -> str:
    """Write a span as seconds, never as days: a day would be 23 or 25 hours in some zones."""
    return f"{span // timedelta(microseconds=1)} microseconds"


def copy_line(row: Row) -> str:
    """Write a row in COPY's text format. Every text is a host's until shown otherwise, so every one is escaped."""
    line = "\t".join([r"\N" if each is None else each for each in row])
    if line.count("\\") == row.count(None) and line.count("\t") == len(row) - 1 and _one_line(line):
        return line + "\n"  # nearly always: nothing in it means anything to COPY
    return "\t".join([r"\N" if each is None else _escaped(each) for each in row]) + "\n"


def copy_text(columns: Sequence[Column]) -> str:
    """Write columns of the same length as rows in COPY's text format: quicker than row by row."""
    shown = [[r"\N" if text is None else text for text in each] if None in each else each for each in columns]
    lines = list(map("\t".join, zip(*shown, strict=True)))
    text = "\n".join(lines)
    if (
        text.count("\\") == sum(each.count(None) for each in columns) and text.count("\n") == len(lines) - 1
        and text.count("\t") == len(lines) * (len(columns) - 1) and "\r" not in text
    ):
        return text + "\n"
    return "".join(map(copy_line, zip(*columns, strict=True)))


def _one_line(text: str) -> bool:
    return "\n" not in text and "\r" not in text


def _escaped(text: str) -> str:
    return (
        text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    )


def json_record(columns: Sequence[str], row: Row, as_json: frozenset[str]) -> str:
    """Write a row as a JSON object, but for what is empty; some of its columns are JSON already."""
    return "{" + ",".join([
        f'"{name}":{value if name in as_json else _quoted(value)}'
        for name, value in zip(columns, row, strict=True) if value is not None
    ]) + "}"
