"""From the plugin's exchanges, as the broker's definitions list them, to pairs of entry and exit."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from scheduler.domain.names import delay_entry, delay_queue

PLUGIN_TYPE = "x-delayed-message"
TYPES = ("topic", "direct", "fanout", "headers")
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,100}")


class InvalidDefinitions(ValueError):  # noqa: N818 - a verdict, not an accident
    """The file is not what a broker exports."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A queue or an exchange that gets messages from an exchange."""

    source: str
    destination: str
    to_exchange: bool
    routing_key: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        kind = "exchange" if self.to_exchange else "queue"
        said = f" {json.dumps(dict(self.arguments), sort_keys=True)}" if self.arguments else ""
        return f"{self.source} → {kind} {self.destination} by {self.routing_key!r}{said}"


@dataclass(frozen=True, slots=True)
class ExchangePair:
    """What takes the place of one exchange of the plugin."""

    old: str
    exit: str
    type: str
    bindings: tuple[Binding, ...]  # from the exit, and to the entry
    durable: bool = True
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def entry(self) -> str:
        """Where publishers publish."""
        return delay_entry(self.exit)


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """What to declare, and of what it cannot be done, with why."""

    pairs: tuple[ExchangePair, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def setting(self) -> str:
        """The value of SCHEDULER_DELAY_EXCHANGES."""
        return ",".join(f"{each.exit}:{each.type}" for each in self.pairs)

    def as_json(self) -> dict[str, Any]:
        """Return it for machines."""
        pairs = [asdict(pair) | {"entry": pair.entry, "queue": delay_queue(pair.exit)} for pair in self.pairs]
        return {"pairs": pairs, "setting": self.setting, "problems": [*self.problems]}

    def lines(self) -> list[str]:
        """Say it all, one line each."""
        said = []
        for pair in self.pairs:
            said += [
                f"exchange  {pair.exit} ({pair.type}): what was {pair.old}'s own kind",
                f"exchange  {pair.entry} (headers, alternate exchange {pair.exit}): the entry",
                f"queue     {delay_queue(pair.exit)}: what waits to be stored",
                *(f"binding   {each}" for each in pair.bindings),
                f"publisher publishes to {pair.entry} instead of {pair.old}; x-delay stays as it is",
            ]
        if self.pairs:
            said.append(f"setting   SCHEDULER_DELAY_EXCHANGES={self.setting}")
        return [*said, *(f"problem   {each}" for each in self.problems)]


def vhosts(text: str) -> list[str | None]:
    """Return the virtual hosts in which the definitions have exchanges of the plugin; None where none is named."""
    found = {_text(each, "vhost") for each in _listed(_read(text), "exchanges") if each.get("type") == PLUGIN_TYPE}
    return sorted(found, key=lambda each: each or "")


def plan(text: str, vhost: str | None, suffix: str = "") -> MigrationPlan:
    """Return what takes the place of the plugin's exchanges in a virtual host; `suffix` is added to names."""
    definitions = _read(text)
    ours = [each for each in _listed(definitions, "exchanges")
            if each.get("type") == PLUGIN_TYPE and _text(each, "vhost") == vhost]
    bindings = [each for each in _listed(definitions, "bindings") if _text(each, "vhost") == vhost]
    renamed = {str(each.get("name")): f"{each.get('name')}{suffix}" for each in ours}
    pairs: list[ExchangePair] = []
    problems: list[str] = []
    for exchange in ours:
        try:
            pairs.append(_pair(exchange, renamed, bindings))
        except ValueError as error:
            problems.append(f"{exchange.get('name')}: {error}")
    return MigrationPlan(tuple(sorted(pairs, key=lambda each: each.exit)), tuple(problems))


def _pair(
    exchange: Mapping[str, Any], renamed: Mapping[str, str], bindings: list[Mapping[str, Any]]
) -> ExchangePair:
    old = str(exchange.get("name"))
    name = renamed[old]
    arguments = exchange.get("arguments")
    arguments = dict(arguments) if isinstance(arguments, Mapping) else {}
    kind = arguments.pop("x-delayed-type", None)
    if kind not in TYPES:
        raise ValueError(f"its x-delayed-type is {kind!r}; only {', '.join(TYPES)} can be an exit")
    if not _NAME.fullmatch(name) or f"{name}.".startswith(("amq.", "schedule.")):
        raise ValueError("its name cannot be an exit's; try --suffix")
    own = tuple(binding for each in bindings if (binding := _binding(each, old, renamed)) is not None)
    return ExchangePair(old, name, kind, own, bool(exchange.get("durable", True)), arguments)


def _binding(given: Mapping[str, Any], old: str, renamed: Mapping[str, str]) -> Binding | None:
    """Return a binding as it is to be, if it is one of this exchange's."""
    source, destination = str(given.get("source", "")), str(given.get("destination", ""))
    to_exchange = given.get("destination_type") == "exchange"
    if to_exchange and destination in renamed:
        # What comes from another of the plugin's exchanges is told of once, where it comes from.
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
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidDefinitions(f"it is not JSON: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("exchanges"), list):
        raise InvalidDefinitions("it has no list of exchanges: make it with `rabbitmqctl export_definitions FILE`")
    return found


def _listed(definitions: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = definitions.get(name, [])
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _text(given: Mapping[str, Any], name: str) -> str | None:
    found = given.get(name)
    return found if isinstance(found, str) else None
