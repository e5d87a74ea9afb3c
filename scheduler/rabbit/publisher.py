"""Publish batches with pipelined confirms and return a receipt for each message."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from enum import StrEnum
from functools import partial

import pika
from pika import spec

from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.rabbit.delivery_parser import as_bytes
from scheduler.rabbit.frames import Publishable, RawMessage, UnsendableMessage, encode, own_route
from scheduler.rabbit.link import Link, RabbitUnavailable, reason
from scheduler.rabbit.message_isolation import MessageIsolation, isolation

log = get_logger(__name__)

CHUNK = 64 * 1024
_unsendable = ThrottledWarning(log, "message cannot be sent")


class Receipt(StrEnum):
    """The broker's response to a message."""

    CONFIRMED = "confirmed"
    RETURNED = "returned"  # confirmed, but no queue took it
    REFUSED = "refused"
    UNKNOWN = "unconfirmed"  # no confirm before the connection was lost or the time was up
    UNSENDABLE = "unsendable"  # not sent: the broker would close the channel or the connection over it
    SLOW = "slow"  # unconfirmed although later messages were confirmed: a queue of its route is slow


Then = Callable[[list[Receipt]], None]
# Identifies a returned message: its message_id, or exchange, routing key and body.
Key = str | tuple[str, bytes, bytes] | None


class Confirms:
    """Messages in flight with consecutive delivery tags, and their receipts."""

    def __init__(
        self, messages: Sequence[Publishable], then: Then | None = None, unsendable: Sequence[int] = ()
    ) -> None:
        """Track sent messages; `unsendable` are the indexes at which unsent ones belong, in order."""
        self._then = then
        self._unsendable = unsendable
        self._messages = messages
        self._count = self._open = len(messages)
        self._receipts = [Receipt.UNKNOWN] * len(messages)
        self._settled = 0  # all messages before this index have a receipt
        self._scattered = False  # some messages after it have a receipt too
        self._returned: set[Key] = set()
        self._done = threading.Event()
        self.first_tag = 0
        self.lost = "RabbitMQ did not confirm every message in time"
        if not messages:
            self._done.set()

    def wait(self, timeout: float) -> list[Receipt]:
        """Return the receipts in order, once all have arrived, the time is up or the broker is gone."""
        self._done.wait(timeout)
        return self._all_receipts()

    def _all_receipts(self) -> list[Receipt]:
        receipts = list(self._receipts)
        for index in self._unsendable:
            receipts.insert(index, Receipt.UNSENDABLE)
        return receipts

    @property
    def done(self) -> bool:
        """Whether no more receipts will arrive."""
        return self._done.is_set()

    @property
    def last_tag(self) -> int:
        """The delivery tag of its last message."""
        return self.first_tag + self._count - 1

    def _settle_up_to(self, tag: int, receipt: Receipt) -> None:
        """Set the receipt of all unsettled messages up to this tag."""
        start, end = self._settled, min(tag - self.first_tag + 1, self._count)
        if self._scattered or self._returned:
            for index in range(start, end):
                self._settle(index, receipt)
        elif end > start:  # the usual case
            self._receipts[start:end] = [receipt] * (end - start)
            self._open -= end - start
        self._settled = max(start, end)
        self._end_if_settled()

    def _settle_one(self, tag: int, receipt: Receipt) -> None:
        index = tag - self.first_tag
        self._settle(index, receipt)
        if index == self._settled:
            self._settled += 1
        else:
            self._scattered = True
        self._end_if_settled()

    def _settle(self, index: int, receipt: Receipt) -> None:
        if self._receipts[index] is not Receipt.UNKNOWN:
            return
        if receipt is Receipt.CONFIRMED and self._returned and self._is_returned(self._messages[index]):
            receipt = Receipt.RETURNED
        self._receipts[index] = receipt
        self._open -= 1

    def _set_aside(self, last_confirmed: int) -> set[str]:
        if self.done:
            return set()
        routes = set()
        for index in range(self._settled, min(self._count, last_confirmed - self.first_tag)):
            if self._receipts[index] is Receipt.UNKNOWN and (route := own_route(self._messages[index])):
                self._settle(index, Receipt.SLOW)
                self._scattered = True
                routes.add(route)
        self._end_if_settled()
        return routes

    def _return(self, method: spec.Basic.Return, message_id: str | None, body: bytes) -> None:
        """Record a returned message. It precedes its confirm, and may belong to a different batch."""
        if self.done:
            return
        if isinstance(self._messages[0], RawMessage):
            self._returned.add((method.exchange, as_bytes(method.routing_key), body))
        elif message_id is not None or any(message.key is None for message in self._messages):
            self._returned.add(message_id)

    def _is_returned(self, message: Publishable) -> bool:
        # A returned message without a key could be any of these: duplicates are fine, losses are not.
        return message.key in self._returned or None in self._returned

    def _lose(self, problem: str) -> None:
        if not self.done:
            self.lost = problem
            self._end()

    def _end_if_settled(self) -> None:
        if self._open == 0 and not self.done:
            self._end()

    def _end(self) -> None:
        self._messages = ()  # they may be large, and the caller may keep this object
        self._done.set()
        if self._then is not None:
            self._then(self._all_receipts())


