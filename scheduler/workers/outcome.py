"""What became of an attempt: one type, whoever made it."""

from dataclasses import dataclass
from typing import Any, Self

from scheduler.domain.messages import ResultStatus
from scheduler.domain.messages.runs import WEEK
from scheduler.domain.runs.result import ERROR_CHARACTERS


@dataclass(slots=True)
class WorkOutcome:
    """How an attempt ended, or that it is put off."""

    status: ResultStatus
    error: str | None = None
    output: Any = None
    retry: bool = True  # of a failure: false gives the run up at once
    retry_in: float | None = None  # seconds: of a failure instead of the backoff, of what is put off required

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
        """Return what it adds to a ScheduleResult."""
        found: dict[str, Any] = {"status": self.status.value}
        if self.error is not None:
            found["error"] = self.error
        if self.output is not None:
            found["output"] = self.output
        if not self.retry:
            found["retry"] = False
        if self.retry_in is not None:
            found["retry_in"] = round(self.retry_in, 3)
        return found
