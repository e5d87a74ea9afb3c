"""Report a Runner's attempts to the sidecar: heartbeats, then the confirmed result."""

import contextlib
import json
import logging
import os
import socket
import time
from dataclasses import dataclass, field

import pika
from pika import spec
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosed, ChannelWrongStateError, NackError, UnroutableError

from scheduler.client.work import Work
from scheduler.domain.messages import ScheduleResult
from scheduler.domain.names import COMMANDS_EXCHANGE

log = logging.getLogger(__name__)
HEARTBEAT = 25.0  # a Runner that dies or freezes is noticed within 30 s, as a worker is
_BEATS = 3  # heartbeats within the promised interval
_BEAT_SECONDS = 5.0  # stoppable handlers learn this soon that their attempt is superseded
_RETRY_SECONDS = 1.0
_WORKER_CHARACTERS = 200
_REPLY_TO = "amq.rabbitmq.reply-to"


def worker_name(name: str | None) -> str:
    """Return the worker's name; by default the host name and the process id."""
    return (name or f"{socket.gethostname()}:{os.getpid()}")[:_WORKER_CHARACTERS]


@dataclass(slots=True)
class _PendingReport:
    body: bytes
    next_at: float  # monotonic
    confirmed: bool = False  # at least once


@dataclass(slots=True)
class ReportProgress:
    """Attempts that the last reports changed."""

    started: list[Work] = field(default_factory=list)  # the broker has the first `running`
    settled: list[Work] = field(default_factory=list)  # the broker has the result
    superseded: list[Work] = field(default_factory=list)  # the sidecar has superseded the attempt


class AttemptReporter:
    """Keeps pending reports, also without a connection.

    The thread that owns the connection calls `turn` a few times per second, so long handlers don't delay reports.
    """

    def __init__(self, heartbeat: float, user_id: str | None = None) -> None:
        self._heartbeat = heartbeat
        self._user_id = user_id
        self._properties = self._make_properties()
        self._connection: pika.BlockingConnection | None = None
        self._channel: BlockingChannel | None = None
        self._running: dict[Work, _PendingReport] = {}
        self._ended: dict[Work, _PendingReport] = {}
        self._superseded: list[Work] = []

    def attach(self, connection: pika.BlockingConnection) -> None:
        """Use a new connection, and send the heartbeats of running handlers immediately."""
        self._connection = connection
        self._channel = None
        for report in (*self._running.values(), *self._ended.values()):
            report.next_at = 0.0

    @property
    def busy(self) -> bool:
        """Whether there is anything to report."""
        return bool(self._running or self._ended or self._superseded)

    @property
    def idle(self) -> bool:
        """Whether every result is confirmed."""
        return not self._ended

    def begin(self, work: Work) -> None:
        """Start the heartbeats of a handler."""
        assert work.attempt is not None  # noqa: S101 - only tracked jobs are reported
        self._running[work] = _PendingReport(work.attempt.running(self._heartbeat), time.monotonic())

    def end(self, work: Work, result: bytes) -> None:
        """Report the result until the broker has confirmed it."""
        running = self._running.pop(work, None)
        self._ended[work] = _PendingReport(result, 0.0)  # first: the connection may be lost while publishing
        if running is not None and not running.confirmed:
            self._publish(running.body)

    def forget(self, work: Work) -> None:
        """Stop the heartbeats of an attempt that the sidecar has superseded."""
        self._running.pop(work, None)

    def turn(self) -> ReportProgress:
        """Publish the reports that are due."""
        now = time.monotonic()
        progress = ReportProgress(superseded=self._superseded)
        self._superseded = []
        for work, report in list(self._running.items()):
            if report.next_at > now:
                continue
            published = self._publish(report.body, work if report.confirmed else None)
            report.next_at = now + (self._beat_seconds(work) if published else _RETRY_SECONDS)
            if published and not report.confirmed:
                report.confirmed = True
                progress.started.append(work)
        for work, report in list(self._ended.items()):
            if report.next_at > now:
                continue
            if self._publish(report.body):
                del self._ended[work]
                progress.settled.append(work)
            else:
                report.next_at = now + _RETRY_SECONDS
        return progress

    def _beat_seconds(self, work: Work) -> float:
        promised = self._heartbeat / _BEATS
        return min(promised, _BEAT_SECONDS) if work.stoppable else promised

    def _publish(self, body: bytes, reply_for: Work | None = None) -> bool:
        """Return whether the broker has confirmed the report; `reply_for` requests a reply for that attempt."""
        properties = self._properties if reply_for is None else self._make_properties(
            reply_to=_REPLY_TO, correlation_id=_name(reply_for)
        )
        try:
            channel = self._open()
            channel.basic_publish(COMMANDS_EXCHANGE, ScheduleResult.kind, body, properties, mandatory=True)
        except (UnroutableError, NackError, ChannelClosed, ChannelWrongStateError) as error:
            log.warning("no queue accepts results from %s, retrying: %s; start `scheduler consumer`",
                        COMMANDS_EXCHANGE, type(error).__name__)
            return False
        return True

    def _make_properties(self, **more: str) -> pika.BasicProperties:
        return pika.BasicProperties(
            content_type="application/json", delivery_mode=2, type=ScheduleResult.__name__, user_id=self._user_id,
            **more,
        )

    def _open(self) -> BlockingChannel:
        if self._channel is None or not self._channel.is_open:
            assert self._connection is not None  # noqa: S101 - `attach` comes first
            self._channel = self._connection.channel()
            self._channel.confirm_delivery()
            self._channel.basic_consume(_REPLY_TO, self._on_reply, auto_ack=True)
        return self._channel

    def _on_reply(
        self, _: BlockingChannel, __: spec.Basic.Deliver, properties: pika.BasicProperties, body: bytes
    ) -> None:
        with contextlib.suppress(ValueError, TypeError, KeyError, AMQPError):
            if json.loads(body)["status"] == "superseded":
                self._superseded += [work for work in self._running if _name(work) == properties.correlation_id]


def _name(work: Work) -> str:
    return f"{work.key[0]} {work.key[1]}"
