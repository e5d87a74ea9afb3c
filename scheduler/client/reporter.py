"""Tells the sidecar what becomes of the attempts that a Runner makes."""

import logging
import os
import socket
import time
from dataclasses import dataclass

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

from scheduler.client.results import Attempt
from scheduler.domain.messages import ScheduleResult
from scheduler.domain.names import COMMANDS_EXCHANGE

log = logging.getLogger(__name__)
HEARTBEAT = 25.0  # a Runner that dies or freezes is noticed within 30 s, as a worker is
_BEATS = 3  # signs of life within the time that was promised for one
_AGAIN_SECONDS = 1.0
_WORKER_CHARACTERS = 200


def worker_name(name: str | None) -> str:
    """Return what a worker calls itself: by default the machine and the process."""
    return (name or f"{socket.gethostname()}:{os.getpid()}")[:_WORKER_CHARACTERS]


@dataclass(slots=True)
class _Said:
    body: bytes
    next_at: float  # monotonic: when to say it, or to say it again


class Reporter:
    """Signs of life while handlers are at work, and at last what became of each attempt, confirmed.

    Used by the thread that has the connection, which comes by a few times in a second: pika wants it so. A
    handler, however long it takes, keeps nobody from saying that it is at work.
    """

    def __init__(self, connection: pika.BlockingConnection, heartbeat: float, user_id: str | None = None) -> None:
        self._properties = pika.BasicProperties(
            content_type="application/json", delivery_mode=2, type=ScheduleResult.__name__, user_id=user_id,
        )
        self._connection = connection
        self._heartbeat = heartbeat
        self._channel = self._open()
        self._at_work: dict[int, _Said] = {}  # by delivery tag
        self._ended: dict[int, _Said] = {}

    def begin(self, tag: int, attempt: Attempt) -> None:
        """Say that a handler is at work, from now until its end."""
        self._at_work[tag] = _Said(attempt.running(self._heartbeat), time.monotonic())

    def end(self, tag: int, result: bytes) -> None:
        """Say what became of it, until the broker has confirmed that."""
        running = self._at_work.pop(tag, None)
        if running is not None and running.next_at <= time.monotonic():
            self._publish(running.body)
        self._ended[tag] = _Said(result, time.monotonic())

    def turn(self) -> list[int]:
        """Say what is to be said by now; return the tags of the events whose end the broker knows."""
        now = time.monotonic()
        for said in self._at_work.values():
            if said.next_at <= now:
                taken = self._publish(said.body)
                said.next_at = now + (self._heartbeat / _BEATS if taken else _AGAIN_SECONDS)
        settled = []
        for tag, said in list(self._ended.items()):
            if said.next_at > now:
                continue
            if self._publish(said.body):
                del self._ended[tag]
                settled.append(tag)
            else:
                said.next_at = now + _AGAIN_SECONDS
        return settled

    def _publish(self, body: bytes) -> bool:
        try:
            self._channel.basic_publish(
                COMMANDS_EXCHANGE, ScheduleResult.kind, body, self._properties, mandatory=True
            )
        except (UnroutableError, NackError, ChannelClosedByBroker) as error:
            log.warning("no queue takes a result from %s, trying again: %s; start `scheduler consumer`",
                        COMMANDS_EXCHANGE, type(error).__name__)
            if not self._channel.is_open:
                self._channel = self._open()
            return False
        return True

    def _open(self) -> BlockingChannel:
        channel = self._connection.channel()
        channel.confirm_delivery()
        return channel
