"""The tables of docs/scaling.md, from what `costs` and `scale` measured last."""

import math
import statistics
from typing import NamedTuple

from bench import report
from bench.sizes import ARCHIVE, CLAIM, INDEXES, SCATTERED, STORE, TABLE, WAL

PAGE = report.DOCS / "scaling.md"
EVENT, COMMAND, PUBLISHED = "an event, 1 replica", "a command stored, 1 consumer", "a bare publisher's message"
RATES = (1_000, 100_000, 10_000_000)  # reminders a minute
# What one sidecar is given here, a second: well below what two cores emit, so that a rush finds room.
SIDECAR, PRODUCER, CONSUMER = 10_000, 5_000, 10_000
CONNECTIONS = {"producer": 5, "consumer": 6, "API": 20}
MOST_BUSY = 0.5  # of a core, over the minute


class Cost(NamedTuple):
    """Microseconds of processor time."""

    ours: float
    postgres: float
    rabbitmq: float

    def __str__(self) -> str:
        return f"{self.ours:.0f} | {self.postgres:.0f} | {self.rabbitmq:.0f} | {sum(self):.0f}"


def publish() -> None:
    """Write the tables anew, as far as there is something to write."""
    costs, sizes = report.details("costs"), report.details("sizes")
    if costs:
        found = {what: _cost(costs[f"{what}, one node"]) for what in (EVENT, COMMAND, PUBLISHED)}
        report.put(PAGE, "costs", _costs(found))
        if sizes:
            report.put(PAGE, "arithmetic", _arithmetic(_life(found), sizes["jobs"]))
    if sizes:
        report.put(PAGE, "rows", _rows(sizes))


def _cost(turns: list[list[float]]) -> Cost:
    _, ours, postgres, *nodes = (statistics.median(each) for each in zip(*turns, strict=True))
    return Cost(ours, postgres, sum(nodes))


def _life(found: dict[str, Cost]) -> Cost:
    """Return what a one-shot reminder costs from its host to its host: an event is taken as a command is taken."""
    event, command, published = (found[what] for what in (EVENT, COMMAND, PUBLISHED))
    return Cost(event.ours + command.ours, event.postgres + command.postgres,
                published.rabbitmq + 2 * command.rabbitmq + event.rabbitmq)


def _costs(found: dict[str, Cost]) -> list[str]:
    event, command, published = (found[what] for what in (EVENT, COMMAND, PUBLISHED))
    return [
        "| µs of processor time | our process | Postgres | RabbitMQ | sum |", "| --- | --- | --- | --- | --- |",
        f"| a command is published by its host (its own time left out) | {Cost(0, 0, published.rabbitmq)} |",
        f"| … taken and stored | {command} |",
        f"| an event is emitted | {event} |",
        f"| … and taken by its host, as a command is taken | {Cost(0, 0, command.rabbitmq)} |",
        f"| a one-shot reminder, all of it | {_life(found)} |",
    ]


def _rows(sizes: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    lines = ["| a row, of so many | table | indexes | WAL when it is stored | WAL when it is emitted, or moved on |",
             "| --- | --- | --- | --- | --- |"]
    for kind, costs in sizes.items():
        many = max(costs[TABLE], key=int)

        def span(*names: str, costs: dict[str, dict[str, float]] = costs) -> str:
            found = [value for name in names for value in costs.get(WAL + name, {}).values()]
            return f"{min(found):,.0f} … {max(found):,.0f} B" if found else ""

        lines.append(f"| {kind}, {int(many):,} | {costs[TABLE][many]:,.0f} B | {costs[INDEXES][many]:,.0f} B | "
                     f"{span(STORE)} | {span(CLAIM, SCATTERED, ARCHIVE)} |")
    return lines


def _arithmetic(life: Cost, jobs: dict[str, dict[str, float]]) -> list[str]:
    few, many = (choose(jobs[TABLE], key=int) for choose in (min, max))
    row = jobs[TABLE][many] + jobs[INDEXES][many]
    least = jobs[WAL + STORE][few] + jobs[WAL + CLAIM][few]
    most = jobs[WAL + STORE][many] + jobs[WAL + SCATTERED][many]
    columns = [_column(rate / 60, life, row, least, most) for rate in RATES]
    names = ["reminders a second", "sidecars (a database and a virtual host each)", "producers + consumers, of each sidecar",
             "cores busy: ours + Postgres + RabbitMQ", "cores to have, half busy: ours + Postgres + RabbitMQ",
             "rows a day", "disk for what is finished, 30 days / 7 / 1", "WAL, all pages written lately … none of them",
             "connections to each Postgres, with one API"]
    head = "| | " + " | ".join(f"{rate:,} a minute" for rate in RATES) + " |"
    body = [f"| {name} | " + " | ".join(cells) + " |" for name, cells in zip(names, zip(*columns, strict=True), strict=True)]
    return [head, "|" + " --- |" * (len(RATES) + 1), *body]


def _column(rate: float, life: Cost, row: float, least: float, most: float) -> list[str]:
    sidecars = math.ceil(rate / SIDECAR)
    each = rate / sidecars
    producers, consumers = max(2, math.ceil(each / PRODUCER)), max(2, math.ceil(each / CONSUMER))
    busy = [rate * cost / 1e6 for cost in life]
    connections = producers * CONNECTIONS["producer"] + consumers * CONNECTIONS["consumer"] + CONNECTIONS["API"]
    day = rate * 86400
    return [
        f"{rate:,.0f}", f"{sidecars}", f"{producers} + {consumers}", " + ".join(f"{cores:.2g}" for cores in busy),
        " + ".join(f"{max(1, math.ceil(cores / MOST_BUSY))}" for cores in busy), f"{day / 1e6:,.3g} million" if day < 1e9 else f"{day / 1e9:,.3g} billion",
        " / ".join(_size(day * days * row) for days in (30, 7, 1)), f"{_size(rate * least)}/s … {_size(rate * most)}/s",
        f"{connections}",
    ]


def _size(count: float) -> str:
    power = min(4, int(math.log(max(count, 1), 1000)))
    return f"{count / 1000**power:,.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"
