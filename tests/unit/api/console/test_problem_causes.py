"""The causes under the headline."""

from datetime import UTC, datetime, timedelta

import pytest

from scheduler.api.console.broadcaster import LiveSnapshot
from scheduler.api.console.problem_causes import MAX_CAUSES, causes_of, problem_sentence
from scheduler.postgres.console_queries import SystemSnapshot
from scheduler.postgres.maintenance_queries import Backlog

NOW = datetime(2026, 11, 18, 3, 0, tzinfo=UTC)
SINCE = "2026-11-18T02:00:00+00:00"


def snapshot(*, errors=(), refused=(), due=(), workers=(), age=60.0):
    backlog = Backlog(**dict.fromkeys(Backlog._fields, 0) | {"oldest_age": age})
    pulse = SystemSnapshot(NOW, backlog, [], list(workers), [], [])
    causes = {"errors": list(errors), "refused": list(refused), "due": list(due)}
    return LiveSnapshot(1, pulse=pulse, causes=causes)


def error(tenant="acme", text="hook.example returned 502 Bad Gateway", jobs=20, **more):
    return {"tenant": tenant, "error": text, "jobs": jobs, "dead": jobs, "waiting": 0, "since": SINCE,
            "types": 1, "job_type": "sync.crm", "event_id": "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11"} | more


UNBOUND = "returned: no queue is bound to schedule.events for the routing key due.eu"


def refusal(tenant="acme", jobs=5, problem=UNBOUND):
    return {"tenant": tenant, "problem": problem, "jobs": jobs, "since": SINCE}


def worker(seconds_ago, **more):
    return {"host": "box", "pid": 7, "last_seen_at": (NOW - timedelta(seconds=seconds_ago)).isoformat(),
            "offers": ["command.backup"], "in_flight": 0} | more


def texts(shown, tenant=None):
    return [cause.text for cause in causes_of(shown, tenant)]


@pytest.mark.parametrize(("problem", "sentence"), [
    ("returned: no queue is bound to schedule.events for the routing key due.eu",
     "No queue is bound to schedule.events for due.eu"),
    ("returned: no queue is bound to schedule.work for the routing key command.backup",
     "No worker offers the command backup"),
    ("returned: no queue is bound to schedule.work for the routing key webhook", "No worker accepts webhooks"),
    ("returned: no worker offers the command backup", "No worker offers the command backup"),
    ("nack: the queue is full", "Nack: the queue is full"), ("", "RabbitMQ rejects events"),
])
def test_a_refusal_is_a_sentence(problem, sentence):
    assert problem_sentence(problem) == sentence


def test_a_cause_has_a_count_a_start_and_links():
    [cause] = causes_of(snapshot(errors=[error(), error("rival", jobs=40)]), None)
    assert cause.text == "hook.example returned 502 Bad Gateway: 60 jobs of 2 tenants, 60 dead"
    assert cause.since == NOW - timedelta(hours=1)
    assert cause.href == "/runs?status=dead&job_type=sync.crm"
    assert cause.retry == "/runs?status=dead&job_type=sync.crm&ask=retry"
    [cause] = causes_of(snapshot(refused=[refusal()]), None)
    assert (cause.text, cause.href) == (
        "No queue is bound to schedule.events for due.eu: 5 jobs", "/jobs?late=1&tenant=acme")


def test_a_tenant_sees_only_its_own_causes():
    shown = snapshot(errors=[error(), error("rival", "secret.example is down")], refused=[refusal("rival")],
                     workers=[worker(90)], due=[{"tenant": "rival", "jobs": 900, "since": SINCE}])
    assert texts(shown, "acme") == ["hook.example returned 502 Bad Gateway: 20 jobs, 20 dead"]
    assert texts(shown, "other") == []


def test_errors_of_many_types_have_no_bulk_retry_and_few_failures_are_no_cause():
    [cause] = causes_of(snapshot(errors=[error(types=2)]), None)
    assert (cause.href, cause.retry) == ("/runs?status=dead&tenant=acme", None)
    assert texts(snapshot(errors=[error(jobs=2)])) == []
    [cause] = causes_of(snapshot(errors=[error(jobs=1, dead=9)]), None)
    assert cause.href == "/runs/7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11"


def test_a_silent_worker_is_a_cause_if_something_depends_on_it():
    assert texts(snapshot(workers=[worker(90)])) == [
        "The worker box:7 has stopped reporting; no other worker offers command.backup"]
    assert texts(snapshot(workers=[worker(90, in_flight=2), worker(1)])) == [
        "The worker box:7 has stopped reporting, with 2 runs in progress"]
    assert texts(snapshot(workers=[worker(90), worker(1)])) == []
    assert texts(snapshot(workers=[worker(7200)])) == []


def test_a_flooding_tenant_is_a_cause_if_others_wait_too():
    due = [{"tenant": "big", "jobs": 900, "since": SINCE}, {"tenant": "small", "jobs": 3, "since": SINCE}]
    assert texts(snapshot(due=due)) == ["The tenant big has 100 % of what is due"]
    assert texts(snapshot(due=due[:1])) == []
    assert texts(snapshot(due=due, age=1.0)) == []


def test_the_four_most_important_are_shown():
    refused = [refusal(jobs=number, problem=f"nack: {number}") for number in range(1, 7)]
    assert len(texts(snapshot(refused=refused))) == MAX_CAUSES
    assert texts(snapshot(refused=refused))[0] == "Nack: 6: 6 jobs"
