"""Stored calendars for previews; the database is opened only if a preview names one."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Self

from scheduler import settings
from scheduler.domain.recurrence.adjustment_fields import FindCalendar
from scheduler.domain.recurrence.business_calendar import BusinessCalendar
from scheduler.domain.tenants import DEFAULT_TENANT


class NamedCalendars:
    """Finds calendars by tenant and name."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._connection: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def finder(self, fields: Mapping[str, Any]) -> FindCalendar:
        """Return a function that finds the calendar of a preview by name. Raises KeyError."""
        tenant = fields.get("tenant") or DEFAULT_TENANT
        return lambda name: self._find(str(tenant), name)

    def _find(self, tenant: str, name: str) -> BusinessCalendar:
        # Only a preview with a stored calendar needs a database.
        from scheduler.cli.verb_helpers import open_connection  # noqa: PLC0415 - as above
        from scheduler.postgres.effective_calendars import TenantCalendar, read_effective  # noqa: PLC0415 - as above

        if self._connection is None:
            config = settings.load(os.environ)
            self._connection = self._stack.enter_context(open_connection(config, "preview"))
        key = TenantCalendar(tenant, name)
        effective = read_effective(self._connection, key)
        self._connection.rollback()
        return effective[key].calendar
