"""The loop around one command: its output read, its bounds kept, its worker heeded.

Orders come as lines of JSON on standard input, the first of them says what to run; reports go to standard output.
"""

import contextlib
import errno
import os
import select
import signal
import sys
from typing import Any

from scheduler.workers.supervisor.argument_pattern import argument_problem
from scheduler.workers.supervisor.child import FOR_THE_WORKER, CommandChild, adopt, descendants, now
from scheduler.workers.supervisor.pipes import READ_BYTES, OrderLines, ReportWriter

ABANDONED_GRACE = 4.0  # at most, when the worker is gone: it must be over before another worker begins
_AGAIN_SECONDS = 0.05
_DRAIN_SECONDS = 1.0
_HOPELESS_SECONDS = 10.0  # what SIGKILL has not ended by then waits for a disk, or is not ours to end
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class Supervision:
    """The loop around one command."""

    def __init__(self, order: dict[str, Any], orders: OrderLines) -> None:
        self._order = order
        self._orders = orders
        self._reports = ReportWriter(sys.stdout.fileno())
        self._heard = now()
        self._ended_by: str | None = None
        self._kill_at: float | None = None
        self._alone = False
        self._left_behind = 0
        self._wakeup, writer = os.pipe()
        for descriptor in (self._wakeup, writer):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._command = CommandChild(order)

    def run(self) -> None:
        """Watch until nothing of the command is left, and report how it ended."""
        command = self._command
        if command.problem:
            os.waitpid(command.pid, 0)
            number, _, text = command.problem.partition(" ")
            self._reports.say({"problem": text, "errno": int(number)})
            self._reports.flush()
            return
        self._reports.say({"started": command.pid})
        while not self._over():
            self._turn()
        self._drain()
        code = -signal.SIGKILL if command.status is None else os.waitstatus_to_exitcode(command.status)
        ended = {"exit_code": code} if code >= 0 else {"signal": -code}
        survivors = 0 if command.childless else len(descendants())
        self._reports.say(command.report() | ended | {
            "ended_by": self._ended_by, "left_behind": self._left_behind, "survivors": survivors,
        })
        self._reports.flush()

    def _over(self) -> bool:
        if self._kill_at is not None and now() > self._kill_at + _HOPELESS_SECONDS:
            return True
        return self._command.status is not None and self._command.childless

    def _turn(self) -> None:
        command = self._command
        waits = select.poll()
        waits.register(self._wakeup, select.POLLIN)
        if not self._orders.over:
            waits.register(self._orders.descriptor, _READABLE)
        for each in command.streams:
            waits.register(each.descriptor or 0, _READABLE)
        if command.hungry:
            waits.register(command.stdin, select.POLLOUT)
        if self._reports.waiting:
            waits.register(self._reports.descriptor, select.POLLOUT)
        ready = {descriptor for descriptor, _ in waits.poll(max(0.0, self._seconds_to_wait()) * 1000)}
        if self._wakeup in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wakeup, READ_BYTES)
        if self._orders.descriptor in ready:
            self._obey()
        for each in command.streams:
            if each.descriptor in ready:
                each.read()
        if command.hungry and command.stdin in ready:
            command.feed()
        self._reports.send()
        command.reap()
        self._judge()

    def _seconds_to_wait(self) -> float:
        """Return how long nothing need be done unless something happens."""
        if self._kill_at is not None:
            return max(self._kill_at - now(), _AGAIN_SECONDS)
        at: list[float] = [self._command.began + self._order["timeout"], self._heard + self._order["lease"]]
        return min(at) - now() + 0.001

    def _obey(self) -> None:
        for order in self._orders.take():
            self._heard = now()
            if "end" in order:
                self._end(order["end"], order.get("grace", self._order["grace"]))
            elif self._command.changed and not self._reports.waiting:
                self._reports.say(self._command.report())

    def _judge(self) -> None:
        command, at = self._command, now()
        alone = "abandoned" if self._orders.over else (
            "silence" if at > self._heard + self._order["lease"] else None
        )
        if alone and not self._alone:
            self._alone = True
            self._end(alone, min(self._order["grace"], ABANDONED_GRACE))
        elif self._kill_at is not None:
            if self._kill_at <= at:
                command.send(signal.SIGKILL)
        elif command.status is not None and not command.childless:
            self._left_behind = self._tell(self._order["grace"])
        elif at > command.began + self._order["timeout"]:
            self._end("deadline", self._order["grace"])

    def _end(self, why: str, grace: float) -> None:
        """End all of it, within `grace` or sooner if it was told to end before."""
        if self._ended_by is None and self._command.status is None:
            self._ended_by = why
        kill_at = self._kill_at
        if kill_at is None:
            self._tell(grace)
        else:
            self._kill_at = min(kill_at, now() + grace)

    def _tell(self, grace: float) -> int:
        """Ask all of it to end, and note when it must."""
        self._kill_at = now() + grace
        told = self._command.send(signal.SIGTERM)
        self._command.send(signal.SIGCONT)  # who was stopped could not heed it
        return told

    def _drain(self) -> None:
        """Read what was written last; a process out of our reach may hold its end open for ever."""
        until = now() + _DRAIN_SECONDS
        while self._command.streams and now() < until:
            waits = select.poll()
            for each in self._command.streams:
                waits.register(each.descriptor or 0, _READABLE)
            ready = {descriptor for descriptor, _ in waits.poll(max(0.0, until - now()) * 1000)}
            for each in self._command.streams:
                if each.descriptor in ready:
                    each.read()


def main() -> None:
    """Wait for the first order, and see it through."""
    for each in FOR_THE_WORKER:
        signal.signal(each, signal.SIG_IGN)  # the worker says what is to be done
    adopt()
    orders = OrderLines(sys.stdin.fileno())
    first: list[dict[str, Any]] = []
    while not first and not orders.over:
        first = orders.take()
    if first:
        problem = argument_problem(first[0].get("argument_pattern"), first[0].get("arguments", ()))
        if problem is not None:
            reports = ReportWriter(sys.stdout.fileno())
            reports.say({"problem": problem, "errno": errno.EINVAL})
            reports.flush()
            return
        Supervision(first[0], orders).run()
