"""Supervise one command: read its output, enforce its limits and obey its worker.

Orders are JSON lines on standard input, the first with the command to run; reports go to standard output.
"""

import contextlib
import errno
import os
import select
import signal
import sys
from typing import Any

from scheduler.workers.command.supervisor.argument_pattern import argument_problem
from scheduler.workers.command.supervisor.child import STOP_SIGNALS, CommandChild, adopt, descendants, now
from scheduler.workers.command.supervisor.pipes import READ_BYTES, OrderLines, ReportWriter

ABANDONED_GRACE = 4.0  # seconds at most, if the worker is gone: another worker will start the command
_KILL_INTERVAL = 0.05
_DRAIN_SECONDS = 1.0
_UNKILLABLE_SECONDS = 10.0  # a process that survives SIGKILL so long waits for a disk, or belongs to another user
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class Supervision:
    """The event loop of one command."""

    def __init__(self, order: dict[str, Any], orders: OrderLines) -> None:
        self._order = order
        self._orders = orders
        self._reports = ReportWriter(sys.stdout.fileno())
        self._last_order = now()
        self._ended_by: str | None = None
        self._kill_at: float | None = None
        self._abandoned = False
        self._left_behind = 0
        self._wakeup, writer = os.pipe()
        for descriptor in (self._wakeup, writer):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._command = CommandChild(order)

    def run(self) -> None:
        """Run until no process of the command is left, and report its end."""
        command = self._command
        if command.problem:
            os.waitpid(command.pid, 0)
            number, _, text = command.problem.partition(" ")
            self._reports.write({"problem": text, "errno": int(number)})
            self._reports.flush()
            return
        self._reports.write({"started": command.pid})
        while not self._ended():
            self._step()
        self._drain()
        code = -signal.SIGKILL if command.status is None else os.waitstatus_to_exitcode(command.status)
        end = {"exit_code": code} if code >= 0 else {"signal": -code}
        survivors = 0 if command.childless else len(descendants())
        self._reports.write(command.report() | end | {
            "ended_by": self._ended_by, "left_behind": self._left_behind, "survivors": survivors,
        })
        self._reports.flush()

    def _ended(self) -> bool:
        if self._kill_at is not None and now() > self._kill_at + _UNKILLABLE_SECONDS:
            return True
        return self._command.status is not None and self._command.childless

    def _step(self) -> None:
        command = self._command
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        if not self._orders.closed:
            poll.register(self._orders.descriptor, _READABLE)
        for stream in command.streams:
            poll.register(stream.descriptor or 0, _READABLE)
        if command.has_input:
            poll.register(command.stdin, select.POLLOUT)
        if self._reports.pending:
            poll.register(self._reports.descriptor, select.POLLOUT)
        ready = {descriptor for descriptor, _ in poll.poll(max(0.0, self._seconds_to_wait()) * 1000)}
        if self._wakeup in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wakeup, READ_BYTES)
        if self._orders.descriptor in ready:
            self._read_orders()
        for stream in command.streams:
            if stream.descriptor in ready:
                stream.read()
        if command.has_input and command.stdin in ready:
            command.write_input()
        self._reports.send()
        command.reap()
        self._enforce_limits()

    def _seconds_to_wait(self) -> float:
        """Return the seconds until the next limit."""
        if self._kill_at is not None:
            return max(self._kill_at - now(), _KILL_INTERVAL)
        order = self._order
        limit: float = min(self._command.began + order["timeout"], self._last_order + order["lease"])
        return limit - now() + 0.001

    def _read_orders(self) -> None:
        for order in self._orders.read():
            self._last_order = now()
            if "end" in order:
                self._end(order["end"], order.get("grace", self._order["grace"]))
            elif self._command.changed and not self._reports.pending:
                self._reports.write(self._command.report())

    def _enforce_limits(self) -> None:
        command, at = self._command, now()
        lost_worker = "abandoned" if self._orders.closed else (
            "silence" if at > self._last_order + self._order["lease"] else None
        )
        if lost_worker and not self._abandoned:
            self._abandoned = True
            self._end(lost_worker, min(self._order["grace"], ABANDONED_GRACE))
        elif self._kill_at is not None:
            if self._kill_at <= at:
                command.send(signal.SIGKILL)
        elif command.status is not None and not command.childless:
            self._left_behind = self._terminate(self._order["grace"])
        elif at > command.began + self._order["timeout"]:
            self._end("deadline", self._order["grace"])

    def _end(self, reason: str, grace: float) -> None:
        """End all processes within `grace`, or at the earlier kill time of a previous call."""
        if self._ended_by is None and self._command.status is None:
            self._ended_by = reason
        kill_at = self._kill_at
        if kill_at is None:
            self._terminate(grace)
        else:
            self._kill_at = min(kill_at, now() + grace)

    def _terminate(self, grace: float) -> int:
        """Send SIGTERM to all processes and set the time of SIGKILL; return the number of processes."""
        self._kill_at = now() + grace
        count = self._command.send(signal.SIGTERM)
        self._command.send(signal.SIGCONT)  # stopped processes do not handle SIGTERM
        return count

    def _drain(self) -> None:
        """Read the remaining output, for a limited time: a surviving process may keep the pipe open."""
        until = now() + _DRAIN_SECONDS
        while self._command.streams and now() < until:
            poll = select.poll()
            for stream in self._command.streams:
                poll.register(stream.descriptor or 0, _READABLE)
            ready = {descriptor for descriptor, _ in poll.poll(max(0.0, until - now()) * 1000)}
            for stream in self._command.streams:
                if stream.descriptor in ready:
                    stream.read()


def main() -> None:
    """Wait for the first order and execute it."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the worker decides when to stop
    adopt()
    orders = OrderLines(sys.stdin.fileno())
    first: list[dict[str, Any]] = []
    while not first and not orders.closed:
        first = orders.read()
    if first:
        problem = argument_problem(first[0].get("argument_pattern"), first[0].get("arguments", ()))
        if problem is not None:
            reports = ReportWriter(sys.stdout.fileno())
            reports.write({"problem": problem, "errno": errno.EINVAL})
            reports.flush()
            return
        Supervision(first[0], orders).run()
