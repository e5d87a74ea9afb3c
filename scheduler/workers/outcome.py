"""The outcome of an attempt, the same type for webhooks and commands."""

from dataclasses import dataclass
from typing import Any, Self

from scheduler.domain.messages import ResultStatus
from scheduler.domain.messages.runs import WEEK
from scheduler.domain.runs.result import ERROR_CHARACTERS


@dataclass(slots=True)
class WorkOutcome:
    """Success, failure or snooze of an attempt."""

    status: ResultStatus
    error: str | None = None
    output: Any = None
    retry: bool = True  # False: the run is dead after this failure
    retry_in: float | None = None  # seconds; replaces the backoff of a failure, required for a snooze

    @classmethod
    def succeeded(cls, output: Any = None) -> Self:
        return cls(ResultStatus.SUCCEEDED, output=output)

    @classmethod
    def failed(cls, error: str, *, retry: bool = True, retry_in: float | None = None, output: Any = None) -> Self:
        return cls(ResultStatus.FAILED, error[:ERROR_CHARACTERS], output, retry, retry_in)

    @classmethod
    def snoozed(cls, retry_in: float, error: str | None = None) -> Self:
        return cls(ResultStatus.SNOOZED, error, retry_in=min(max(retry_in, 0.0), float(WEEK)))

    def fields(self) -> dict[str, Any]:
        """Return its fields of a ScheduleResult."""
        fields: dict[str, Any] = {"status": self.status.value}
        if self.error is not None:
            fields["error"] = self.error
        if self.output is not None:
            fields["output"] = self.output
        if not self.retry:
            fields["retry"] = False
        if self.retry_in is not None:
            fields["retry_in"] = round(self.retry_in, 3)
        return fields
