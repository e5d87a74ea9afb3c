"""Write the tables in docs/scaling.md from the last results of `costs` and `scale`."""

import math
import statistics
from typing import NamedTuple

from bench import report
from bench.sizes import ARCHIVE, CLAIM, INDEXES, SCATTERED, STORE, TABLE, WAL

PAGE = report.DOCS / "scaling.md"
EVENT, COMMAND, PUBLISHED = "an event, 1 replica", "a command stored, 1 consumer", "a bare publisher's message"
RATES = (1_000, 100_000, 10_000_000)  # reminders per minute
# Assumed load per second: well below the rate that two cores emit, to leave headroom for peaks.
SIDECAR, PRODUCER, CONSUMER = 10_000, 5_000, 10_000
CONNECTIONS = {"producer": 5, "consumer": 6, "API": 20}
MAX_BUSY = 0.5  # of a core, over the minute


class Cost(NamedTuple):
    """Microseconds of processor time."""

    ours: float
    postgres: float
    rabbitmq: float

    def __str__(self) -> str:
        return f"{self.ours:.0f} | {self.postgres:.0f} | {self.rabbitmq:.0f} | {sum(self):.0f}"


def publish() -> None:
    """Rewrite the tables whose results exist."""
    costs, sizes = report.details("costs"), report.details("sizes")
    if costs:
        cost_of = {kind: _cost(costs[f"{kind}, one node"]) for kind in (EVENT, COMMAND, PUBLISHED)}
        report.put(PAGE, "costs", _costs(cost_of))
        if sizes:
            report.put(PAGE, "arithmetic", _arithmetic(_life(cost_of), sizes["jobs"]))
    if sizes:
        report.put(PAGE, "rows", _rows(sizes))


def _cost(rounds: list[list[float]]) -> Cost:
    _, ours, postgres, *nodes = (statistics.median(column) for column in zip(*rounds, strict=True))
    return Cost(ours, postgres, sum(nodes))


def _life(cost_of: dict[str, Cost]) -> Cost:
    """Return the total cost of a one-shot reminder. Consuming an event costs as much as consuming a command."""
    event, command, published = (cost_of[kind] for kind in (EVENT, COMMAND, PUBLISHED))
    return Cost(event.ours + command.ours, event.postgres + command.postgres,
                published.rabbitmq + 2 * command.rabbitmq + event.rabbitmq)


def _costs(cost_of: dict[str, Cost]) -> list[str]:
    event, command, published = (cost_of[kind] for kind in (EVENT, COMMAND, PUBLISHED))
    return [
        "| µs of processor time | our process | Postgres | RabbitMQ | sum |", "| --- | --- | --- | --- | --- |",
        f"| the host publishes a command (without the host's own time) | {Cost(0, 0, published.rabbitmq)} |",
        f"| … a consumer stores it | {command} |",
        f"| a producer emits an event | {event} |",
        f"| … the host consumes it (same cost as consuming a command) | {Cost(0, 0, command.rabbitmq)} |",
        f"| total for a one-shot reminder | {_life(cost_of)} |",
    ]


def _rows(sizes: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    lines = ["| per row, of N rows | table | indexes | WAL to store it | WAL to emit or move it |",
             "| --- | --- | --- | --- | --- |"]
    for kind, costs in sizes.items():
        many = max(costs[TABLE], key=int)

        def span(*names: str, costs: dict[str, dict[str, float]] = costs) -> str:
            values = [value for name in names for value in costs.get(WAL + name, {}).values()]
            return f"{min(values):,.0f} … {max(values):,.0f} B" if values else ""

        lines.append(f"| {kind}, {int(many):,} | {costs[TABLE][many]:,.0f} B | {costs[INDEXES][many]:,.0f} B | "
                     f"{span(STORE)} | {span(CLAIM, SCATTERED, ARCHIVE)} |")
    return lines


def _arithmetic(life: Cost, jobs: dict[str, dict[str, float]]) -> list[str]:
    smallest, many = (choose(jobs[TABLE], key=int) for choose in (min, max))
    row = jobs[TABLE][many] + jobs[INDEXES][many]
    least = jobs[WAL + STORE][smallest] + jobs[WAL + CLAIM][smallest]
    most = jobs[WAL + STORE][many] + jobs[WAL + SCATTERED][many]
    columns = [_column(rate / 60, life, row, least, most) for rate in RATES]
    names = ["reminders per second", "sidecars (a database and a virtual host each)", "producers + consumers per sidecar",
             "busy cores: ours + Postgres + RabbitMQ", "cores to provide at 50 % use: ours + Postgres + RabbitMQ",
             "rows per day", "disk for finished jobs, 30 days / 7 / 1", "WAL, all pages recently written … none",
             "connections to each Postgres, with one API"]
    head = "| | " + " | ".join(f"{rate:,} per minute" for rate in RATES) + " |"
    body = [f"| {name} | " + " | ".join(cells) + " |" for name, cells in zip(names, zip(*columns, strict=True), strict=True)]
    return [head, "|" + " --- |" * (len(RATES) + 1), *body]


def _column(rate: float, life: Cost, row: float, least: float, most: float) -> list[str]:
    sidecars = math.ceil(rate / SIDECAR)
    sidecar_rate = rate / sidecars
    producers, consumers = max(2, math.ceil(sidecar_rate / PRODUCER)), max(2, math.ceil(sidecar_rate / CONSUMER))
    busy = [rate * cost / 1e6 for cost in life]
    connections = producers * CONNECTIONS["producer"] + consumers * CONNECTIONS["consumer"] + CONNECTIONS["API"]
    day = rate * 86400
    return [
        f"{rate:,.0f}", f"{sidecars}", f"{producers} + {consumers}", " + ".join(f"{cores:.2g}" for cores in busy),
        " + ".join(f"{max(1, math.ceil(cores / MAX_BUSY))}" for cores in busy), f"{day / 1e6:,.3g} million" if day < 1e9 else f"{day / 1e9:,.3g} billion",
        " / ".join(_size(day * days * row) for days in (30, 7, 1)), f"{_size(rate * least)}/s … {_size(rate * most)}/s",
        f"{connections}",
    ]


def _size(count: float) -> str:
    power = min(4, int(math.log(max(count, 1), 1000)))
    return f"{count / 1000**power:,.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"
