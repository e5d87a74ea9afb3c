"""Locks that nobody else has to wait for: asked for briefly, and again later."""

import time
from collections.abc import Callable

from psycopg2 import errors

from scheduler.domain.errors import Unavailable
from scheduler.ops.logs import get_logger
from scheduler.postgres.connection import Connection, Contended, translated
from scheduler.resources import query

log = get_logger(__name__)

# Who waits for an exclusive lock on a table makes everyone who comes later wait behind it, as long as the oldest
# transaction on that table may last. So it gives up its place, lets them pass, and tries again.
MOST_WAIT = "100ms"
_FIRST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 0.2, 2.0


def with_brief_lock(connection: Connection, act: Callable[[], None]) -> None:
    """Do `act`, which rolls back when it fails, until it gets its locks; each time it waits but briefly."""
    pause = _FIRST_PAUSE_SECONDS
    _set_lock_timeout(connection, MOST_WAIT)
    while True:
        try:
            act()
        except Unavailable as error:
            if not isinstance(error, Contended) and not isinstance(error.__cause__, errors.LockNotAvailable):
                raise
            log.info("a lock is in use: trying again", again_in=pause, problem=str(error),
                     do="nothing, unless it goes on: then see pg_stat_activity for a transaction left open")
            time.sleep(pause)
            pause = min(2 * pause, _MOST_PAUSE_SECONDS)
        else:
            _set_lock_timeout(connection, "0")
            return


def _set_lock_timeout(connection: Connection, value: str) -> None:
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("sessions/set"), {"name": "lock_timeout", "value": value})
        if not connection.autocommit:
            connection.commit()
