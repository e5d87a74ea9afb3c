"""Parse the operator's commands file."""

import math
import os
import pwd
import re
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scheduler.domain.errors import Misconfigured
from scheduler.domain.messages.runs import WEEK
from scheduler.domain.names import COMMAND_VARIABLES
from scheduler.workers.tenant_filter import DEFAULT_TENANTS, read_tenants

NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
DEFAULT_GRACE = 10
MAX_CONCURRENCY = 1000
_DAY = 86_400
_MAX_PATTERN = 1000  # characters
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIZE = re.compile(r"([0-9]{1,12}) ?(B|KiB|MiB|GiB)")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_HEADER = re.compile(r"""\s*\[\s*["']?([A-Za-z0-9_-]+)["']?\s*(?:\.\s*["']?([A-Za-z0-9_-]+)["']?\s*)?\]""")


@dataclass(frozen=True, slots=True)
class OfferedCommand:
    """One command of the file."""

    name: str
    run: tuple[str, ...]
    arguments: bool = False
    directory: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)
    concurrency: int = 1
    grace: float = DEFAULT_GRACE
    timeout: float = math.inf  # seconds; the run's own timeout applies if it is shorter
    limits: Mapping[str, int] = field(default_factory=dict)
    user: str | None = None
    tenants: frozenset[str] = DEFAULT_TENANTS
    argument_pattern: str | None = None  # must match each whole argument of a job
    options: bool = False  # whether a placeholder may turn an argument into an option


