"""Measure the processor time per message and process, with RabbitMQ on one node and on three.

All nodes share this machine's two cores and its disk, so the rates on three nodes do not carry over to three machines.
The processor time per node and message does.
"""

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import psutil

from bench import emit, ingest, report
from bench.servers import Bed, Meter, Running
from chaos.breaking_clusters import leader_of, three_nodes
from scheduler.dev.servers import RabbitServer, Stack


class Costs:
    """Measures on one broker: a rate, and the microseconds per message of our processes, Postgres and each node."""

    def __init__(self, bed: Bed, postgres: int, nodes: Sequence[RabbitServer], count: int) -> None:
        self._bed, self._postgres, self._nodes, self._count = bed, postgres, nodes, count

    def events(self, replicas: int) -> list[float]:
        """Emit one-shot events."""
        emit.one_shots(self._bed, self._count)
        return self._watched(lambda meter: emit.drain(self._bed, self._count, replicas, meter=meter))

    def commands(self) -> list[float]:
        """Store queued requests; publishing them does not count."""
        return self._watched(lambda meter: ingest.ours(self._bed, self._count, 1, meter=meter))

    def published(self) -> list[float]:
        """Publish with a bare publisher, whose own time does not count."""
        def publish(meter: Meter) -> float:
            meter([])
            rate = emit.yardstick(self._bed, "pipelined_publisher", self._count)
            meter([])
            return rate

        return self._watched(publish)

    def _watched(self, work: Callable[[Meter], float]) -> list[float]:
        looks: list[list[float]] = []
        rate = work(lambda running: looks.append(self._spent(running)))
        return [rate, *((after - before) / self._count * 1e6 for before, after in zip(*looks, strict=True))]

    def _spent(self, running: Sequence[Running]) -> list[float]:
        """Return the processor seconds used so far."""
        ours, *brokers = (
            sum(times.user + times.system for times in (psutil.Process(pid).cpu_times() for pid in pids))
            for pids in ([process_times.popen.pid for process_times in running], *([node.pid] for node in self._nodes))
        )
        return [ours, self._postgres_spent(), *brokers]

    def _postgres_spent(self) -> float:
        """Return the seconds of the server's processes; the first one's account includes ended ones."""
        first = psutil.Process(self._postgres)
        while True:
            try:
                living = [process.cpu_times() for process in (first, *first.children())]
                break
            except psutil.NoSuchProcess:
                continue  # one has ended: the account now includes it
        ended = living[0]
        return ended.children_user + ended.children_system + sum(process.user + process.system for process in living)


def parts(costs: Sequence[float]) -> str:
    """Format the costs; a quorum queue's leader comes first."""
    _, ours, postgres, *nodes = costs
    return f"{ours:.0f} + {postgres:.0f} + {' + '.join(f'{node:.0f}' for node in nodes)} µs"


def run(stack: Stack, rounds: int = 3, count: int = 30_000) -> list[report.Row]:
    """Measure events, commands and a bare publisher on one node and on three, alternating."""
    assert stack.rabbitmq
    assert stack.postgres
    assert stack.postgres.pid
    measurements: dict[str, list[list[float]]] = {}
    with ExitStack() as opened:
        nodes = opened.enter_context(three_nodes(stack))
        one, three = opened.enter_context(Bed(stack)), opened.enter_context(Bed(stack, amqp_url=nodes[1].url))
        leader = leader_of(nodes[0], "mainapp_due")
        nodes.sort(key=lambda node: node.nodename != leader)
        for _ in range(rounds):
            for where, bed, brokers in (("one node", one, [stack.rabbitmq]), ("three nodes", three, nodes)):
                costs = Costs(bed, stack.postgres.pid, brokers, count)
                for what, measure in (("an event, 1 replica", lambda costs=costs: costs.events(1)),
                                      ("an event, 2 replicas", lambda costs=costs: costs.events(2)),
                                      ("a command stored, 1 consumer", costs.commands),
                                      ("a bare publisher's message", costs.published)):
                    measurements.setdefault(f"{what}, {where}", []).append(measure())
                    print(f"    {what + ', ' + where:<45} {measurements[f'{what}, {where}'][-1][0]:>9,.0f}/s "
                          f"{parts(measurements[f'{what}, {where}'][-1])}", flush=True)
    rows = compared({name: [statistics.median(column) for column in zip(*turns, strict=True)] for name, turns in measurements.items()})
    report.write("costs", rows, measurements)
    return rows


def compared(middle: dict[str, list[float]]) -> list[report.Row]:
    """Return rows that compare three nodes with one, with the processor time per process."""
    rows = []
    for name, one in middle.items():
        what, _, where = name.rpartition(", ")
        if where == "one node":
            three = middle[f"{what}, three nodes"]
            rows.append(report.Row(f"processor time of {what}: ours + Postgres + RabbitMQ", parts(one),
                                   f"quorum queues on three nodes: {parts(three)}", sum(three[1:]) / sum(one[1:]), "", None))
            rows.append(report.without_goal(f"{what}: per second, on three nodes of one machine", three[0], one[0], "on one node"))
    return rows
