"""Prepare repeated statements once per session: planning a list takes longer than reading it."""

from typing import Any

from scheduler.postgres.client_timeout import TimedConnection
from scheduler.postgres.connection import Cursor
from scheduler.resources import query

MAX_PLANS = 8  # per session, to limit the server's memory
_MAX_SEEN = 100


def execute_prepared(cursor: Cursor, statement: str, *values: Any) -> None:
    """Run a statement with parameters $1, $2 …; prepare it on first use in the session."""
    session: TimedConnection = cursor.connection  # type: ignore[assignment]  # connect() returns no other type
    name = session.plans.get(statement)
    if name is None:
        name = f"plan_{session.planned}"
        session.planned += 1
        cursor.execute(query("sessions/prepare").format(name=name, statement=statement))
        if len(session.plans) >= MAX_PLANS:
            _, oldest = session.plans.popitem(last=False)
            cursor.execute(query("sessions/deallocate").format(name=oldest))
        session.plans[statement] = name
    else:
        session.plans.move_to_end(statement)
    parameters = f" ({', '.join(['%s'] * len(values))})" if values else ""
    cursor.execute(query("sessions/execute").format(name=name) + parameters, values or None)


def execute_if_repeated(cursor: Cursor, statement: str, values: dict[str, Any]) -> None:
    """Run a statement; prepare it when it repeats with the same values, for these values only."""
    session: TimedConnection = cursor.connection  # type: ignore[assignment]
    text = cursor.mogrify(statement, values).decode()
    if text in session.seen:
        session.seen.move_to_end(text)
        execute_prepared(cursor, text)
        return
    session.seen[text] = None
    if len(session.seen) > _MAX_SEEN:
        session.seen.popitem(last=False)
    cursor.execute(text)