def load(path: str) -> dict[str, OfferedCommand]:
    """Return the commands by name. Raises Misconfigured with every mistake and its line."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"SCHEDULER_COMMANDS_FILE {path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"SCHEDULER_COMMANDS_FILE {path}: invalid TOML: {error}") from None
    commands, mistakes = {}, []
    lines = _lines(text)
    for name, table in tables.items():
        try:
            commands[name] = _command(name, table)
        except _FileErrors as error:
            mistakes += [(lines.get((name, key)) or lines.get((name, None)) or 1, f"{name}: {problem}")
                         for key, problem in error.problems]
    if not tables:
        mistakes.append((1, "no commands"))
    if mistakes:
        text = "; ".join(f"line {line}: {problem}" for line, problem in sorted(mistakes))
        raise Misconfigured(f"SCHEDULER_COMMANDS_FILE {path}: {text}")
    return commands


class _FileErrors(Exception):  # noqa: N818 - never leaves this module
    """The mistakes of one command, by key."""

    def __init__(self, problems: list[tuple[str | None, str]]) -> None:
        self.problems = problems


def _command(name: str, table: Any) -> OfferedCommand:
    problems: list[tuple[str | None, str]] = []
    if not NAME.fullmatch(name):
        problems.append((None, "a name has 1 to 100 characters from A-Z a-z 0-9 _ -"))
    if not isinstance(table, dict):
        raise _FileErrors([*problems, (None, f"must be a table: [{name}], followed by its keys")])
    values: dict[str, Any] = {}
    limits: dict[str, int] = {}
    for key, value in table.items():
        try:
            if key in _LIMITS:
                limits[key] = _LIMITS[key](value)
            elif key in _KEYS:
                values[key] = _KEYS[key](value)
            else:
                raise ValueError(f"is unknown; the keys are {', '.join((*_KEYS, *_LIMITS))}")
        except ValueError as error:
            problems.append((key, f"{key} {error}"))
    if "run" not in table:
        problems.append((None, 'run is missing: run = ["/path/to/program", "argument"]'))
    if problems:
        raise _FileErrors(problems)
    return OfferedCommand(name=name, limits=limits, **values)


def _lines(text: str) -> dict[tuple[str, str | None], int]:
    """Return the line numbers of commands and keys, as far as a line-by-line scan finds them."""
    lines: dict[tuple[str, str | None], int] = {}
    name = None
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        if header:
            name = header[1]
            lines.setdefault((name, None), number)
            if header[2]:
                lines.setdefault((name, header[2]), number)
            continue
        key = re.match(r"""\s*["']?([A-Za-z0-9_-]+)["']?\s*[=.]""", line)
        if key:
            lines.setdefault((key[1], None) if name is None else (name, key[1]), number)
    return lines


def _run(value: Any) -> tuple[str, ...]:
    argv = _strings(value)
    program = Path(argv[0])
    if not program.is_absolute():
        raise ValueError(f"must start with the program's absolute path, not {argv[0]!r}; there is no shell")
    if not program.is_file():
        raise ValueError(f"names the program {argv[0]}, which does not exist")
    if not os.access(program, os.X_OK):
        raise ValueError(f"names {argv[0]}, which is not executable")
    return argv


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise ValueError("must be a list of strings, the program first; there is no shell")
    return tuple(map(_string, value))


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {value!r}")  # noqa: TRY004 - one kind of error for the operator
    if "\0" in value:
        raise ValueError("contains NUL, which cannot be passed to a program")
    return value


def _directory(value: Any) -> str:
    path = Path(_string(value))
    if not path.is_absolute():
        raise ValueError(f"must be an absolute path, not {value!r}")
    if not path.is_dir():
        raise ValueError(f"names {value}, which is not a directory")
    return str(path)


def _environment(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError('must be a table: { NAME = "value" }')  # noqa: TRY004 - as above
    for name, text in value.items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"contains {name!r}, which is not a variable name")
        if name in COMMAND_VARIABLES:
            raise ValueError(f"contains {name}, which the worker sets")
        if not isinstance(text, str) or "\0" in text:
            raise ValueError(f"contains {name}, whose value must be a string without NUL")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")  # noqa: TRY004 - as above
    return value


def _pattern(value: Any) -> str:
    text = _string(value)
    if len(text) > _MAX_PATTERN:
        raise ValueError(f"must have at most {_MAX_PATTERN:,} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(text)
    except (re.error, RecursionError, OverflowError, Warning) as error:
        raise ValueError(f"is not a valid regular expression: {error}") from None
    return text


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"must be a whole number from {low:,} to {high:,}, not {value!r}")
        return value

    return read


def _seconds(low: int, high: int) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError(f"must be seconds from {low:,} to {high:,}, not {value!r}")
        return value

    return read


def _bytes(value: Any) -> int:
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or not int(match[1]):
        raise ValueError(f'must be a size such as "512 MiB" ({", ".join(_UNITS)}), not {value!r}')
    return int(match[1]) * _UNITS[match[2]]


def _user(value: Any) -> str:
    name = _string(value)
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise ValueError(f"names {name!r}, which is not a user of this machine") from None
    if os.geteuid() not in (0, user.pw_uid):
        raise ValueError(f"is {name}, which requires a worker that runs as root or as {name}")
    return name


_KEYS: dict[str, Callable[[Any], Any]] = {
    "run": _run, "arguments": _flag, "directory": _directory, "environment": _environment,
    "concurrency": _whole(1, MAX_CONCURRENCY), "grace": _seconds(0, _DAY), "timeout": _seconds(1, WEEK),
    "user": _user,
    "tenants": read_tenants, "argument_pattern": _pattern, "options": _flag,
}
_LIMITS: dict[str, Callable[[Any], int]] = {
    "memory": _bytes, "cpu_seconds": _whole(1, 10 * _DAY), "open_files": _whole(3, 1_000_000), "file_size": _bytes,
}


def environment_of(command: OfferedCommand, own: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the environment of a command: the worker's PATH, HOME and LANG, and the file's variables."""
    for name in ("PATH", "HOME", "LANG"):
        if name in own:
            yield name, own[name]
    if command.user is not None:
        yield "HOME", pwd.getpwnam(command.user).pw_dir
    yield from command.environment.items()
