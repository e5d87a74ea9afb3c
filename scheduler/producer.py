"""The process Postgres → AMQP: due rows become events."""

import time
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
        self._poll = settings.poll_interval_ms / 1000

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
                _land(before, floor)
                if not flight.full:
                    _land(flight, floor)
                    if flight.refused:
                        publisher.renew()
                    self._rest(flight, floor, wakeup)
        finally:
            # Whatever happened, what the broker has confirmed need not be sent again.
            with suppress(Unavailable):
                _land(flying, floor)

    def _rest(self, flight: Flight, floor: Floor, wakeup: Wakeup) -> None:
        """Sleep until the next job is due, the poll interval is over or a command brings something sooner."""
        if flight.leaves_due:
            return
        next_due = flight.seconds_to_next
        seconds = self._poll if next_due is None else min(next_due + 0.0002, self._poll)
        sooner = wakeup.wait(max(seconds, REST_SECONDS - flight.age))
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


def _land(flight: Flight | None, floor: Floor) -> None:
    """Land a flight, once; what it leaves due lies below the floor."""
    if flight is not None and not flight.landed:
        flight.land()
        if flight.leaves_due:
            floor.reset()
