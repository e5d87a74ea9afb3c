"""Acquire exclusive table locks without blocking other sessions: wait briefly, then retry."""

import time
from collections.abc import Callable

from psycopg2 import errors

from scheduler.domain.errors import Unavailable
from scheduler.ops.logs import get_logger
from scheduler.postgres.connection import Connection, Contended, translated
from scheduler.resources import query

log = get_logger(__name__)

# While a session waits for an exclusive lock on a table, all later sessions queue behind it, for as long as the
# oldest transaction on the table lasts. So it stops waiting, lets them pass, and retries.
MAX_WAIT = "100ms"
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.2, 2.0


def with_brief_lock(connection: Connection, act: Callable[[], None]) -> None:
    """Call `act`, which rolls back on failure, with a short lock timeout until it gets its locks."""
    pause = _FIRST_PAUSE_SECONDS
    _set_lock_timeout(connection, MAX_WAIT)
    while True:
        try:
            act()
        except Unavailable as error:
            if not isinstance(error, Contended) and not isinstance(error.__cause__, errors.LockNotAvailable):
                raise
            log.info("table is locked: retrying", again_in=pause, problem=str(error),
                     do="if this persists, look for an open transaction in pg_stat_activity")
            time.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)
        else:
            _set_lock_timeout(connection, "0")
            return


def _set_lock_timeout(connection: Connection, value: str) -> None:
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("sessions/set"), {"name": "lock_timeout", "value": value})
        if not connection.autocommit:
            connection.commit()
