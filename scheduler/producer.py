"""The process Postgres → AMQP: due rows become events."""

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from datetime import datetime

from scheduler.domain.errors import Unavailable
from scheduler.flight import Flight
from scheduler.ops.health import Health
from scheduler.ops.logs import get_logger
from scheduler.postgres.claims import LONG_AGO, Claims
from scheduler.postgres.wakeup import Wakeup
from scheduler.rabbit.link import BrokerUnavailable, Link
from scheduler.rabbit.publisher import Publisher
from scheduler.runtime import Stop, backoff
from scheduler.settings import Settings

log = get_logger(__name__)

# Wake-ups closer together than this become one.
REST_SECONDS = 0.003
# Who woke for a job and found it taken lets the other go first next time, and does not slow it down.
YIELD_SECONDS = 0.0015
# A look from the bottom takes at most a twentieth of the time, but what a replica that died has let go of must
# be found well before 30 seconds are over, of which the database itself may take 15.
LOOK_SHARE = 20.0
MOST_LOOK_SECONDS = 8.0


class Floor:
    """Where the claim's index scan may begin, so that it does not walk over what was claimed already.

    Now and then, and whenever something may have come below it, the scan starts from the very bottom. Where
    that takes long, because another client's old snapshot keeps what is dead in the index, it comes less often.
    """

    def __init__(self, every: float) -> None:
        self._every = every
        self._next_look = 0.0
        self.reset()

    def reset(self) -> None:
        self._bound = LONG_AGO

    def lower(self, to: datetime) -> None:
        self._bound = min(self._bound, to)

    def bound(self) -> datetime:
        if time.monotonic() >= self._next_look:
            self.reset()
        return self._bound

    def rise(self, newest: datetime | None, claim_seconds: float) -> None:
        if self._bound == LONG_AGO:
            pause = min(LOOK_SHARE * claim_seconds, MOST_LOOK_SECONDS)
            self._next_look = time.monotonic() + max(self._every, pause)
        self._bound = newest or self._bound


class Producer:
    """Claims, publishes and settles; while one batch waits for its confirms the next is on its way."""

    def __init__(self, settings: Settings, stop: Stop, health: Health) -> None:
        self._settings = settings
        self._stop = stop
        self._health = health
        # However long it may sleep, what a replica that died has let go of must be found in time.
        self._poll = min(settings.poll_interval_ms / 1000, MOST_LOOK_SECONDS)

    def run(self, link: Link) -> None:
        """Serve one connection to the broker until it is lost or the process shall stop."""
        delays = backoff(most=5.0)
        publisher = Publisher(link)
        while not self._stop:
            try:
                with ExitStack() as stack:
                    url = self._settings.database_url
                    lanes = [stack.enter_context(closing(Claims(url, f"producer {n}"))) for n in (1, 2)]
                    wakeup = stack.enter_context(closing(Wakeup(url, "producer wakeup")))
                    self._health.found("postgres")
                    with self._stop.wakes(wakeup.write_end):
                        self._loop(link, publisher, lanes, wakeup)
            except BrokerUnavailable:
                if link.blocked and link.closed is None:
                    continue  # its alarm passes; a new connection would be blocked as well
                # Half open, or a queue without its majority: the next connection, or the next node, may do better.
                link.close()
                raise
            except Unavailable as error:
                if link.closed is not None:
                    raise
                self._health.missing("postgres", str(error))
                log.warning("due jobs are given up and claimed again", problem=str(error),
                            do="check that Postgres runs and that `scheduler migrate` was run")
                self._stop.wait(next(delays))
                self._health.turn()

    def _loop(self, link: Link, publisher: Publisher, lanes: list[Claims], wakeup: Wakeup) -> None:
        floor = Floor(self._poll)
        flying: Flight | None = None
        expected = False
        try:
            while not self._stop:
                self._health.turn()
                if self._blocked(link):
                    _land(flying, floor)
                    continue
                lanes.reverse()
                flight = Flight(lanes[0], self._settings.batch_size, floor.bound())
                floor.rise(flight.newest, flight.claim_seconds)
                flight.take_off(publisher)
                before, flying = flying, flight
                returning = [_land(before, floor)]
                if flight.full:
                    self._listen(0.0, floor, wakeup)
                    expected = False
                else:
                    returning.append(_land(flight, floor))
                    if flight.refused:
                        publisher.renew()
                    late = YIELD_SECONDS if expected and flight.newest is None else 0.0
                    expected = self._rest(flight, returning, floor, wakeup, late)
        finally:
            # Whatever happened, what the broker has confirmed need not be sent again.
            with suppress(Unavailable):
                _land(flying, floor)

    def _rest(
        self, flight: Flight, returning: Sequence[datetime | None], floor: Floor, wakeup: Wakeup, late: float
    ) -> bool:
        """Sleep until the next job is due, the poll interval is over or a command brings something sooner.

        `returning` is what was settled after the flight's claim had looked for the next job. Return whether a job
        is expected to be due by then: as the next claim takes a while to begin, it does not come too early.
        """
        waits = [flight.seconds_to(each) for each in returning if each is not None]
        if flight.seconds_to_next is not None:
            waits.append(flight.seconds_to_next)
        seconds = min(waits, default=self._poll) + late
        rest = 0.0 if flight.newest is None else REST_SECONDS - flight.age
        self._listen(max(min(seconds, self._poll), rest), floor, wakeup)
        return seconds < self._poll

    def _listen(self, seconds: float, floor: Floor, wakeup: Wakeup) -> None:
        """Hear what consumers say, for so long; who never listens is hung up on by the database in the end."""
        sooner = wakeup.wait(seconds)
        if sooner is not None:
            floor.lower(sooner)

    def _blocked(self, link: Link) -> bool:
        """Wait a little while the broker refuses publishers: no row is held meanwhile."""
        if link.closed is not None:
            raise BrokerUnavailable(link.closed)
        if not link.blocked:
            self._health.found("rabbitmq")
            return False
        self._health.missing("rabbitmq", "it blocks publishers: its memory or disk alarm is on")
        self._stop.wait(self._poll)
        return True


def _land(flight: Flight | None, floor: Floor) -> datetime | None:
    """Land a flight, once, and return when the first of its jobs is due again.

    That may be below the floor: another flight may have been claimed meanwhile and have raised it.
    """
    if flight is None or flight.landed:
        return None
    flight.land()
    if flight.returns_at is not None:
        floor.lower(flight.returns_at)
    return flight.returns_at
