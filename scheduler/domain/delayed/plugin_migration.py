"""Plan the migration of the plugin's exchanges, from the broker's definitions, to pairs of entry and exit."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from scheduler.domain.names import delay_entry, delay_queue

PLUGIN_TYPE = "x-delayed-message"
TYPES = ("topic", "direct", "fanout", "headers")
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,100}")


class InvalidDefinitions(ValueError):  # noqa: N818 - describes the file
    """The file is not a broker's export."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding of a queue or an exchange to an exchange."""

    source: str
    destination: str
    to_exchange: bool
    routing_key: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        kind = "exchange" if self.to_exchange else "queue"
        arguments = f" {json.dumps(dict(self.arguments), sort_keys=True)}" if self.arguments else ""
        return f"{self.source} → {kind} {self.destination} by {self.routing_key!r}{arguments}"


@dataclass(frozen=True, slots=True)
class ExchangePair:
    """The replacement of one plugin exchange."""

    old: str
    exit: str
    type: str
    bindings: tuple[Binding, ...]  # from the exit, and to the entry
    durable: bool = True
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def entry(self) -> str:
        """The exchange that publishers use."""
        return delay_entry(self.exit)


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """The exchanges to declare, and the problems of exchanges that cannot be migrated."""

    pairs: tuple[ExchangePair, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def setting(self) -> str:
        """The value of SCHEDULER_DELAY_EXCHANGES."""
        return ",".join(f"{pair.exit}:{pair.type}" for pair in self.pairs)

    def as_json(self) -> dict[str, Any]:
        """Return the plan as a JSON object."""
        pairs = [asdict(pair) | {"entry": pair.entry, "queue": delay_queue(pair.exit)} for pair in self.pairs]
        return {"pairs": pairs, "setting": self.setting, "problems": [*self.problems]}

    def lines(self) -> list[str]:
        """Return the plan as lines of text."""
        lines = []
        for pair in self.pairs:
            lines += [
                f"exchange  {pair.exit} ({pair.type}): same type as {pair.old}",
                f"exchange  {pair.entry} (headers, alternate exchange {pair.exit}): the entry",
                f"queue     {delay_queue(pair.exit)}: messages to be stored",
                *(f"binding   {binding}" for binding in pair.bindings),
                f"publisher publishes to {pair.entry} instead of {pair.old}; x-delay is unchanged",
            ]
        if self.pairs:
            lines.append(f"setting   SCHEDULER_DELAY_EXCHANGES={self.setting}")
        return [*lines, *(f"problem   {problem}" for problem in self.problems)]


def vhosts(text: str) -> list[str | None]:
    """Return the virtual hosts that have plugin exchanges; None stands for definitions without vhosts."""
    exchanges = _listed(_read(text), "exchanges")
    names = {_text(exchange, "vhost") for exchange in exchanges if exchange.get("type") == PLUGIN_TYPE}
    return sorted(names, key=lambda name: name or "")


def plan(text: str, vhost: str | None, suffix: str = "") -> MigrationPlan:
    """Return the migration plan of a virtual host; `suffix` is added to the names of exchanges."""
    definitions = _read(text)
    exchanges = [exchange for exchange in _listed(definitions, "exchanges")
                 if exchange.get("type") == PLUGIN_TYPE and _text(exchange, "vhost") == vhost]
    bindings = [binding for binding in _listed(definitions, "bindings") if _text(binding, "vhost") == vhost]
    renamed = {str(exchange.get("name")): f"{exchange.get('name')}{suffix}" for exchange in exchanges}
    pairs: list[ExchangePair] = []
    problems: list[str] = []
    for exchange in exchanges:
        try:
            pairs.append(_pair(exchange, renamed, bindings))
        except ValueError as error:
            problems.append(f"{exchange.get('name')}: {error}")
    return MigrationPlan(tuple(sorted(pairs, key=lambda pair: pair.exit)), tuple(problems))


def _pair(
    exchange: Mapping[str, Any], renamed: Mapping[str, str], bindings: list[Mapping[str, Any]]
) -> ExchangePair:
    old = str(exchange.get("name"))
    name = renamed[old]
    arguments = exchange.get("arguments")
    arguments = dict(arguments) if isinstance(arguments, Mapping) else {}
    kind = arguments.pop("x-delayed-type", None)
    if kind not in TYPES:
        raise ValueError(f"x-delayed-type {kind!r} is not supported; use one of {', '.join(TYPES)}")
    if not _NAME.fullmatch(name) or f"{name}.".startswith(("amq.", "schedule.")):
        raise ValueError("the name is not allowed for an exit; use --suffix")
    own = tuple(binding for given in bindings if (binding := _binding(given, old, renamed)) is not None)
    return ExchangePair(old, name, kind, own, bool(exchange.get("durable", True)), arguments)


def _binding(given: Mapping[str, Any], old: str, renamed: Mapping[str, str]) -> Binding | None:
    """Return the migrated binding, if it belongs to this exchange."""
    source, destination = str(given.get("source", "")), str(given.get("destination", ""))
    to_exchange = given.get("destination_type") == "exchange"
    if to_exchange and destination in renamed:
        # List a binding between two plugin exchanges once, at its source.
        if source != old and (destination != old or source in renamed):
            return None
        destination = delay_entry(renamed[destination])
    elif source != old:
        return None
    arguments = given.get("arguments")
    return Binding(renamed.get(source, source), destination, to_exchange, str(given.get("routing_key", "")),
                   dict(arguments) if isinstance(arguments, Mapping) else {})


def _read(text: str) -> Mapping[str, Any]:
    try:
        definitions = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidDefinitions(f"the file is not JSON: {error}") from None
    if not isinstance(definitions, dict) or not isinstance(definitions.get("exchanges"), list):
        raise InvalidDefinitions("the file has no exchanges; create it with `rabbitmqctl export_definitions FILE`")
    return definitions


def _listed(definitions: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    items = definitions.get(name, [])
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def _text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    return value if isinstance(value, str) else None
