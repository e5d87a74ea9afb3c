"""Statements that are asked again and again, planned once: to plan a list takes longer than to read it."""

from typing import Any

from scheduler.postgres.client_timeout import TimedConnection
from scheduler.postgres.connection import Cursor
from scheduler.resources import query

MOST_PLANS = 8  # that a session keeps: each takes the server some memory
_MOST_SEEN = 100


def execute_prepared(cursor: Cursor, statement: str, *values: Any) -> None:
    """Run a statement with $1, $2 … in it, planned when the session first meets it."""
    session: TimedConnection = cursor.connection  # type: ignore[assignment]  # the only kind that we make
    name = session.plans.get(statement)
    if name is None:
        name = f"plan_{session.planned}"
        session.planned += 1
        cursor.execute(query("sessions/prepare").format(name=name, statement=statement))
        if len(session.plans) >= MOST_PLANS:
            _, oldest = session.plans.popitem(last=False)
            cursor.execute(query("sessions/deallocate").format(name=oldest))
        session.plans[statement] = name
    else:
        session.plans.move_to_end(statement)
    asked = f" ({', '.join(['%s'] * len(values))})" if values else ""
    cursor.execute(query("sessions/execute").format(name=name) + asked, values or None)


def execute_if_repeated(cursor: Cursor, statement: str, values: dict[str, Any]) -> None:
    """Run a statement; with the same values again it is not planned again, for these and no others."""
    session: TimedConnection = cursor.connection  # type: ignore[assignment]
    text = cursor.mogrify(statement, values).decode()
    if text in session.seen:
        session.seen.move_to_end(text)
        execute_prepared(cursor, text)
        return
    session.seen[text] = None
    if len(session.seen) > _MOST_SEEN:
        session.seen.popitem(last=False)
    cursor.execute(text)
