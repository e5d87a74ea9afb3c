"""Write rows as text for COPY and JSON."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta
from json.encoder import encode_basestring_ascii as _quoted  # like json.dumps, but faster

Row = Sequence[str | None]
Column = Sequence[str | None]


def names(kind: type, *excluded: str) -> tuple[str, ...]:
    """Return the names of a dataclass's fields, which are columns."""
    return tuple(field.name for field in fields(kind) if field.name not in excluded)


def interval(span: timedelta) -> str:
    """Write an interval in microseconds, not in days, which may have 23 or 25 hours."""
    return f"{span // timedelta(microseconds=1)} microseconds"


def copy_line(row: Row) -> str:
    """Write a row in COPY's text format, with all values escaped."""
    line = "\t".join([r"\N" if text is None else text for text in row])
    if line.count("\\") == row.count(None) and line.count("\t") == len(row) - 1 and _one_line(line):
        return line + "\n"  # the usual case: nothing to escape
    return "\t".join([r"\N" if text is None else _escaped(text) for text in row]) + "\n"


def copy_text(columns: Sequence[Column]) -> str:
    """Write columns of the same length as rows in COPY's text format; faster than row by row."""
    filled = [
        [r"\N" if text is None else text for text in column] if None in column else column for column in columns
    ]
    lines = list(map("\t".join, zip(*filled, strict=True)))
    text = "\n".join(lines)
    if (
        text.count("\\") == sum(column.count(None) for column in columns) and text.count("\n") == len(lines) - 1
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
    """Write the values of a row that are not None as a JSON object; columns in `as_json` already contain JSON."""
    return "{" + ",".join([
        f'"{name}":{value if name in as_json else _quoted(value)}'
        for name, value in zip(columns, row, strict=True) if value is not None
    ]) + "}"
