"""The process Postgres → AMQP: whatever falls due becomes messages."""

from contextlib import ExitStack, closing, suppress

from scheduler.domain.errors import Unavailable
from scheduler.domain.names import DELAYED_EXCHANGE
from scheduler.emitting.loop import SESSIONS, Emitter
from scheduler.emitting.poll_schedule import MAX_FULL_SCAN_SECONDS
from scheduler.emitting.results_probe import ResultsProbe
from scheduler.emitting.sources.delayed import DueDelayed
from scheduler.emitting.sources.jobs import DueJobs
from scheduler.emitting.sources.runs import DueRuns
from scheduler.ops.health import HealthPart
from scheduler.ops.logs import get_logger
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
) -> tuple[DueJobs, DueRuns, DueDelayed]:
    """Return whatever falls due: a new kind of thing adds its source here."""
    jobs = DueJobs(keep_all=settings.history == "all", topology_wanted=link.topology_wanted)
    return jobs, DueRuns(after_outage=after_outage, probe=probe), _delayed(settings, link)


def _delayed(settings: Settings, link: Link) -> DueDelayed:
    exits = [DELAYED_EXCHANGE, *(name for name, _ in settings.delay_exchanges)]
    return DueDelayed(link.user, link.frame_max, exits)


class Producer:
    """Keeps the emitting loop supplied with connections, through the outages of both servers."""

    def __init__(self, settings: Settings, stop: Stop, health: HealthPart) -> None:
        self._settings = settings
        self._stop = stop
        self._health = health
        # However long it may sleep, what a replica that died has let go of must be found in time.
        self._poll = min(settings.poll_interval_ms / 1000, MAX_FULL_SCAN_SECONDS)
        self._after_outage = False  # of the database
        self._slow_routes = SlowRoutes()

    def run(self, link: Link) -> None:
        """Serve one connection to the broker until it is lost or the process shall stop."""
        delays = backoff(most=5.0)
        publisher = EventPublisher(link, self._slow_routes)
        while not self._stop:
            try:
                self._emit(link, publisher)
            except RabbitUnavailable:
                if link.blocked and link.closed is None:
                    continue  # its alarm passes; a new connection would be blocked as well
                # Half open, or a queue without its majority: the next connection, or the next node, may do better.
                link.close()
                raise
            except (Unavailable, Unstorable) as error:
                self._after_outage = True
                if link.closed is not None:
                    raise
                self._health.missing("postgres", str(error))
                log.warning("due rows are given up and claimed again", problem=str(error),
                            do="check that Postgres runs and that `scheduler migrate` was run")
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
            # Whatever happened, what the broker has confirmed need not be sent again.
            with suppress(Unavailable, Unstorable):
                emitter.settle()

    def _blocked(self, link: Link) -> bool:
        """Wait a little while the broker refuses publishers: no row is held meanwhile."""
        if link.closed is not None:
            raise RabbitUnavailable(link.closed)
        if not link.blocked:
            self._health.found("rabbitmq")
            return False
        self._health.missing("rabbitmq", "it blocks publishers: its memory or disk alarm is on")
        self._stop.wait(self._poll)
        return True
