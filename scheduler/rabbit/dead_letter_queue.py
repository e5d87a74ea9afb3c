"""List, replay and drop the messages in scheduler_dead.

A queue can be listed only by consuming messages and requeuing them; dead_letter_reader.py limits how many. All
operations use one channel, so that messages requeued by one are available to the next.
"""

import threading
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TypeVar

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosedByBroker, NackError, UnroutableError

from scheduler.domain.errors import SchedulerError
from scheduler.domain.names import COMMANDS_EXCHANGE, DELAY_EXCHANGE, DELAYED_EXCHANGE
from scheduler.rabbit.address import broker_name, parameters
from scheduler.rabbit.dead_letter import DeadLetter
from scheduler.rabbit.dead_letter_reader import DeadLetterReader, count_letters
from scheduler.rabbit.frames import fits
from scheduler.rabbit.link import RabbitUnavailable, reason
from scheduler.rabbit.pika_internals import RawProperties, blocking, frame_max

SHOWN_BYTES = 64 * 1024  # of a body; a page has no more
PAGE_BYTES = 4 * 1024 * 1024
_PARSED = 16  # bytes of memory for each byte of properties


T = TypeVar("T")


class NotReplayable(SchedulerError):  # noqa: N818 - a property of the message, not a failure
    """The message cannot be replayed: its source is unknown, or no queue accepts it."""


@dataclass(frozen=True, slots=True)
class LetterPage:
    """A page of dead letters, oldest first, with the beginnings of the bodies."""

    letters: list[DeadLetter]
    more: bool  # there is a next page
    incomplete: str | None  # why the rest of the queue was not read
    matched: int = 0  # letters of all pages


Keep = Callable[[DeadLetter], bool]


def _any_letter(_: DeadLetter) -> bool:
    return True


