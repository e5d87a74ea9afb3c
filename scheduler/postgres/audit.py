"""Who changed what: written in the transaction of the change, read by people."""

import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from scheduler.domain.caller import Caller
from scheduler.postgres.connection import Connection, Cursor, transaction, translated
from scheduler.postgres.row_text import copy_line
from scheduler.resources import query

_PAGE = query("audit/page", newest=query("jobs/page_newest", wanted=query("audit/created_filter"), by=""))


@dataclass(slots=True)
class AuditEntry:
    """One change: by whom, what, to which thing of whose; and what differs, as JSON texts."""

    caller: Caller
    action: str
    kind: str
    thing: str
    tenant: str
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which entries are asked for."""

    who: str | None = None
    via: str | None = None
    action: str | None = None
    kind: str | None = None
    thing: str | None = None
    tenant: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(slots=True)
class AuditRow:
    """An entry as it is read; `place` tells those of one moment apart."""

    place: str
    at: datetime
    who: str | None
    via: str
    action: str
    kind: str
    thing: str
    tenant: str
    address: str | None
    before: Any
    after: Any


def write_entries(cursor: Cursor, entries: Sequence[AuditEntry]) -> None:
    """Add entries, in the transaction of what they tell of."""
    rows = [(
        each.caller.who, each.caller.via, each.action, each.kind, each.thing, each.tenant, each.caller.address,
        each.before, each.after,
    ) for each in entries]
    if len(rows) == 1:
        cursor.execute(query("audit/insert"), rows[0])
    else:
        cursor.copy_expert(query("audit/copy"), io.StringIO("".join(map(copy_line, rows))), size=1 << 20)


def write_entry(connection: Connection, entries: Sequence[AuditEntry]) -> None:
    """Add entries about what happened elsewhere than in the database."""
    with transaction(connection) as cursor:
        write_entries(cursor, entries)


def list_audit(
    connection: Connection, wanted: AuditFilter, limit: int, after: tuple[datetime, str] | None = None
) -> list[AuditRow]:
    """Return at most so many entries, newest first, from where the last page ended."""
    before, before_place = after or (None, None)
    values = asdict(wanted) | {
        "limit": limit, "before": before, "before_place": before_place, "job_id": _uuid(wanted.thing),
    }
    with translated(), connection.cursor() as cursor:
        cursor.execute(_PAGE, values)
        return [AuditRow(*row) for row in cursor]


def _uuid(text: str | None) -> str | None:
    try:
        return None if text is None else str(UUID(text))
    except ValueError:
        return None
