"""Record what each consumer of scheduler_results has read, so that producers detect unread results."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from scheduler.postgres.claims import ClaimSession, array
from scheduler.postgres.connection import Connection, database_time, transaction
from scheduler.postgres.maintenance_queries import STALE_SECONDS
from scheduler.postgres.runs.store import KIND
from scheduler.postgres.wakeup import wake_producers
from scheduler.resources import query


class ReaderRegistration(NamedTuple):
    """Times of a reader's registration."""

    connected_at: datetime
    clean_at: datetime


class MarkerState(NamedTuple):
    """State of a marker, if one was requested, and of all readers."""

    id: str | None
    read: bool
    unread: bool  # a live reader may hold results that were delivered before the marker was read
    returned: bool  # results were requeued since the marker was sent
    silent: list[str]  # readers that the broker must have dropped by now
    connected_since: datetime | None  # of the live readers; None if there is none
    unmarked: bool  # a consumer of an older release reads results
    checked_at: datetime


def register(
    connection: Connection, reader_id: str, connected_at: datetime | None, silent_after: float
) -> ReaderRegistration:
    """Register a reader; `connected_at` is None on a new connection to the broker."""
    with transaction(connection) as cursor:
        cursor.execute(query("results/register_reader"), {
            "id": reader_id, "connected_at": connected_at, "silent_after": silent_after,
        })
        [row] = cursor.fetchall()
        return ReaderRegistration(*row)


def beat(connection: Connection, reader_id: str) -> None:
    """Record a reader's heartbeat."""
    with transaction(connection) as cursor:
        cursor.execute(query("results/beat_reader"), {"id": reader_id})


def find_marker(connection: Connection, reader_id: str, clean_at: datetime) -> datetime | None:
    """Return the time if another consumer has read a marker since `clean_at`."""
    with transaction(connection) as cursor:
        cursor.execute(query("results/find_marker"), {"id": reader_id, "clean_at": clean_at})
        row = cursor.fetchone()
        return None if row is None else row[0]


def confirm_clean(connection: Connection, reader_id: str, clean_at: datetime, *, returned: bool) -> None:
    """Record that everything delivered to a reader before `clean_at` is committed, and wake the producers."""
    with transaction(connection) as cursor:
        cursor.execute(query("results/confirm_clean"), {
            "id": reader_id, "clean_at": clean_at, "returned": returned,
        })
        wake_producers(cursor, KIND, clean_at)


def record_markers(
    connection: Connection, reader_id: str, markers: Sequence[str], *, returned: bool
) -> None:
    """Record that a reader has read markers and committed everything before them; wake the producers."""
    with transaction(connection) as cursor:
        cursor.execute(query("results/record_markers"), {
            "id": reader_id, "markers": array(markers), "returned": returned,
        })
        wake_producers(cursor, KIND, database_time(cursor))


def remove(connection: Connection, reader_id: str) -> None:
    """Unregister a reader, which has requeued its unacknowledged deliveries."""
    with transaction(connection) as cursor:
        cursor.execute(query("results/remove_readers"), {"ids": array([reader_id])})


def check_markers(session: ClaimSession, sent: dict[str, datetime]) -> list[MarkerState]:
    """Return the state of the sent markers; without any, the state of the readers."""
    values = {
        "ids": array(sent), "sent_at": [at.isoformat() for at in sent.values()], "stale_after": STALE_SECONDS,
    }
    return [MarkerState(*row) for row in session.query(query("results/check_markers"), values)]


def remove_silent(session: ClaimSession, reader_ids: Sequence[str]) -> None:
    """Remove readers that the broker has dropped: their results are in the queue again."""
    session.query(query("results/remove_readers"), {"ids": array(reader_ids)})


def wake_expired(session: ClaimSession, seconds: float) -> None:
    """Make expired attempts due at once that were postponed by up to `seconds`."""
    session.query(query("runs/wake_expired"), {"seconds": seconds})