class DeadLetterQueue:
    """The queue, over a connection that is opened on demand. Operations run one at a time."""

    def __init__(self, urls: Sequence[str], delay_exchanges: Sequence[tuple[str, str]] = ()) -> None:
        self._urls = urls
        self._lock = threading.Lock()
        self._channel: BlockingChannel | None = None
        self._was_empty = False  # at the last listing over this channel
        self._returned = 0  # letters that the last operation requeued
        # A publisher cannot use a header to publish elsewhere with the sidecar's permissions.
        self._exits = {COMMANDS_EXCHANGE, DELAY_EXCHANGE, DELAYED_EXCHANGE}
        for name, _ in delay_exchanges:
            self._exits |= {name, f"{name}.delay"}

    def page(self, limit: int, after: tuple[str, str] = ("", ""), keep: Keep = _any_letter) -> LetterPage:
        """Return matching dead letters, oldest first. Raises RabbitUnavailable if no broker can be reached."""
        return self._with_retry(lambda: self._list(limit, after, keep))

    def event_ids(self) -> list[str]:
        """Return the event ids of all dead runs."""

        def find() -> list[str]:
            with self._reader() as reader:
                return [event_id for letter in reader.letters() if (event_id := letter.event_id) is not None]

        return self._with_retry(find)

    def drop_all(self, keep: Keep, most: int) -> list[str]:
        """Remove up to `most` matching dead letters permanently; return their ids."""
        with self._reader() as reader:
            chosen = [letter for letter in reader.letters() if keep(letter)][:most]
            for letter in chosen:
                reader.remove(letter)
            return [letter.id for letter in chosen]

    def replay_all(
        self, keep: Keep, apply: Callable[[DeadLetter], bool], most: int
    ) -> tuple[list[str], list[str]]:
        """Replay up to `most` matching dead letters; return the ids of the replayed, and the others' problems."""
        replayed, problems = [], []
        with self._reader() as reader:
            for letter in [letter for letter in reader.letters() if keep(letter)][:most]:
                try:
                    self._replay(reader, letter, apply)
                    replayed.append(letter.id)
                except NotReplayable as error:
                    problems.append(str(error))
        return replayed, problems

    def count(self) -> int:
        """Return the number of dead letters."""
        with self._lock, self._broker_errors():
            return count_letters(self._connected())

    def find(self, letter_id: str) -> DeadLetter | None:
        """Return a dead letter, None if it is not in the part of the queue that is read."""

        def find() -> DeadLetter | None:
            with self._reader() as reader:
                return _find(reader, letter_id)

        return self._with_retry(find)

    def replay(self, letter_id: str, apply: Callable[[DeadLetter], bool]) -> DeadLetter | None:
        """Publish a dead letter to its source exchange, and remove it when that is confirmed.

        If `apply` returns True it has applied the letter to the database, and nothing is published.
        """
        with self._reader() as reader:
            letter = _find(reader, letter_id)
            if letter is not None:
                self._replay(reader, letter, apply)
            return letter

    def _replay(self, reader: DeadLetterReader, letter: DeadLetter, apply: Callable[[DeadLetter], bool]) -> None:
        if letter.body_was_cut:
            raise NotReplayable("its body was cut when it was dead-lettered")
        if not apply(letter):
            self._send(letter)
        reader.remove(letter)

    def drop(self, letter_id: str) -> DeadLetter | None:
        """Remove a dead letter permanently."""
        with self._reader() as reader:
            letter = _find(reader, letter_id)
            if letter is not None:
                reader.remove(letter)
            return letter

    def close(self) -> None:
        """Close the connection."""
        channel, self._channel = self._channel, None
        if channel is not None and channel.connection.is_open:
            with suppress(AMQPError, OSError):
                channel.connection.close()

    def _with_retry(self, act: Callable[[], T]) -> T:
        """Read the queue; retry once if a reused connection is broken."""
        reused = self._channel is not None
        try:
            return act()
        except RabbitUnavailable:
            if not reused:
                raise
            return act()

    def _list(self, limit: int, after: tuple[str, str], keep: Keep) -> LetterPage:
        with self._reader() as reader:
            # The queue's count is exact if the last listing was empty. Then skip the basic.get, which a quorum
            # queue writes to disk.
            if self._was_empty and not count_letters(self._connected()):
                return LetterPage([], more=False, incomplete=None)
            page = _OldestLetters(limit, after)
            matched = 0
            for letter in reader.letters():
                if keep(letter):
                    matched += 1
                    page.add(letter)
            self._was_empty = not reader.taken
            return LetterPage(page.letters, page.cut, reader.stopped, matched)

    def _send(self, letter: DeadLetter) -> None:
        connection = self._connected().connection
        exchange = letter.exchange
        if exchange not in self._exits:
            raise NotReplayable(f"its source exchange is unknown to the sidecar: {exchange or 'not recorded'}")
        properties = letter.original_properties()
        if not fits(properties, frame_max(connection)):
            raise NotReplayable("its properties and headers exceed the connection's frame_max")
        channel = connection.channel()
        channel.confirm_delivery()
        try:
            channel.basic_publish(exchange, letter.key, letter.body, RawProperties(properties), mandatory=True)
        except UnroutableError:
            raise NotReplayable(f"no queue is bound to {exchange} for {letter.routing_key!r}") from None
        except NackError:
            raise NotReplayable("a queue rejected it; it may be full") from None
        except ChannelClosedByBroker as error:
            raise NotReplayable(f"the broker rejected it: {error.reply_text}") from None
        finally:
            if channel.is_open:
                channel.close()

    @contextmanager
    def _reader(self) -> Iterator[DeadLetterReader]:
        """Provide a reader; afterwards requeue all messages that it took and did not remove."""
        with self._lock, self._broker_errors():
            reader = DeadLetterReader(self._connected(), self._returned)
            try:
                yield reader
            except (AMQPError, OSError):
                raise
            except Exception:
                self._requeue(reader)
                raise
            self._requeue(reader)

    def _requeue(self, reader: DeadLetterReader) -> None:
        reader.requeue()
        self._returned = reader.taken

    @contextmanager
    def _broker_errors(self) -> Iterator[None]:
        """Close the connection if it failed or its state is unknown."""
        try:
            yield
        except (AMQPError, OSError) as error:
            self.close()
            raise RabbitUnavailable(f"RabbitMQ: {reason(error)}") from error
        except Exception:
            raise
        except BaseException:
            self.close()  # requeues the consumed messages
            raise

    def _connected(self) -> BlockingChannel:
        channel = self._channel
        if channel is not None:
            try:
                channel.connection.process_data_events()  # raises if the broker has closed it
            except (AMQPError, OSError):
                channel = None
        if channel is None or not channel.is_open:
            self.close()
            self._was_empty = False
            self._channel = self._open().channel()
        assert self._channel is not None  # noqa: S101 - it was opened
        return self._channel

    def _open(self) -> pika.BlockingConnection:
        problems = []
        for url in self._urls:
            try:
                return blocking(parameters(url, "dead letters"))
            except (AMQPError, OSError) as error:
                problems.append(f"RabbitMQ at {broker_name(url)}: {reason(error)}")
        raise RabbitUnavailable("; ".join(problems))


class _OldestLetters:
    """Keeps the oldest letters after a position, as many as a page may have."""

    def __init__(self, limit: int, after: tuple[str, str]) -> None:
        self._limit, self._after = limit, after
        self._before: tuple[str, str] | None = None  # the position of the oldest that was left out
        self._bytes = 0
        self.letters: list[DeadLetter] = []

    @property
    def cut(self) -> bool:
        """Whether there are more letters than a page may have."""
        return self._before is not None

    def add(self, letter: DeadLetter) -> None:
        if letter.position <= self._after or (self._before is not None and letter.position >= self._before):
            return
        shown = replace(letter, body=letter.body[: SHOWN_BYTES + 1])
        insort(self.letters, shown, key=lambda letter: letter.position)
        self._bytes += _weight(shown)
        while len(self.letters) > self._limit or (self._bytes > PAGE_BYTES and len(self.letters) > 1):
            left_out = self.letters.pop()
            self._before = left_out.position
            self._bytes -= _weight(left_out)


def _weight(letter: DeadLetter) -> int:
    return len(letter.body) + _PARSED * len(letter.raw)


def _find(reader: DeadLetterReader, letter_id: str) -> DeadLetter | None:
    match = None
    for letter in reader.letters():
        if match is None and letter.id == letter_id:
            match = letter
    return match
