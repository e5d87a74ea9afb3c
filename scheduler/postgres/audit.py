"""Write audit entries in the transaction of the change, and list them."""

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
    """One change: caller, action, object, owner tenant, and the changed fields as JSON."""

    caller: Caller
    action: str
    kind: str
    thing: str
    tenant: str
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Filter for audit entries."""

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
    """A stored entry; `place` orders entries with the same time."""

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
    batch: str | None = None
    reason: str | None = None


@dataclass(slots=True)
class StatusChange:
    """A change of a job's status, and who made it."""

    at: datetime
    who: str | None
    via: str
    action: str
    status: str
    reason: str | None


def write_entries(cursor: Cursor, entries: Sequence[AuditEntry]) -> None:
    """Insert entries in the transaction of their changes."""
    rows = [(
        entry.caller.who, entry.caller.via, entry.action, entry.kind, entry.thing, entry.tenant,
        entry.caller.address, entry.before, entry.after, entry.caller.batch, entry.caller.reason,
    ) for entry in entries]
    if len(rows) == 1:
        cursor.execute(query("audit/insert"), rows[0])
    else:
        cursor.copy_expert(query("audit/copy"), io.StringIO("".join(map(copy_line, rows))), size=1 << 20)


def write_entry(connection: Connection, entries: Sequence[AuditEntry]) -> None:
    """Insert entries about changes outside the database."""
    with transaction(connection) as cursor:
        write_entries(cursor, entries)


def list_audit(
    connection: Connection, wanted: AuditFilter, limit: int, after: tuple[datetime, str] | None = None
) -> list[AuditRow]:
    """Return up to `limit` entries after the position `after`, newest first."""
    before, before_place = after or (None, None)
    values = asdict(wanted) | {
        "limit": limit, "before": before, "before_place": before_place, "job_id": _uuid(wanted.thing),
    }
    with translated(), connection.cursor() as cursor:
        cursor.execute(_PAGE, values)
        return [AuditRow(*row) for row in cursor]


def status_changes(connection: Connection, job_id: str, tenant: str, until: datetime) -> list[StatusChange]:
    """Return the newest changes of a job's status before a time, newest first."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("audit/status_changes"), {"job": job_id, "tenant": tenant, "until": until})
        return [StatusChange(*row) for row in cursor]


def _uuid(text: str | None) -> str | None:
    try:
        return None if text is None else str(UUID(text))
    except ValueError:
        return None
