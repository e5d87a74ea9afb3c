"""The only reader of the environment."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scheduler.domain.errors import Misconfigured
from scheduler.domain.instants import parse_instant
from scheduler.domain.names import COMMAND_VARIABLES

QUEUE_TYPES = ("quorum", "classic", "default")
HISTORIES = ("tracked", "all")
TENANT_BY = ("field", "user_id")
TENANT_ROUTES = ("any", "prefix")
EXCHANGE_TYPES = ("topic", "direct", "fanout", "headers")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("json", "text")
_REMOVED = {"SCHEDULER_API_PROCESSES": "run several `scheduler api` behind a load balancer"}


_ENCODE = "in a password write @ / ? # % as %40 %2F %3F %23 %25"
# libpq's error messages quote invalid text, which may be part of the password.
_TEXT = r"(?:[^@:/?#%\s]|%[0-9A-Fa-f]{2})*"
_HIDDEN = r"(?:[^@/%\s]|%[0-9A-Fa-f]{2})*"
_PLACE = rf"(?:\[[0-9A-Fa-f:.%]+\]|{_TEXT})(?::[0-9]*)?"
_DATABASE_URL = re.compile(
    rf"postgres(?:ql)?://(?:{_TEXT}(?::{_HIDDEN})?@)?(?:{_PLACE}(?:,{_PLACE})*)?(?:/{_TEXT})?(?:\?[^#@\s]*)?"
)

_LONGEST_NAME = 255  # bytes, of anything in AMQP
_EXCHANGE = re.compile(r"[A-Za-z0-9_.:-]{1,100}")


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        word = text.lower()
        if word not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return word

    return read


def _number(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not low <= int(text) <= high:
            raise ValueError(f"must be a whole number from {low:,} to {high:,}")
        return int(text)

    return read


def _database_url(text: str) -> str:
    if not text.startswith(("postgresql://", "postgres://")):
        raise ValueError("must start with postgresql://")
    if not _DATABASE_URL.fullmatch(text):
        raise ValueError(f"must be postgresql://user:password@host:port/database; {_ENCODE}")
    return text


def _amqp_urls(text: str) -> tuple[str, ...]:
    urls = tuple(part.strip() for part in text.split(","))
    for url in urls:
        try:
            parts = urlsplit(url)
            known = parts.scheme in ("amqp", "amqps") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            known = False
        # An unencoded character splits the password: the rest would be parsed as the host.
        if not known or "@" in f"{parts.path}{parts.query}" or parts.fragment:
            raise ValueError(
                f"must be an amqp:// or amqps:// URL with a host, or several with commas between; {_ENCODE}"
            )
    return urls


def _delay_exchanges(text: str) -> tuple[tuple[str, str], ...]:
    """Parse pairs of entry and exit: `orders:topic` is the entry orders.delay and the exit orders."""
    pairs = []
    for part in text.split(","):
        name, _, kind = part.strip().rpartition(":")
        ours = f"{name}.".startswith(("amq.", "schedule."))
        if ours or not _EXCHANGE.fullmatch(name) or kind not in EXCHANGE_TYPES:
            raise ValueError(f"must be NAME:TYPE, or several with commas between; a type is one of "
                             f"{', '.join(EXCHANGE_TYPES)}, and no name is or begins with amq. or schedule.")
        pairs.append((name, kind))
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("names an exchange twice")
    return tuple(pairs)


def _proxy_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        known = parts.scheme == "http" and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        known = False
    if not known or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"must be http://host:port, or http://user:password@host:port; {_ENCODE}")
    return text


def _queue_patterns(text: str) -> tuple[str, ...]:
    """Parse queue name patterns with * as a wildcard."""
    found = _words(text)
    if not found or any(len(each.encode()) > _LONGEST_NAME or not each.isprintable() for each in found):
        raise ValueError(f"must be names of queues with commas between, at most {_LONGEST_NAME} bytes each; "
                         "* stands for any characters")
    return found


def _instant(text: str) -> float:
    """Parse an RFC 3339 instant to Unix seconds."""
    return parse_instant(text).timestamp()


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _setting(name: str, default: Any, read: Callable[[str], Any], *, secret: bool = False) -> Any:
    return field(default=default, metadata={"name": name, "read": read, "secret": secret})


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, validated and typed, with the contract's defaults."""

    database_url: str = _setting(
        "DATABASE_URL", "postgresql://localhost/scheduler", _database_url, secret=True
    )
    amqp_urls: tuple[str, ...] = _setting(
        "AMQP_URL", ("amqp://guest:guest@localhost:5672/%2F",), _amqp_urls, secret=True
    )
    metrics_host: str = _setting("METRICS_HOST", "0.0.0.0", str)  # noqa: S104 - scraped from other hosts
    metrics_port: int = _setting("METRICS_PORT", 8000, _number(0, 65535))
    log_level: str = _setting("LOG_LEVEL", "info", _one_of(*LOG_LEVELS))
    log_format: str = _setting("LOG_FORMAT", "json", _one_of(*LOG_FORMATS))
    poll_interval_ms: int = _setting("SCHEDULER_POLL_INTERVAL_MS", 500, _number(10, 60_000))
    batch_size: int = _setting("SCHEDULER_BATCH_SIZE", 500, _number(1, 10_000))
    prefetch: int = _setting("SCHEDULER_PREFETCH", 4000, _number(1, 65_535))
    queue_type: str = _setting("SCHEDULER_QUEUE_TYPE", "quorum", _one_of(*QUEUE_TYPES))
    due_queue_type: str = _setting("SCHEDULER_DUE_QUEUE_TYPE", "default", _one_of(*QUEUE_TYPES))
    max_payload_bytes: int = _setting("SCHEDULER_MAX_PAYLOAD_BYTES", 262_144, _number(2, 100_000_000))
    history: str = _setting("SCHEDULER_HISTORY", "tracked", _one_of(*HISTORIES))
    tenant_by: str = _setting("SCHEDULER_TENANT_BY", "field", _one_of(*TENANT_BY))
    tenant_routes: str = _setting("SCHEDULER_TENANT_ROUTES", "any", _one_of(*TENANT_ROUTES))
    reply_queues: tuple[str, ...] = _setting("SCHEDULER_REPLY_QUEUES", (), _queue_patterns)
    worker_users: tuple[str, ...] = _setting("SCHEDULER_WORKER_USERS", (), _words)
    delay_exchanges: tuple[tuple[str, str], ...] = _setting("SCHEDULER_DELAY_EXCHANGES", (), _delay_exchanges)
    api_host: str = _setting("API_HOST", "127.0.0.1", str)
    api_port: int = _setting("API_PORT", 8080, _number(0, 65535))
    api_rate: int = _setting("SCHEDULER_API_RATE", 50, _number(1, 1_000_000))
    api_connections: int = _setting("SCHEDULER_API_CONNECTIONS", 8, _number(1, 200))
    jwt_key: str | None = _setting("SCHEDULER_JWT_KEY", None, str, secret=True)
    jwks_file: str | None = _setting("SCHEDULER_JWKS_FILE", None, str)
    jwks_url: str | None = _setting("SCHEDULER_JWKS_URL", None, str)
    jwt_issuer: str | None = _setting("SCHEDULER_JWT_ISSUER", None, str)
    jwt_audience: str | None = _setting("SCHEDULER_JWT_AUDIENCE", None, str)
    jwt_not_before: float | None = _setting("SCHEDULER_JWT_NOT_BEFORE", None, _instant)
    webhook_allow: tuple[str, ...] = _setting("SCHEDULER_WEBHOOK_ALLOW", (), _words)
    webhook_secrets_file: str | None = _setting("SCHEDULER_WEBHOOK_SECRETS_FILE", None, str)
    webhook_proxy: str | None = _setting("SCHEDULER_WEBHOOK_PROXY", None, _proxy_url, secret=True)
    webhook_host_concurrency: int = _setting("SCHEDULER_WEBHOOK_HOST_CONCURRENCY", 20, _number(1, 10_000))
    worker_concurrency: int = _setting("SCHEDULER_WORKER_CONCURRENCY", 200, _number(1, 10_000))
    commands_file: str | None = _setting("SCHEDULER_COMMANDS_FILE", None, str)
    stop_grace: int = _setting("SCHEDULER_STOP_GRACE", 30, _number(0, 86_400))
    retention_days: int = _setting("SCHEDULER_RETENTION_DAYS", 30, _number(0, 36_500))


