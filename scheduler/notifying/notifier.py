"""A thread of every consumer and producer; one of all replicas calls the URL of SCHEDULER_NOTIFY_WEBHOOK."""

import asyncio
import threading
import time
from datetime import UTC, datetime

from scheduler.domain.errors import Misconfigured, Unavailable
from scheduler.domain.messages import ResultStatus
from scheduler.domain.targets.urls import endpoint, host_name
from scheduler.notifying.body import build_request
from scheduler.ops import metrics
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.postgres.notifications import NotificationSession
from scheduler.processes.runtime import Stop
from scheduler.settings import Settings
from scheduler.workers.outcome import WorkOutcome
from scheduler.workers.webhook.http_call import WebhookCaller
from scheduler.workers.webhook.request import WebhookRequest
from scheduler.workers.webhook.secrets_file import signing_key

log = get_logger(__name__)
_failed = ThrottledWarning(log, "notification not delivered; retrying")

TICK_SECONDS = 5.0
CALL_SECONDS = 10.0  # minimum time between two calls; one call has all notifications of that time
MAX_CALL_SECONDS = 300.0  # between two attempts while calls fail


class Notifier:
    """Records problems in the database and sends them. It uses a separate connection and delays nothing else."""

    def __init__(self, settings: Settings, stop: Stop) -> None:
        """Check the settings. Raises Misconfigured."""
        url, secret = settings.notify_webhook, settings.notify_secret
        if url is None or secret is None or not signing_key(secret):
            raise Misconfigured("SCHEDULER_NOTIFY_WEBHOOK needs SCHEDULER_NOTIFY_SECRET: whsec_ and a base64 key")
        self._url, self._secret = url, secret
        self._settings = settings
        self._stop = stop
        self._session: NotificationSession | None = None
        self._call_at = 0.0
        self._pause = CALL_SECONDS
        self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)

    def start(self) -> "Notifier":
        """Start the thread."""
        self._thread.start()
        return self

    def _run(self) -> None:
        while not self._stop.wait(TICK_SECONDS):
            try:
                self._turn()
            except Unavailable as error:
                log.debug("no notifications: database unavailable", problem=str(error))
                self._close()
            except Exception:
                log.exception("notifications failed", do="report this; reminders are not affected")
                self._close()
        self._close()

    def _turn(self) -> None:
        if self._session is None:
            self._session = NotificationSession(self._settings.database_url)
        if not self._session.lead():
            return
        self._session.record()
        now = time.monotonic()
        if now < self._call_at:
            return
        notifications, more = self._session.unsent()
        if not notifications:
            return
        request = build_request(self._url, self._secret, notifications, more, datetime.now(UTC))
        outcome = asyncio.run(_call(self._settings, request))
        if outcome.status is ResultStatus.SUCCEEDED:
            self._session.mark_sent(notifications)
            self._pause = CALL_SECONDS
        else:
            _failed.warning(problem=outcome.error, do="check SCHEDULER_NOTIFY_WEBHOOK and its endpoint")
            self._pause = min(2 * self._pause, MAX_CALL_SECONDS)
        metrics.notifications.labels(outcome.status.value).inc()
        self._call_at = time.monotonic() + self._pause

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


async def _call(settings: Settings, request: WebhookRequest) -> WorkOutcome:
    caller = WebhookCaller(settings)
    caller.open()
    try:
        result = await caller.call(request, endpoint(request.url), host_name(request.url), MAX_CALL_SECONDS)
    finally:
        await caller.close()
    return result.outcome
