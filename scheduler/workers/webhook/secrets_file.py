"""Parse the operator's secrets file."""

import base64
import binascii
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from scheduler.domain.errors import Misconfigured
from scheduler.domain.targets.allow_list import AllowList
from scheduler.domain.targets.urls import endpoint, host_name
from scheduler.workers.tenant_filter import DEFAULT_TENANTS, includes, read_tenants

SETTING = "SCHEDULER_WEBHOOK_SECRETS_FILE"
PREFIX = "whsec_"
SIGN, HEADER = "sign", "header"
_LINE = re.compile(r" \(at (line \d+, column \d+|end of document)\)$")
_HTTPS = "https://"
_HTTPS_PORT = 443
_KEYS = ("value", "tenants", "hosts", "use")


@dataclass(frozen=True, slots=True)
class Secret:
    """One secret of the file."""

    values: tuple[str, ...]  # newest first
    use: frozenset[str]
    tenants: frozenset[str] = DEFAULT_TENANTS
    hosts: "tuple[SecretHosts, ...] | None" = None  # None: any host

    def allows(self, use: str, tenant: str, url: str) -> bool:
        """Return whether a job of this tenant may use the secret in this way in a call to this URL."""
        allowed = use in self.use and includes(self.tenants, tenant)
        return allowed and (self.hosts is None or any(hosts.match(url) for hosts in self.hosts))


@dataclass(frozen=True, slots=True)
class SecretHosts:
    """One entry of `hosts`: a host pattern, and with `https://` also the port."""

    pattern: AllowList
    https_port: int | None = None  # None: http and https, any port

    @classmethod
    def parse(cls, entry: str) -> Self:
        """Parse `api.example.org` or `https://api.example.org:8443`. Raises ValueError."""
        if not entry.startswith(_HTTPS):
            return cls(AllowList.parse([entry]))
        parts = urlsplit(entry)
        if parts.netloc != entry.removeprefix(_HTTPS):
            raise ValueError(f"{entry!r} must end after the host and the port")
        return cls(AllowList.parse([parts.hostname or ""]), parts.port or _HTTPS_PORT)

    def match(self, url: str) -> bool:
        """Return whether a URL matches. An address or a range matches only a host written as an address."""
        host = host_name(url)
        if self.https_port is not None and not (
            url.startswith(_HTTPS) and endpoint(url).endswith(f":{self.https_port}")
        ):
            return False
        try:
            return self.pattern.allows_address(ip_address(host))
        except ValueError:
            return self.pattern.allows_name(host)


def read_secrets(path: Path) -> Mapping[str, Secret]:
    """Return the secrets by name. Raises Misconfigured, without quoting a value."""
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{SETTING}: {path} cannot be read: {type(error).__name__}") from None
    except tomllib.TOMLDecodeError as error:
        # The message may quote a part of a secret; the position does not.
        position = _LINE.search(str(error))
        suffix = f" ({position[1]})" if position else ""
        raise Misconfigured(f"{SETTING}: {path} is invalid TOML{suffix}") from None
    return {name: _secret(name, entry) for name, entry in entries.items()}


def signing_key(value: str) -> bytes | None:
    """Return the key of a `whsec_` value; None if the value is not a key."""
    if not value.startswith(PREFIX):
        return None
    try:
        return base64.b64decode(value.removeprefix(PREFIX), validate=True) or None
    except (binascii.Error, ValueError):
        return None


def _secret(name: str, entry: Any) -> Secret:
    table = entry if isinstance(entry, dict) else {"value": entry}
    unknown = next((key for key in table if key not in _KEYS), None)
    if unknown is not None:
        raise Misconfigured(f"{SETTING}: {name}: {unknown!r} is unknown; the keys are {', '.join(_KEYS)}")
    values = _values(name, table.get("value"))
    fields: dict[str, Any] = {}
    for key, read in _READ.items():
        if key in table:
            try:
                fields[key] = read(table[key])
            except ValueError as error:
                raise Misconfigured(f"{SETTING}: {name}: {key} {error}") from None
    use = fields.setdefault("use", frozenset({SIGN if values[0].startswith(PREFIX) else HEADER}))
    if SIGN in use and any(signing_key(value) is None for value in values):
        raise Misconfigured(f"{SETTING}: {name} cannot sign: a value must be {PREFIX} followed by base64")
    return Secret(values, **fields)


def _values(name: str, value: Any) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not values or not all(isinstance(item, str) and item for item in values):
        raise Misconfigured(f"{SETTING}: {name} must be a string, a list of strings with the newest first, or a "
                            "table with such a `value`")
    return tuple(values)


def _strings(value: Any) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise ValueError("must be a non-empty list of strings")
    return value


def _hosts(value: Any) -> tuple[SecretHosts, ...]:
    return tuple(SecretHosts.parse(entry) for entry in _strings(value))


def _use(value: Any) -> frozenset[str]:
    uses = frozenset(_strings(value))
    if not uses <= {SIGN, HEADER}:
        raise ValueError(f'must be a list of "{SIGN}" and "{HEADER}"')
    return uses


_READ: dict[str, Callable[[Any], Any]] = {
    "tenants": read_tenants, "hosts": _hosts, "use": _use,
}