def load(environment: Mapping[str, str]) -> Settings:
    """Parse the settings; raises Misconfigured with every mistake, but no secret."""
    values: dict[str, Any] = {}
    mistakes: list[str] = []
    known: set[str] = set()
    for each in fields(Settings):
        name, secret = each.metadata["name"], each.metadata["secret"]
        known |= {name, f"{name}_FILE"} if secret else {name}
        try:
            text = _text(environment, name, secret=secret)
            if text is not None:
                values[each.name] = each.metadata["read"](text)
        except ValueError as error:
            shown = "" if secret else f", not {text!r}" if text is not None else ""
            mistakes.append(f"{name} {error}{shown}")
    mistakes.extend(
        f"{name} was removed; {_REMOVED[name]}" if name in _REMOVED else
        f"{name} is not a setting; expected one of {', '.join(sorted(n for n in known if n[:4] == 'SCHE'))}"
        for name in sorted(environment)
        if name.startswith("SCHEDULER_") and name not in known and name not in COMMAND_VARIABLES
    )
    if mistakes:
        raise Misconfigured("; ".join(mistakes))
    return Settings(**values)


def _text(environment: Mapping[str, str], name: str, *, secret: bool) -> str | None:
    """Return the variable's text, or for a secret the contents of the file that NAME_FILE names."""
    text = environment.get(name) or None
    path = environment.get(f"{name}_FILE") if secret else None
    if not path:
        return text
    if text is not None:
        raise ValueError(f"and {name}_FILE are both set; keep one")
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot be read from {name}_FILE: {error}") from None
