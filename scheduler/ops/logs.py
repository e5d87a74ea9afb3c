"""One JSON object a line on stderr, or text for people; no message's content can forge a line."""

import json
import logging
import re
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

_USER = re.compile(r"[^\s:/@]*:").match
_END = re.compile(r"[\s@]").search
_PASSWORD = re.compile(r"(password\s*=\s*)('[^']*'|\S+)", flags=re.IGNORECASE)


def without_secrets(text: str) -> str:
    """Return `text` with every password in a URL or connection string hidden."""
    if "://" in text:  # to look for this takes a fraction of what the patterns take
        text = _without_passwords(text)
    return _PASSWORD.sub(r"\1***", text) if "password" in text.lower() else text


def _without_passwords(text: str) -> str:
    """Hide what stands between `://user:` and `@`; each character is looked at once, whatever the text."""
    pieces, kept, at = [], 0, text.find("://")
    while at >= 0:
        user = _USER(text, at + 3)
        if user is None:
            at = text.find("://", at + 3)
            continue
        end = _END(text, user.end())
        if end is not None and end[0] == "@":
            pieces += [text[kept : user.end()], "***"]
            kept = end.start()
        # Where no @ comes before the next blank, none comes for any other `://` on the way there.
        at = text.find("://", end.end()) if end is not None else -1
    return "".join([*pieces, text[kept:]])


class Logger:
    """Logs an event by name, with fields."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    @property
    def shows_debug(self) -> bool:
        """Whether debug lines are wanted: ask before gathering what goes into them."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def debug(self, event: str, **fields: Any) -> None:
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Log an error with the traceback of what is being handled."""
        self._log(logging.ERROR, event, fields, exc_info=True)

    def _log(self, level: int, event: str, fields: dict[str, Any], *, exc_info: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", event, extra={"fields": fields}, exc_info=exc_info)


def get_logger(name: str) -> Logger:
    """Return the logger of a module of ours."""
    return Logger(name)


def set_up(level: str, style: str, process: str) -> None:
    """Send all logging to stderr in the chosen style."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(process) if style == "json" else _Text(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # What nobody caught, and Python's own warnings, are lines like any other.
    sys.excepthook = _uncaught
    threading.excepthook = lambda args: _uncaught(args.exc_type, args.exc_value, args.exc_traceback)
    logging.captureWarnings(True)
    # Our lines tell neither thread nor place in the source: the documented way to not have them gathered for each.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - as the logging cookbook has it
    # pika logs each attempt and each lost connection as errors; we say the same, once, in our own words.
    logging.getLogger("pika").setLevel(logging.CRITICAL)


def _uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt | SystemExit) or error is None:
        return
    fields = {"do": "report this"}
    logging.getLogger(__name__).error("unexpected", extra={"fields": fields}, exc_info=(kind, error, trace))


class _Json(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "process": self._process,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return without_secrets(json.dumps(line, default=str))


class _Text(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        shown = " ".join(f"{key}={json.dumps(value, default=str)}" for key, value in fields.items())
        event = _printable(record.getMessage())
        line = f"{_time(record)} {record.levelname.lower():<7} {self._process} {event} {shown}".rstrip()
        if record.exc_info:
            # Marked line by line: an error's text may hold a message's content, line breaks and all.
            trace = self.formatException(record.exc_info)
            line += "".join(f"\n    | {_printable(part)}" for part in trace.splitlines())
        return without_secrets(line)


def _printable(text: str) -> str:
    return text.encode("unicode_escape").decode()


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
