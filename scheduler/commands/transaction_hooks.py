"""One who is there while commands are applied."""

from collections.abc import Mapping
from datetime import datetime

from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.jobs.job import Job
from scheduler.domain.messages import DEFAULT_TENANT
from scheduler.domain.runs.run import Run
from scheduler.postgres.connection import Cursor


class TransactionHooks:
    """One who is there while commands are applied: the API, for a caller who waits for what becomes of them."""

    def jobs_locked(self, known: Mapping[str, Job], now: datetime) -> None:
        """Look at the jobs before anything is applied; raise to have everything stay as it is."""

    def runs_locked(self, known: Mapping[str, Run]) -> None:
        """The same for the runs that retries or results are about."""

    def may_cancel_delayed(self, incoming: Incoming) -> bool:
        """Tell whether a cancel may also be about a delayed message, which belongs to no tenant.

        Over AMQP, where nobody attends: under the tenant that messages have by default.
        """
        return incoming.tenant == DEFAULT_TENANT

    def saved(self, cursor: Cursor) -> None:
        """Look at what was saved, before it is committed."""


NO_HOOKS = TransactionHooks()
