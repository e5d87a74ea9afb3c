"""The producer process: publishes due rows as messages."""

from contextlib import ExitStack, closing, suppress

from scheduler.domain.errors import Unavailable
from scheduler.domain.names import DELAYED_EXCHANGE
from scheduler.emitting.loop import SESSIONS, Emitter
from scheduler.emitting.poll_schedule import MAX_FULL_SCAN_SECONDS
from scheduler.emitting.results_probe import ResultsProbe
from scheduler.emitting.sources.delayed import DueDelayed
from scheduler.emitting.sources.jobs import DueJobs
from scheduler.emitting.sources.runs import DueRuns
from scheduler.emitting.sources.skips import DueSkips
from scheduler.ops.health import HealthPart
from scheduler.ops.logs import get_logger
from scheduler.ops.replica import REPLICA_ID
from scheduler.postgres.claims import ClaimSession
from scheduler.postgres.connection import Unstorable
from scheduler.postgres.wakeup import Wakeup
from scheduler.processes.runtime import Stop, backoff
from scheduler.rabbit.event_publisher import EventPublisher
from scheduler.rabbit.link import Link, RabbitUnavailable
from scheduler.rabbit.slow_routes import SlowRoutes
from scheduler.settings import Settings

log = get_logger(__name__)


def sources(
    settings: Settings, link: Link, probe: ResultsProbe, *, after_outage: bool
) -> tuple[DueJobs, DueRuns, DueDelayed, DueSkips]:
    """Return the sources of due rows."""
    replica = str(REPLICA_ID)
    jobs = DueJobs(keep_all=settings.history == "all", replica=replica)
    runs = DueRuns(after_outage=after_outage, probe=probe, replica=replica)
    return jobs, runs, _delayed(settings, link), DueSkips()


def _delayed(settings: Settings, link: Link) -> DueDelayed:
    exits = [DELAYED_EXCHANGE, *(name for name, _ in settings.delay_exchanges)]
    return DueDelayed(link.user, link.frame_max, exits)


class Producer:
    """Runs the emitting loop, and reconnects it after outages of either server."""

    def __init__(self, settings: Settings, stop: Stop, health: HealthPart) -> None:
        self._settings = settings
        self._stop = stop
        self._health = health
        # Rows released by a dead replica must be found in time, regardless of the poll interval.
        self._poll = min(settings.poll_interval_ms / 1000, MAX_FULL_SCAN_SECONDS)
        self._after_outage = False  # the database was unavailable
        self._slow_routes = SlowRoutes()

    def run(self, link: Link) -> None:
        """Serve one connection to the broker until it is lost or the process stops."""
        delays = backoff(most=5.0)
        publisher = EventPublisher(link, self._slow_routes)
        while not self._stop:
            try:
                self._emit(link, publisher)
            except RabbitUnavailable:
                if link.blocked and link.closed is None:
                    continue  # a new connection would be blocked as well
                # Half-open connection, or a queue without a majority: another connection or node may work.
                link.close()
                raise
            except (Unavailable, Unstorable) as error:
                self._after_outage = True
                if link.closed is not None:
                    raise
                self._health.missing("postgres", str(error))
                log.warning("claim rolled back; retrying", problem=str(error),
                            do="check that Postgres is running and migrated (`scheduler migrate`)")
                self._stop.wait(next(delays))
                self._health.turn()

    def _emit(self, link: Link, publisher: EventPublisher) -> None:
        with ExitStack() as stack:
            url = self._settings.database_url
            sessions = [
                stack.enter_context(closing(ClaimSession(url, f"producer {n}"))) for n in range(1, SESSIONS + 1)
            ]
            wakeup = stack.enter_context(closing(Wakeup(url, "producer wakeup")))
            self._health.found("postgres")
            after_outage, self._after_outage = self._after_outage, False
            probe = ResultsProbe()
            emitter = stack.enter_context(closing(Emitter(
                sources(self._settings, link, probe, after_outage=after_outage), sessions, wakeup, publisher,
                batch_size=self._settings.batch_size, poll=self._poll,
            )))
            with self._stop.wakes(wakeup.write_end):
                self._loop(link, emitter, probe)

    def _loop(self, link: Link, emitter: Emitter, probe: ResultsProbe) -> None:
        try:
            while not self._stop:
                self._health.turn()
                if self._blocked(link):
                    emitter.settle()
                    probe.resume()
                    continue
                emitter.run_once()
        finally:
            # Settle confirmed events in any case, so that they are not resent.
            with suppress(Unavailable, Unstorable):
                emitter.settle()

    def _blocked(self, link: Link) -> bool:
        """Return whether the broker blocks publishers, after a short wait in which no row is locked."""
        if link.closed is not None:
            raise RabbitUnavailable(link.closed)
        if not link.blocked:
            self._health.found("rabbitmq")
            return False
        self._health.missing("rabbitmq", "it blocks publishers: its memory or disk alarm is on")
        self._stop.wait(self._poll)
        return True
