"""Problems for SCHEDULER_NOTIFY_WEBHOOK: each tenant has its own share."""

from collections import Counter
from contextlib import closing

import pytest
from support import connected

from scheduler.notifying.body import summary
from scheduler.postgres.notifications import MAX_SENT, MOST_DEAD, NotificationSession


@pytest.fixture
def session(database_url):
    with closing(NotificationSession(database_url)) as made:
        assert made.lead()
        yield made


def die(url, tenant, runs):
    with connected(url) as connection, connection.cursor() as cursor:
        cursor.execute("""INSERT INTO run_history (event_id, job_id, tenant, status, due_at, finished_at)
                          SELECT gen_random_uuid(), gen_random_uuid(), %s, 'dead', now(), now()
                          FROM generate_series(1, %s)""", (tenant, runs))


def send_all(session):
    """Return the calls, each with its notifications."""
    calls = []
    while True:
        notifications, more = session.unsent()
        if not notifications:
            return calls
        assert len(notifications) == MAX_SENT or not more
        session.mark_sent(notifications)
        calls.append(notifications)


def test_a_tenant_with_thousands_of_dead_runs_delays_no_other_tenants_notifications(database_url, session):
    for _ in range(3):
        die(database_url, "acme", 1000)
    session.record()
    die(database_url, "beta", 1)
    session.record()
    calls = send_all(session)
    assert "beta" in {notification.tenant for notification in calls[0]}
    sent = [notification for call in calls for notification in call]
    assert Counter((each.kind, each.tenant) for each in sent) == {
        ("run_dead", "acme"): MOST_DEAD, ("run_dead", "beta"): 1, ("runs_dead", "acme"): 1}
    [others] = [each for each in sent if each.kind == "runs_dead"]
    assert summary(others) == ("2,900 more jobs of the tenant acme have dead runs, not reported one by one")
    die(database_url, "beta", 1)
    session.record()
    [[again]] = send_all(session)
    assert again.tenant == "beta"


def test_the_summary_of_a_tenant_ends_an_hour_after_its_last_omitted_run(database_url, session):
    die(database_url, "acme", MOST_DEAD + 1)
    session.record()
    send_all(session)
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE notifications SET changed_at = now() - interval '2 hours' WHERE kind <> 'place'")
    session.record()
    [ended] = [each for call in send_all(session) for each in call if each.kind == "runs_dead"]
    assert (ended.firing, ended.tenant) == (False, "acme")
