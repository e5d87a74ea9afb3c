"""A batch between its claim and its settlement, without any server."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from time import monotonic

import pytest

from scheduler.domain.jobs.definition import Definition
from scheduler.domain.jobs.job import Job, JobStatus
from scheduler.domain.messages import OnMissed
from scheduler.domain.recurrence import Spec
from scheduler.emitting import batch as module
from scheduler.emitting.batch import Batch
from scheduler.emitting.sources.jobs import DueJobs, retry_delay
from scheduler.postgres.claims import LONG_AGO, Claim
from scheduler.rabbit.link import RabbitUnavailable
from scheduler.rabbit.publisher import Receipt

NOW = datetime(2026, 12, 1, 8, tzinfo=UTC)


def due(number, **fields):
    spec = Spec(None, None, None, "UTC", None, NOW, None)
    definition = Definition("{}", *[None] * 6, "test.job", OnMissed.LATEST, *[None] * 4, spec)
    return Job(f"00000000-0000-0000-0000-00000000000{number}", status=JobStatus.PENDING,
               **{"definition": definition, "next_run_at": NOW} | fields)


class Places(dict):
    """Uses the id of a row as its place."""

    def __missing__(self, job_id):
        return job_id


class Session:
    """Records the statements that settle a claim."""

    places = Places()

    def settle(self, statements, after=()):  # noqa: ARG002 - the signature of ClaimSession
        self.settled = {text.splitlines()[0]: values for text, values in statements}

    def ids(self, comment):
        """Return the ids of the statement whose comment contains this text."""
        for text, values in self.settled.items():
            if comment in text:
                return (values.get("ids") or values["places"]).strip("{}").replace('"', "").split(",")
        return []


class Publisher:
    """Returns these receipts, then CONFIRMED."""

    lost = "gone"
    has_overtaken = False

    def __init__(self, *receipts):
        self.receipts = list(receipts)

    def send(self, messages):
        self.receipts += [Receipt.CONFIRMED] * (len(messages) - len(self.receipts))
        return self

    def wait(self, _timeout):
        return self.receipts


def settled(jobs, *receipts):
    session = Session()
    claim = Claim(jobs, NOW + timedelta(seconds=1), None, (NOW,) * 3)
    batch = Batch(DueJobs(), session, claim, module.time.monotonic())
    batch.publish(Publisher(*receipts))
    return session, batch.settle()


@pytest.mark.parametrize(("seconds", "emitted"), [(inf, 3), (0.0, 1)])
def test_rows_that_take_too_long_to_decide_stay_due_and_the_others_are_emitted(monkeypatch, seconds, emitted):
    monkeypatch.setattr(module, "DECIDE_SECONDS", seconds)
    session, due_again = settled([due(number) for number in range(3)])
    assert len(session.ids("Finish jobs")) == emitted
    assert due_again == (LONG_AGO if emitted < 3 else None)


def test_each_job_is_settled_by_its_own_receipts():
    jobs = [due(number) for number in range(3)]
    session, due_again = settled(jobs, Receipt.CONFIRMED, Receipt.RETURNED, Receipt.CONFIRMED)
    assert session.ids("Finish jobs") == [jobs[0].id, jobs[2].id]
    assert session.ids("Postpone jobs") == [jobs[1].id]
    assert due_again > NOW


def test_an_unconfirmed_event_ends_the_connection():
    with pytest.raises(RabbitUnavailable):
        settled([due(0), due(1)], Receipt.CONFIRMED, Receipt.UNKNOWN)


def test_an_event_of_a_slow_route_is_retried_later_and_the_others_are_settled():
    jobs = [due(number) for number in range(3)]
    session, due_again = settled(jobs, Receipt.SLOW, Receipt.CONFIRMED, Receipt.CONFIRMED)
    assert session.ids("Finish jobs") == [jobs[1].id, jobs[2].id]
    assert session.ids("Postpone jobs") == [jobs[0].id]
    assert due_again > NOW


def test_an_unreadable_row_is_retried_later_and_stops_no_other():
    broken = due(1, definition=None)
    session, _ = settled([due(0), broken, due(2)])
    assert len(session.ids("Finish jobs")) == 2
    assert session.ids("Postpone jobs") == [broken.id]


class StepwisePublisher:
    """Returns the receipts of each send in turn, or raises an error."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.sent = []

    def send(self, messages):
        self.sent.append([message.routing_key for message in messages])
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return Publisher(*step)


