"""A webhook that its worker may not call, while another worker may be allowed to."""

from collections.abc import Collection
from dataclasses import replace

from scheduler.domain.messages import ResultStatus
from scheduler.domain.runs.result import Result
from scheduler.domain.runs.run import AttemptOutcome, Run
from scheduler.domain.targets.offers import REFUSED, LiveWorker, offer_of

FIRST_SECONDS, MAX_SECONDS = 1.0, 30.0


def is_refusal(result: Result, run: Run | None) -> bool:
    """Return whether a worker refused the call, by its own rules."""
    final = result.status is ResultStatus.FAILED and not result.retry
    return final and run is not None and run.occurrence is not None and _is_refused(result.error) and (
        run.occurrence.work is not None)


def give_back(result: Result, run: Run, workers: Collection[LiveWorker]) -> Result:
    """Return a snooze instead of a refusal while a live worker that has not refused the run offers its work.

    Any worker may get the next attempt, also one that has refused it, so the waits grow.
    """
    work = run.known_occurrence.work
    offer = None if work is None else offer_of(work)
    before = [
        ended.worker for ended in run.attempts
        if ended.outcome is AttemptOutcome.SNOOZED and ended.attempt != result.attempt and _is_refused(ended.error)
    ]
    refused = {result.worker, *before}
    if not any(offer in worker.offers and worker.name not in refused for worker in workers):
        return result
    seconds = min(FIRST_SECONDS * 2.0 ** len(before), MAX_SECONDS)
    return replace(result, status=ResultStatus.SNOOZED, retry=True, retry_in=seconds)


def _is_refused(error: str | None) -> bool:
    return error is not None and error.startswith(REFUSED)
