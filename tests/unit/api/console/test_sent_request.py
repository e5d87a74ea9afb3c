"""The request of a run's webhook, with placeholders filled in and credentials masked."""

import pytest

from scheduler.api.console.sent_request import sent_request

EVENT = {"event_id": "e1", "job_id": "j1", "job_type": "t", "due_at": "2026-12-01T08:00:00Z",
         "payload": {"id": "a b"}, "run": {"attempt": 2}}


def of(webhook):
    return sent_request(EVENT | {"target": {"webhook": {"url": "https://x.example/{{payload.id}}"} | webhook}})


def test_placeholders_are_filled_in_and_credentials_masked():
    request = of({"headers": {"Authorization": "Bearer hidden", "X-Key": "{{secret.key}}", "Accept": "text/plain"},
                  "body": {"try": "{{attempt}}"}, "query": {"n": "{{payload.id}}"}, "secret": "main"})
    assert (request.method, request.url) == ("POST", "https://x.example/a%20b?n=a%20b")
    assert "hidden" not in str(request.headers)
    assert request.headers["X-Key"] == "{{secret.key}}"
    assert request.headers["webhook-signature"] == "signed with the secret main"
    assert request.body == {"try": "2"}


def test_without_a_body_the_event_is_sent_and_get_sends_none():
    assert of({}).body == EVENT
    assert of({"method": "GET"}).body is None


@pytest.mark.parametrize("webhook", [{"url": "https://x.example/{{payload.no}}"}, {"body": "{{payload.no}}"},
                                     {"url": "nonsense"}, {"headers": None}, {"query": None}])
def test_a_request_that_cannot_be_sent_is_shown_as_it_is(webhook):
    assert of(webhook).method == "POST"


@pytest.mark.parametrize("event", [None, "text", {}, {"target": None}, {"target": {"command": {"name": "x"}}}])
def test_other_events_have_no_request(event):
    assert sent_request(event) is None