def folding(number):
    """Return a job that folds two occurrences into the one that is due."""
    spec = Spec(None, None, timedelta(minutes=1), "UTC", None, NOW, None)
    definition = Definition("{}", *[None] * 6, "test.job", OnMissed.LATEST, *[None] * 4, spec)
    return due(number, definition=definition, next_run_at=NOW - timedelta(minutes=2))


@pytest.mark.parametrize(("first", "second", "sent"), [
    ([Receipt.CONFIRMED, Receipt.CONFIRMED], [Receipt.CONFIRMED, Receipt.CONFIRMED], 2),
    ([Receipt.CONFIRMED, Receipt.RETURNED], [Receipt.CONFIRMED], 1),
    ([Receipt.RETURNED, Receipt.UNSENDABLE], None, 0),
])
def test_missed_messages_follow_the_confirm_of_their_event(first, second, sent):
    jobs = [folding(0), folding(1)]
    session, publisher = Session(), StepwisePublisher(first, second)
    batch = Batch(DueJobs(), session, Claim(jobs, NOW + timedelta(seconds=1), None, (NOW,) * 3), monotonic())
    batch.publish(publisher)
    batch.settle()
    assert publisher.sent == [["due", "due"]] + ([["missed"] * sent] if sent else [])
    moved = [job.id for job, receipt in zip(jobs, first, strict=True) if receipt is Receipt.CONFIRMED]
    assert session.ids("Advance jobs that skipped") == moved
    assert session.ids("Postpone jobs") == [job.id for job in jobs if job.id not in moved]


@pytest.mark.parametrize("second", [[Receipt.UNKNOWN], RabbitUnavailable("blocked")])
def test_an_event_whose_missed_message_is_unconfirmed_stays_due(second):
    job, plain = folding(0), due(1)
    session, claim = Session(), Claim([job, plain], NOW + timedelta(seconds=1), None, (NOW,) * 3)
    batch = Batch(DueJobs(), session, claim, monotonic())
    batch.publish(StepwisePublisher([Receipt.CONFIRMED] * 2, second))
    with pytest.raises(RabbitUnavailable):
        batch.settle()
    assert session.ids("Finish jobs") == [plain.id]
    assert session.ids("Postpone jobs") == [job.id]


@pytest.mark.parametrize("resent", [[[Receipt.REFUSED], [Receipt.REFUSED]], [[Receipt.CONFIRMED]]])
def test_an_event_is_not_emitted_again_because_its_missed_message_is_refused(resent):
    jobs = [folding(0), folding(1)]
    session, claim = Session(), Claim(jobs, NOW + timedelta(seconds=1), None, (NOW,) * 3)
    publisher = StepwisePublisher([Receipt.CONFIRMED] * 2, [Receipt.CONFIRMED, Receipt.REFUSED], *resent)
    batch = Batch(DueJobs(), session, claim, monotonic())
    batch.publish(publisher)
    batch.settle()
    assert publisher.sent == [["due", "due"], ["missed", "missed"], *[["missed"]] * len(resent)]
    assert session.ids("Advance jobs that skipped") == [job.id for job in jobs]
    assert session.ids("Postpone jobs") == []


@pytest.mark.parametrize(("retries", "statement"), [(0, "Postpone jobs"), (3, "Advance jobs that skipped")])
def test_a_refused_missed_message_without_an_event_is_given_up_after_some_retries(retries, statement):
    job = replace(folding(0), retries=retries)
    job.requested.on_missed = OnMissed.SKIP
    session, claim = Session(), Claim([job], NOW + timedelta(seconds=50), None, (NOW,) * 3)
    batch = Batch(DueJobs(), session, claim, monotonic())
    batch.publish(StepwisePublisher([Receipt.REFUSED]))
    batch.settle()
    assert session.ids(statement) == [job.id]


def test_the_delay_doubles_up_to_a_minute_with_jitter():
    assert [retry_delay(n, 1.0) for n in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert retry_delay(3, 0.0) == 4
