"""New rows of an open list: rows that match, are not shown yet, and belong on its page."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from scheduler.api.console.broadcaster import LiveSnapshot
from scheduler.api.console.new_rows import job_matches, new_jobs, new_runs, run_matches
from scheduler.api.console.subscriptions import JobUpdates
from scheduler.api.console.topics import JobsTopic, PageViewer
from scheduler.api.identity import Identity, Role
from scheduler.domain.messages import Priority
from scheduler.postgres.jobs.lists import JobFilter
from scheduler.postgres.runs.lists import RunFilter
from scheduler.views.jobs import JobView
from scheduler.views.runs import RunView

NOW = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)


def identity(number):
    return UUID(int=number)


def job(number, **fields):
    usual = {"status": "pending", "tenant": "default", "job_type": "mail", "name": None,
             "priority": Priority.NORMAL}
    return JobView.model_construct(
        id=identity(number), created_at=NOW + timedelta(seconds=number), **usual | fields)


def run(number, **fields):
    usual = {"status": "succeeded", "tenant": "default", "job_type": "mail", "job_id": identity(1),
             "worker": "a:1"}
    return RunView.model_construct(
        event_id=identity(number), due_at=NOW + timedelta(seconds=number), **usual | fields)


def test_those_that_are_shown_already_are_not_new():
    found = [job(3), job(2), job(1)]
    assert new_jobs(found, JobFilter(), {str(identity(1))}, None) == 2
    assert new_jobs(found, JobFilter(), {str(identity(each)) for each in (1, 2, 3)}, None) == 0


def test_those_beyond_the_end_of_a_full_page_are_not_new():
    last = (NOW + timedelta(seconds=2), str(identity(2)))
    assert new_jobs([job(3), job(2), job(1)], JobFilter(), {str(identity(2))}, last) == 1
    assert new_runs([run(3), run(2), run(1)], RunFilter(), {str(identity(2))}, last) == 1


def test_only_what_the_list_asks_for_is_new_in_it():
    assert new_jobs([job(1), job(2, job_type="sms")], JobFilter(job_type="sms"), (), None) == 1
    assert new_runs([run(1), run(2, status="dead")], RunFilter(status="dead"), (), None) == 1


def test_a_job_matches_as_the_database_would_say():
    one = job(255, name="Weekly report", tenant="acme", priority=Priority.HIGH)
    for filters in (JobFilter(), JobFilter(q="Weekly"), JobFilter(q="ma"), JobFilter(q="00000000-"),
                   JobFilter(status="pending", tenant="acme", job_type="mail", priority="high")):
        assert job_matches(filters, one), filters
    for filters in (JobFilter(q="weekly"), JobFilter(q="report"), JobFilter(status="paused"),
                   JobFilter(tenant="x"),
                   JobFilter(job_type="ma"), JobFilter(priority="low")):
        assert not job_matches(filters, one), filters


def test_a_run_matches_as_the_database_would_say():
    one = run(10, tenant="acme", status="dead")
    for filters in (RunFilter(), RunFilter(since=one.due_at), RunFilter(until=one.due_at + timedelta(seconds=1)),
                   RunFilter(job_id=str(identity(1)), tenant="acme", status="dead", job_type="mail"),
                   RunFilter(worker="a:1")):
        assert run_matches(filters, one), filters
    for filters in (RunFilter(until=one.due_at), RunFilter(since=one.due_at + timedelta(seconds=1)),
                   RunFilter(status="waiting"), RunFilter(job_id=str(identity(2))), RunFilter(worker="a:2")):
        assert not run_matches(filters, one), filters


def test_a_page_ignores_polls_before_it_was_opened():
    topic = JobsTopic(JobFilter(), frozenset(), None, newest=True)
    viewer = PageViewer(None, Identity("me", Role.VIEWER, None), "", after=3)
    assert topic.message(LiveSnapshot(4, jobs=JobUpdates(newest=[job(1)], poll=3)), viewer) == {}
    assert topic.message(LiveSnapshot(5, jobs=JobUpdates(newest=[job(1)], poll=4)), viewer) == {"rows": {},
                                                                                                "news": "1 new"}
    other = PageViewer(None, Identity("me", Role.VIEWER, "acme"), "", after=3)
    assert topic.message(LiveSnapshot(5, jobs=JobUpdates(newest=[job(1)], poll=4)), other) == {"rows": {},
                                                                                               "news": ""}
