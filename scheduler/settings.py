"""The only reader of the environment."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scheduler.domain.database_url import DEFAULT_SCHEMA, DatabaseUrl
from scheduler.domain.errors import Misconfigured
from scheduler.domain.instants import parse_instant
from scheduler.domain.names import COMMAND_VARIABLES
from scheduler.domain.recurrence import zone_data
from scheduler.domain.recurrence.zone_data import ZoneData
from scheduler.domain.targets.pools import DEFAULT_POOL, POOL_PATTERN
from scheduler.domain.targets.urls import check_url

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

_ORIGIN = re.compile(r"https?://(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?", re.ASCII)
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_SCHEMA = re.compile(r"(?!pg_|information_schema$)[a-z0-9_]{1,63}")
_MAX_NAME = 255  # bytes, of anything in AMQP
_POOL = re.compile(POOL_PATTERN)
_MAX_POOLS = 20
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


def _schema(text: str) -> str:
    if not _SCHEMA.fullmatch(text):
        raise ValueError("must be the name of a Postgres schema: 1 to 63 characters of a-z, 0-9 and _, not one of "
                         "Postgres's own")
    return text


def _amqp_urls(text: str) -> tuple[str, ...]:
    urls = tuple(part.strip() for part in text.split(","))
    for url in urls:
        try:
            parts = urlsplit(url)
            valid = parts.scheme in ("amqp", "amqps") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            valid = False
        # An unencoded character splits the password: the rest would be parsed as the host.
        if not valid or "@" in f"{parts.path}{parts.query}" or parts.fragment:
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
        valid = parts.scheme == "http" and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"must be http://host:port, or http://user:password@host:port; {_ENCODE}")
    return text


def _http_url(text: str) -> str:
    check_url(text)
    if "{{" in text:
        raise ValueError("must not contain placeholders")
    return text


def _origins(text: str) -> tuple[str, ...]:
    """Parse origins as browsers send them: in lower case and without a default port."""
    origins = tuple(part.lower() for part in _words(text))
    if not origins or not all(_ORIGIN.fullmatch(origin) for origin in origins):
        raise ValueError("must be origins such as https://app.example.com or http://localhost:3000, with commas "
                         "between, without a path; * is not allowed")
    return tuple(origin.removesuffix(_DEFAULT_PORTS[origin.partition(":")[0]]) for origin in origins)


def _role_map(text: str) -> tuple[tuple[str, str], ...]:
    """Parse pairs of a claim's value and a role."""
    pairs = [tuple(word.strip() for word in part.rpartition("=")[::2]) for part in _words(text)]
    if not pairs or not all(group and role for group, role in pairs):
        raise ValueError("must be GROUP=ROLE, or several with commas between")
    return tuple((group, role) for group, role in pairs)


def _queue_patterns(text: str) -> tuple[str, ...]:
    """Parse queue name patterns with * as a wildcard."""
    words = _words(text)
    if not words or any(len(word.encode()) > _MAX_NAME or not word.isprintable() for word in words):
        raise ValueError(f"must be names of queues with commas between, at most {_MAX_NAME} bytes each; "
                         "* stands for any characters")
    return words


def _instant(text: str) -> float:
    """Parse an RFC 3339 instant to Unix seconds."""
    return parse_instant(text).timestamp()


@cache  # a process reads it once
def _zone_data(text: str) -> ZoneData:
    path = Path(text)
    if not path.is_dir():
        raise ValueError("must be a directory of compiled zone files")
    return zone_data.read_directory(path)


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _pools(text: str) -> tuple[str, ...]:
    """Parse the names of pools."""
    pools = tuple(dict.fromkeys(_words(text)))
    if not 1 <= len(pools) <= _MAX_POOLS or not all(_POOL.fullmatch(pool) for pool in pools):
        raise ValueError(f"must be 1 to {_MAX_POOLS} pools with commas between; a pool has 1 to 100 of "
                         "A-Z a-z 0-9 _ -")
    return pools