class Publisher:
    """One channel in confirm mode. Its callbacks run on the link's I/O thread; any thread may send."""

    def __init__(self, link: Link, *, essential: bool = True, learned: MessageIsolation = isolation) -> None:
        self._link = link
        self._essential = essential
        self._isolation = learned
        self._lock = threading.Lock()
        self._open: set[Confirms] = set()
        self._open_channel()
        link.on_close(self._on_close)

    def _open_channel(self) -> None:
        channel = self._link.channel(essential=self._essential)

        def use(future: Future[object]) -> None:
            self._channel = channel
            self._tag = self._last_confirmed = 0
            self._unconfirmed: deque[Confirms] = deque()  # in tag order
            self._queued: deque[bytes] = deque()  # encoded and not written yet, while sending one at a time
            channel.add_on_close_callback(self._on_channel_close)
            channel.add_on_return_callback(self._on_return)
            channel.confirm_delivery(partial(self._on_confirm, channel), callback=future.set_result)

        self._frame_max = channel.connection.params.frame_max or 131072
        self._link.call(use)

    def renew(self) -> None:
        """Open a new channel unless messages are in flight.

        If a quorum queue's leader died just before a channel's first message, RabbitMQ 3 rejects all messages from
        that channel until the node is back. A new channel looks up the leader again.
        """
        if all(batch.done for batch in self._open):
            old = self._channel
            self._open_channel()
            self._link.post(lambda: old.is_open and old.close())

    def set_aside_slow(self, batch: Confirms) -> set[str]:
        """Stop waiting for messages of a batch that later confirms overtook, and return their routes.

        They get the receipt SLOW: the broker works, and only the queues of these routes are slow. Messages to
        addresses that all tenants share are never set aside.
        """
        try:
            return self._link.call(lambda future: future.set_result(batch._set_aside(self._last_confirmed)))  # noqa: SLF001 - one module
        except RabbitUnavailable:
            return set()  # the batch is lost as a whole

    def forget(self) -> None:
        """Detach from the link, before this publisher is discarded."""
        self._link.remove_on_close(self._on_close)

    @property
    def usable(self) -> bool:
        """Whether the broker has left the channel open."""
        return bool(self._channel.is_open)

    @property
    def frame_max(self) -> int:
        """The negotiated maximum frame size."""
        return int(self._frame_max)

    def send(self, messages: Sequence[Publishable], then: Then | None = None) -> Confirms:
        """Send the messages in order, and return at once.

        `then` gets the receipts on the I/O thread when no more will arrive.
        """
        if not messages:
            return Confirms(messages, then)
        self._link.check()
        sendable, encoded, unsendable = self._encode(messages)
        batch = Confirms(sendable, then, unsendable)
        if not sendable:
            self._link.post(batch._end)  # noqa: SLF001 - one module
            return batch
        with self._lock:
            self._open = {open_batch for open_batch in self._open if not open_batch.done} | {batch}
        self._link.post(lambda: self._send(batch, encoded))
        return batch

    def _encode(
        self, messages: Sequence[Publishable]
    ) -> tuple[Sequence[Publishable], list[bytes], Sequence[int]]:
        """Return the sendable messages, their frames, and the indexes of the unsendable ones."""
        number, limit, max_body = self._channel.channel_number, self._frame_max, self._isolation.max_body
        if not self._isolation.any_suspended:
            try:
                return messages, [encode(message, number, limit, max_body) for message in messages], ()
            except Exception:  # noqa: BLE001, S110 - identified below, message by message
                pass
        sendable, encoded, unsendable = [], [], []
        for index, message in enumerate(messages):
            try:
                if problem := self._isolation.problem(message):
                    raise UnsendableMessage(problem)
                encoded.append(encode(message, number, limit, max_body))
                sendable.append(message)
            except Exception as error:  # noqa: BLE001 - a row written by hand may contain anything
                unsendable.append(index)
                expected = isinstance(error, UnsendableMessage)
                _unsendable.warning(
                    exchange=message.exchange, routing_key=str(message.routing_key),
                    message_id=message.key if isinstance(message.key, str) else None,
                    problem=str(error) if expected else f"its properties cannot be encoded: {error!r}"[:500],
                    do="send the request again with less payload, or raise RabbitMQ's max_message_size",
                )
        return sendable, encoded, unsendable

    def _send(self, batch: Confirms, encoded: list[bytes]) -> None:
        if not self._channel.is_open:
            batch._lose(self._link.closed or "the channel is closed")  # noqa: SLF001 - one module
            return
        batch.first_tag = self._tag + 1
        self._tag += len(encoded)
        self._unconfirmed.append(batch)
        if self._isolation.one_at_a_time or self._queued:
            self._queued.extend(encoded)
            self._write_next()
            return
        chunk: list[bytes] = []
        size = 0
        for frames in encoded:
            chunk.append(frames)
            size += len(frames)
            if size >= CHUNK:
                self._link.write([b"".join(chunk)])
                chunk, size = [], 0
        if chunk:
            self._link.write([b"".join(chunk)])

    def _write_next(self) -> None:
        """Write the next queued message once all before it are settled; or all of them after the isolation."""
        while self._queued and self._unsettled == len(self._queued):
            if self._isolation.one_at_a_time:
                self._isolation.one_at_a_time -= 1
                self._link.write([self._queued.popleft()])
            else:
                self._link.write(list(self._queued))
                self._queued.clear()

    @property
    def _unsettled(self) -> int:
        return sum(batch._open for batch in self._unconfirmed)  # noqa: SLF001 - one module

    def _on_confirm(self, channel: pika.channel.Channel, frame: pika.frame.Method) -> None:
        if channel is not self._channel:
            return  # for a message that was set aside, on a previous channel
        method = frame.method
        receipt = Receipt.CONFIRMED if isinstance(method, spec.Basic.Ack) else Receipt.REFUSED
        tag, waiting = method.delivery_tag, self._unconfirmed
        if receipt is Receipt.CONFIRMED and tag > self._last_confirmed:
            self._last_confirmed = tag
        if not method.multiple:
            for batch in waiting:
                if batch.first_tag <= tag <= batch.last_tag:
                    batch._settle_one(tag, receipt)  # noqa: SLF001 - one module
                    break
        else:
            for batch in waiting:
                if batch.first_tag > tag:
                    break
                batch._settle_up_to(tag, receipt)  # noqa: SLF001 - one module
        while waiting and waiting[0].done:
            waiting.popleft()
        if self._queued:
            self._write_next()

    def _on_return(
        self, channel: pika.channel.Channel, method: spec.Basic.Return, properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        if channel is not self._channel:
            return
        # It precedes the confirm of the same message, so it may belong to any open batch.
        for batch in self._open:
            batch._return(method, properties.message_id, body)  # noqa: SLF001 - one module

    def _on_channel_close(self, channel: pika.channel.Channel, error: BaseException) -> None:
        if channel is self._channel:
            self._on_close(reason(error))

    def _on_close(self, problem: str) -> None:
        waiting = [
            message for batch in self._unconfirmed
            for message, receipt in zip(batch._messages, batch._receipts, strict=False)  # noqa: SLF001 - one module
            if receipt is Receipt.UNKNOWN
        ]
        self._isolation.closed(problem, waiting[: len(waiting) - len(self._queued)])
        self._queued.clear()
        for batch in self._open:
            batch._lose(problem)  # noqa: SLF001 - one module
        self._unconfirmed.clear()
