"""Hooks that run inside the transaction of a batch."""

from collections.abc import Mapping
from datetime import datetime

from scheduler.domain.jobs.job import Job
from scheduler.domain.runs.run import Run
from scheduler.postgres.connection import Cursor


class TransactionHooks:
    """Checks and reads that an operator's command makes in its transaction; the defaults apply to AMQP."""

    def jobs_locked(self, jobs: Mapping[str, Job], now: datetime) -> None:
        """Check the locked jobs before the commands are applied; raise to roll back."""

    def runs_locked(self, runs: Mapping[str, Run]) -> None:
        """Check the locked runs before retries or results are applied; raise to roll back."""

    def saved(self, cursor: Cursor) -> None:
        """Read the saved rows before the commit."""


NO_HOOKS = TransactionHooks()
