"""Log to stderr, one JSON object or text line per event; message content cannot forge a line."""

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
    if "://" in text:  # much cheaper than the patterns
        text = _without_passwords(text)
    return _PASSWORD.sub(r"\1***", text) if "password" in text.lower() else text


def _without_passwords(text: str) -> str:
    """Hide the text between `://user:` and `@`, in time linear in its length."""
    pieces, start, at = [], 0, text.find("://")
    while at >= 0:
        user = _USER(text, at + 3)
        if user is None:
            at = text.find("://", at + 3)
            continue
        end = _END(text, user.end())
        if end is not None and end[0] == "@":
            pieces += [text[start : user.end()], "***"]
            start = end.start()
        # If there is no @ before the next blank, there is none for any `://` between.
        at = text.find("://", end.end()) if end is not None else -1
    return "".join([*pieces, text[start:]])


class Logger:
    """Logs an event by name, with fields."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    @property
    def shows_debug(self) -> bool:
        """Whether debug lines are logged: check before computing expensive fields."""
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
        """Log an error with the current traceback."""
        self._log(logging.ERROR, event, fields, exc_info=True)

    def _log(self, level: int, event: str, fields: dict[str, Any], *, exc_info: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", event, extra={"fields": fields}, exc_info=exc_info)


def get_logger(name: str) -> Logger:
    """Return a module's logger."""
    return Logger(name)


def set_up(level: str, style: str, process: str) -> None:
    """Send all logging to stderr in the chosen style."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(process) if style == "json" else _Text(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Uncaught exceptions and Python's warnings become log lines too.
    sys.excepthook = _uncaught
    threading.excepthook = lambda args: _uncaught(args.exc_type, args.exc_value, args.exc_traceback)
    logging.captureWarnings(True)
    # Our lines have neither thread nor source position: this is the documented way not to collect them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - from the logging cookbook
    # pika logs each attempt and each lost connection as errors; we log both ourselves, once.
    logging.getLogger("pika").setLevel(logging.CRITICAL)


def _uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt | SystemExit) or error is None:
        return
    fields = {"do": "report this"}
    logging.getLogger(__name__).error("unexpected error", extra={"fields": fields}, exc_info=(kind, error, trace))


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
        rendered = " ".join(f"{key}={json.dumps(value, default=str)}" for key, value in fields.items())
        event = _printable(record.getMessage())
        line = f"{_time(record)} {record.levelname.lower():<7} {self._process} {event} {rendered}".rstrip()
        if record.exc_info:
            # Mark each line: an error text may contain line breaks from a message.
            trace = self.formatException(record.exc_info)
            line += "".join(f"\n    | {_printable(part)}" for part in trace.splitlines())
        return without_secrets(line)


def _printable(text: str) -> str:
    return text.encode("unicode_escape").decode()


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
