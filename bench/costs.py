"""Who uses the processor for a message, with one node of RabbitMQ and with a quorum queue on three.

All nodes share this machine's two cores and its disk, so the rates on three are those of two cores that do the work of three
machines. What each node uses for a message is what counts for nodes that have machines of their own.
"""

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import psutil

from bench import emit, ingest, report
from bench.servers import Bed, Look, Running
from chaos.breaking_clusters import leader_of, three_nodes
from scheduler.dev.servers import RabbitServer, Stack


class Costs:
    """Measures on one broker: a rate, and microseconds a message of our processes, of Postgres and of each node."""

    def __init__(self, bed: Bed, postgres: int, nodes: Sequence[RabbitServer], count: int) -> None:
        self._bed, self._postgres, self._nodes, self._count = bed, postgres, nodes, count

    def events(self, replicas: int) -> list[float]:
        """Emit one-shot events."""
        emit.one_shots(self._bed, self._count)
        return self._watched(lambda look: emit.drain(self._bed, self._count, replicas, look=look))

    def commands(self) -> list[float]:
        """Store requests that wait in the queue; what it took to put them there is not in it."""
        return self._watched(lambda look: ingest.ours(self._bed, self._count, 1, look=look))

    def published(self) -> list[float]:
        """Publish by a bare publisher, whose own time is not in it."""
        def publish(look: Look) -> float:
            look([])
            rate = emit.yardstick(self._bed, "pipelined_publisher", self._count)
            look([])
            return rate

        return self._watched(publish)

    def _watched(self, work: Callable[[Look], float]) -> list[float]:
        looks: list[list[float]] = []
        rate = work(lambda running: looks.append(self._spent(running)))
        return [rate, *((after - before) / self._count * 1e6 for before, after in zip(*looks, strict=True))]

    def _spent(self, running: Sequence[Running]) -> list[float]:
        """Return the seconds of processor time until now."""
        ours, *brokers = (
            sum(each.user + each.system for each in (psutil.Process(pid).cpu_times() for pid in pids))
            for pids in ([each.popen.pid for each in running], *([node.pid] for node in self._nodes))
        )
        return [ours, self._postgres_spent(), *brokers]

    def _postgres_spent(self) -> float:
        """Return the seconds of the server's processes; those that have ended are in the first one's own account."""
        first = psutil.Process(self._postgres)
        while True:
            try:
                living = [each.cpu_times() for each in (first, *first.children())]
                break
            except psutil.NoSuchProcess:
                continue  # one ended meanwhile: now it is in the account
        ended = living[0]
        return ended.children_user + ended.children_system + sum(each.user + each.system for each in living)


def parts(found: Sequence[float]) -> str:
    """Write who used how much: a quorum queue's leader comes first."""
    _, ours, postgres, *nodes = found
    return f"{ours:.0f} + {postgres:.0f} + {' + '.join(f'{node:.0f}' for node in nodes)} µs"


def run(stack: Stack, rounds: int = 3, count: int = 30_000) -> list[report.Row]:
    """Measure events, commands and a bare publisher on one node and on three, in turn."""
    assert stack.rabbitmq
    assert stack.postgres
    assert stack.postgres.pid
    found: dict[str, list[list[float]]] = {}
    with ExitStack() as opened:
        nodes = opened.enter_context(three_nodes(stack))
        one, three = opened.enter_context(Bed(stack)), opened.enter_context(Bed(stack, amqp_url=nodes[1].url))
        leader = leader_of(nodes[0], "mainapp_due")
        nodes.sort(key=lambda node: node.nodename != leader)
        for _ in range(rounds):
            for where, bed, brokers in (("one node", one, [stack.rabbitmq]), ("three nodes", three, nodes)):
                each = Costs(bed, stack.postgres.pid, brokers, count)
                for what, measure in (("an event, 1 replica", lambda each=each: each.events(1)),
                                      ("an event, 2 replicas", lambda each=each: each.events(2)),
                                      ("a command stored, 1 consumer", each.commands),
                                      ("a bare publisher's message", each.published)):
                    found.setdefault(f"{what}, {where}", []).append(measure())
                    print(f"    {what + ', ' + where:<45} {found[f'{what}, {where}'][-1][0]:>9,.0f}/s "
                          f"{parts(found[f'{what}, {where}'][-1])}", flush=True)
    rows = compared({name: [statistics.median(each) for each in zip(*turns, strict=True)] for name, turns in found.items()})
    report.write("costs", rows, found)
    return rows


def compared(middle: dict[str, list[float]]) -> list[report.Row]:
    """Return a row for each thing on three nodes beside one, and who uses the processor for it."""
    rows = []
    for name, one in middle.items():
        what, _, where = name.rpartition(", ")
        if where == "one node":
            three = middle[f"{what}, three nodes"]
            rows.append(report.Row(f"processor time of {what}: ours + Postgres + RabbitMQ", parts(one),
                                   f"quorum queues on three nodes: {parts(three)}", sum(three[1:]) / sum(one[1:]), "", None))
            rows.append(report.beside(f"{what}: per second, on three nodes of one machine", three[0], one[0], "on one node"))
    return rows
