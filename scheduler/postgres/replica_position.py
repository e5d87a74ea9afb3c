"""Read the write-ahead log positions of a primary and its streaming replica."""

import math

from scheduler.domain.errors import Unavailable
from scheduler.postgres.connection import Connection, translated
from scheduler.resources import query


def written_position(connection: Connection) -> int:
    """Return the end of the primary's log. Raises Unavailable if the server is a standby."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("sessions/written_position"))
        [(position,)] = cursor.fetchall()
    if position is None:
        raise Unavailable("DATABASE_URL leads to a standby")
    return int(position)


def replayed_position(connection: Connection) -> float:
    """Return the position to which a replica has replayed the log; infinite on a primary, which has everything."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("sessions/replayed_position"))
        [(standby, position)] = cursor.fetchall()
    if not standby:
        return math.inf
    if position is None:
        raise Unavailable("DATABASE_READ_URL leads to a standby that does not stream from the primary")
    return float(position)
