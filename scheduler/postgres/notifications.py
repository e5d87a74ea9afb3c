"""Records problems for SCHEDULER_NOTIFY_WEBHOOK, and what of them was sent."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from scheduler.postgres.claims import PLANNER
from scheduler.postgres.connection import connect, translated
from scheduler.postgres.schema import lock_key
from scheduler.postgres.worker_rows import STALE_SECONDS
from scheduler.resources import query

LATE_SECONDS = 60.0  # a reminder or a run that waits for this long is a problem
MOST = 1000  # problems of one kind that are looked at, of each tenant
MOST_DEAD = 100  # dead runs that are reported one by one, of each tenant and hour
READ_DEAD = 10_000  # dead runs that are read at once
MAX_SENT = 50  # in one call
_NOTIFYING = 0x5C4ED04E  # advisory lock of the session that notifies


class Notification(NamedTuple):
    """A problem that began or was resolved."""

    kind: str
    subject: str
    tenant: str | None
    event_id: str | None
    firing: bool
    since: datetime
    key: str
    name: str | None = None
    job_type: str | None = None
    error: str | None = None


class NotificationSession:
    """A separate connection. One session of all replicas leads; the lock ends with its connection."""

    def __init__(self, url: str) -> None:
        self._connection = connect(url, "notifier", statement_timeout="5s", lock_timeout="1s", **PLANNER)
        self._connection.autocommit = True
        self._leads = False

    def lead(self) -> bool:
        """Return whether this session is the one that notifies."""
        if not self._leads:
            with translated(), self._connection.cursor() as cursor:
                key = lock_key(self._connection.schema, _NOTIFYING)
                cursor.execute(query("notifications/lead"), {"key": key})
                [(self._leads,)] = cursor.fetchall()
                if self._leads:
                    cursor.execute(query("notifications/begin"))
        return self._leads

    def record(self) -> None:
        """Record the problems that began or ended."""
        with translated(), self._connection.cursor() as cursor:
            limits = {"late": LATE_SECONDS, "stale_after": STALE_SECONDS, "most": MOST}
            cursor.execute(query("notifications/conditions"), limits)
            rows = cursor.fetchall()
            keys = [f"{kind}:" + ("" if tenant is None else f"{tenant}:") + subject
                    for kind, subject, tenant, _ in rows]
            cursor.execute(query("notifications/end_absent"), {"keys": keys})
            if rows:
                kinds, subjects, tenants, sinces = (list(column) for column in zip(*rows, strict=True))
                cursor.execute(query("notifications/fire"), {
                    "kinds": kinds, "subjects": subjects, "tenants": tenants, "sinces": sinces})
            cursor.execute(query("notifications/end_dead_runs"), limits)
            cursor.execute(query("notifications/fire_dead_runs"), {"read": READ_DEAD, "of_tenant": MOST_DEAD})
            cursor.execute(query("notifications/forget"), limits)

    def unsent(self) -> tuple[list[Notification], int]:
        """Return the notifications to send next, and the number of those that follow."""
        with translated(), self._connection.cursor() as cursor:
            cursor.execute(query("notifications/unsent"), {"most": MAX_SENT})
            rows = cursor.fetchall()
            return [Notification(*row[:-1]) for row in rows], rows[0][-1] - len(rows) if rows else 0

    def mark_sent(self, notifications: Sequence[Notification]) -> None:
        """Record that these were sent."""
        with translated(), self._connection.cursor() as cursor:
            cursor.execute(query("notifications/mark_sent"), {
                "keys": [notification.key for notification in notifications],
                "sinces": [notification.since for notification in notifications],
            })

    def close(self) -> None:
        """Close the connection, so that another replica leads."""
        self._connection.close()