def _setting(name: str, default: Any, read: Callable[[str], Any], *, secret: bool = False) -> Any:
    return field(default=default, metadata={"name": name, "read": read, "secret": secret})


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, validated and typed, with the contract's defaults."""

    database_url: str = _setting(
        "DATABASE_URL", "postgresql://localhost/scheduler", _database_url, secret=True
    )
    database_read_url: str | None = _setting("DATABASE_READ_URL", None, _database_url, secret=True)
    database_read_max_lag: int = _setting("DATABASE_READ_MAX_LAG", 10, _number(1, 3600))
    schema: str = _setting("SCHEDULER_SCHEMA", DEFAULT_SCHEMA, _schema)
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
    cors_origins: tuple[str, ...] = _setting("SCHEDULER_CORS_ORIGINS", (), _origins)
    api_connections: int = _setting("SCHEDULER_API_CONNECTIONS", 8, _number(1, 200))
    jwt_key: str | None = _setting("SCHEDULER_JWT_KEY", None, str, secret=True)
    jwks_file: str | None = _setting("SCHEDULER_JWKS_FILE", None, str)
    jwks_url: str | None = _setting("SCHEDULER_JWKS_URL", None, str)
    jwt_issuer: str | None = _setting("SCHEDULER_JWT_ISSUER", None, str)
    jwt_audience: str | None = _setting("SCHEDULER_JWT_AUDIENCE", None, str)
    jwt_not_before: float | None = _setting("SCHEDULER_JWT_NOT_BEFORE", None, _instant)
    oidc_issuer: str | None = _setting("SCHEDULER_OIDC_ISSUER", None, str)
    oidc_client_id: str | None = _setting("SCHEDULER_OIDC_CLIENT_ID", None, str)
    oidc_client_secret: str | None = _setting("SCHEDULER_OIDC_CLIENT_SECRET", None, str, secret=True)
    oidc_role_claim: str = _setting("SCHEDULER_OIDC_ROLE_CLAIM", "role", str)
    oidc_tenant_claim: str | None = _setting("SCHEDULER_OIDC_TENANT_CLAIM", None, str)  # None: `tenant`, optional
    oidc_role_map: tuple[tuple[str, str], ...] = _setting("SCHEDULER_OIDC_ROLE_MAP", (), _role_map)
    oidc_redirect_url: str | None = _setting("SCHEDULER_OIDC_REDIRECT_URL", None, str)
    webhook_allow: tuple[str, ...] = _setting("SCHEDULER_WEBHOOK_ALLOW", (), _words)
    webhook_secrets_file: str | None = _setting("SCHEDULER_WEBHOOK_SECRETS_FILE", None, str)
    webhook_proxy: str | None = _setting("SCHEDULER_WEBHOOK_PROXY", None, _proxy_url, secret=True)
    webhook_host_concurrency: int = _setting("SCHEDULER_WEBHOOK_HOST_CONCURRENCY", 20, _number(1, 10_000))
    worker_concurrency: int = _setting("SCHEDULER_WORKER_CONCURRENCY", 200, _number(1, 10_000))
    worker_pools: tuple[str, ...] = _setting("SCHEDULER_WORKER_POOLS", (DEFAULT_POOL,), _pools)
    commands_file: str | None = _setting("SCHEDULER_COMMANDS_FILE", None, str)
    stop_grace: int = _setting("SCHEDULER_STOP_GRACE", 30, _number(0, 86_400))
    notify_webhook: str | None = _setting("SCHEDULER_NOTIFY_WEBHOOK", None, _http_url, secret=True)
    notify_secret: str | None = _setting("SCHEDULER_NOTIFY_SECRET", None, str, secret=True)
    zoneinfo_dir: str | None = _setting("SCHEDULER_ZONEINFO_DIR", None, lambda text: _zone_data(text).source)
    retention_days: int = _setting("SCHEDULER_RETENTION_DAYS", 30, _number(0, 36_500))

    def __post_init__(self) -> None:
        """Put the schema into the URL of every connection."""
        object.__setattr__(self, "database_url", DatabaseUrl(self.database_url, self.schema))
        if self.database_read_url is not None:
            object.__setattr__(self, "database_read_url", DatabaseUrl(self.database_read_url, self.schema))


def use_zone_data(environment: Mapping[str, str]) -> None:
    """Use the zone data that the environment names, before any schedule is read; raises Misconfigured."""
    path = environment.get("SCHEDULER_ZONEINFO_DIR")
    if path:
        try:
            zone_data.use(_zone_data(path))
        except ValueError as error:
            raise Misconfigured(f"SCHEDULER_ZONEINFO_DIR {error}, not {path!r}") from None


def load(environment: Mapping[str, str]) -> Settings:
    """Parse the settings; raises Misconfigured with every mistake, but no secret."""
    values: dict[str, Any] = {}
    mistakes: list[str] = []
    known: set[str] = set()
    for setting in fields(Settings):
        name, secret = setting.metadata["name"], setting.metadata["secret"]
        known |= {name, f"{name}_FILE"} if secret else {name}
        try:
            text = _text(environment, name, secret=secret)
            if text is not None:
                values[setting.name] = setting.metadata["read"](text)
        except ValueError as error:
            shown = "" if secret else f", not {text!r}" if text is not None else ""
            mistakes.append(f"{name} {error}{shown}")
    mistakes.extend(
        f"{name} was removed; {_REMOVED[name]}" if name in _REMOVED else
        f"{name} is not a setting; {_expected(name, known)}"
        for name in sorted(environment)
        if name.startswith("SCHEDULER_") and name not in known and name not in COMMAND_VARIABLES
    )
    if mistakes:
        raise Misconfigured("; ".join(mistakes))
    return Settings(**values)


def _expected(name: str, known: Collection[str]) -> str:
    if similar := get_close_matches(name, known, 1, 0.75):
        return f"did you mean {similar[0]}?"
    return f"expected one of {', '.join(sorted(other for other in known if other.startswith('SCHEDULER_')))}"


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
