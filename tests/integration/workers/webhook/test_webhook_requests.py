"""Webhook requests, timeouts and responses, as the contract describes them."""

import hashlib
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from endpoints import answer, endpoint, event, results, silent
from standardwebhooks.webhooks import Webhook
from support import DEADLINE, Process, until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TEXT = "text/plain; charset=utf-8"


@pytest.fixture
def server():
    with endpoint() as made:
        yield made


@pytest.fixture
def start(amqp_url, tmp_path):
    file, started = tmp_path / "secrets.toml", []
    file.write_text(f'shop = "{SECRET}"\ntoken = "hidden"\n')

    def worker(**env):
        started.append(Process("worker", {"AMQP_URL": amqp_url, "SCHEDULER_WEBHOOK_ALLOW": "127.0.0.0/8",
                                          "SCHEDULER_WEBHOOK_SECRETS_FILE": str(file)} | env).ready())
        return started[-1]

    yield worker
    for each in started:
        each.kill()


@pytest.fixture
def called(start, server, host):
    """Make a call with a worker; return the received request and the reported result."""
    start()

    def make(asked, behaviour=None):
        if behaviour is not None:
            server.on("/", behaviour)
        before = len(server.received)
        host.publish("webhook", asked, exchange="schedule.work")
        [told] = results(host, 1).values()
        return (server.received[before] if len(server.received) > before else None), told

    return make


def with_run(asked, **fields):
    return asked | {"run": asked["run"] | fields}


def test_every_method_is_sent_with_its_body_and_get_without_one(called, server):
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        due = event(server.url("/"), method=method, secret="shop")
        sent, told = called(due, answer(200))
        assert (sent.method, told["status"]) == (method, "succeeded")
        assert sent.headers["content-type"] == "application/json"
        assert sent.json == {name: value for name, value in due.items() if name != "target"}
        assert Webhook(SECRET).verify(sent.body, sent.headers) == sent.json
    for body in ({}, {"body": {"left": "out"}}, {"body": "text"}):
        due = event(server.url("/"), method="GET", secret="shop", **body)
        sent, told = called(due)
        assert (sent.method, sent.body, told["status"]) == ("GET", b"", "succeeded")
        assert not {"content-type", "content-length", "transfer-encoding"} & sent.headers.keys()
        at = datetime.fromtimestamp(int(sent.headers["webhook-timestamp"]), UTC)
        assert sent.headers["webhook-signature"] == Webhook(SECRET).sign(due["event_id"], at, "")


def test_post_is_the_method_where_none_is_given(called, server):
    assert called(event(server.url("/")))[0].method == "POST"


@pytest.mark.parametrize(("body", "sent_as", "kind"), [
    ("as it is: ü {{payload.a}} {{payload.a.b}}\n", 'as it is: ü {"b":"{{job_id}}"} {{job_id}}\n', TEXT),
    ("", "", TEXT),
    ({"{{key}}": ["{{attempt}}", 1.5, None, True, {"a": "{{payload.list.1}}"}]},
     '{"{{key}}":["2",1.5,null,true,{"a":"7"}]}', "application/json"),
    ([], "[]", "application/json"), (None, "null", "application/json"), (False, "false", "application/json"),
    (0, "0", "application/json"), ("{{payload.ü}}", "é", TEXT),
])
def test_a_json_value_is_sent_as_json_and_a_string_as_it_is(called, server, body, sent_as, kind):
    payload = {"a": {"b": "{{job_id}}"}, "list": [0, 7], "ü": "é"}
    sent, _ = called(with_run(event(server.url("/"), body=body) | {"payload": payload}, attempt=2))
    assert (sent.body.decode(), sent.headers["content-type"]) == (sent_as, kind)
    assert sent.headers["content-length"] == str(len(sent.body))


def test_every_placeholder_is_filled_in_in_path_query_and_body(called, server):
    text = "{{job_id}} {{job_type}} {{due_at}} {{event_id}} {{attempt}} {{payload.a.b}}"
    url = server.url(f"/{text.replace(' ', '/')}?u={{{{attempt}}}}")
    asked = event(url, body=text, query={"q": text}) | {"payload": {"a": {"b": 1}}, "job_type": "t"}
    sent, _ = called(with_run(asked, attempt=3))
    found = [asked["job_id"], "t", asked["due_at"], asked["event_id"], "3", "1"]
    assert sent.body.decode() == " ".join(found)
    path, _, query = sent.target.partition("?")
    assert path == "/" + "/".join(found).replace(":", "%3A")
    assert query == "u=3&q=" + "%20".join(found).replace(":", "%3A")


def test_a_jobs_own_header_takes_the_place_of_ours_but_not_of_the_signatures(called, server):
    sent, _ = called(event(server.url("/"), body="<a/>", headers={
        "content-type": "application/xml", "USER-AGENT": "mine", "X-Token": "a {{secret.token}} b",
        "X-Twice": "{{secret.token}}",
    }))
    shown = [sent.headers[name] for name in ("content-type", "user-agent", "x-token", "x-twice")]
    assert shown == ["application/xml", "mine", "a hidden b", "hidden"]
    assert sent.headers["webhook-id"]


def test_the_runs_own_timeout_holds_where_it_is_smaller(called, server):
    for run, webhook in ((1, 60), (60, 1)):
        _, told = called(with_run(event(server.url("/"), timeout=webhook), timeout=run), silent)
        assert (told["status"], told.get("retry", True)) == ("failed", True)
        assert "did not respond within 1 s" in told["error"]


def test_retry_after_is_obeyed_up_to_the_runs_max_delay(called, server):
    ahead = format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)
    for status, asked_for, retry_in in (
        (429, "5", 5), (503, "5", 5), (429, "999", 7), (503, ahead, 7),
        (429, past, None), (503, "soon", None), (503, None, None), (500, "5", None), (404, "5", None),
        (302, "5", None),
    ):
        headers = {} if asked_for is None else {"retry_after": asked_for}
        _, told = called(with_run(event(server.url("/")), max_delay=7), answer(status, **headers))
        assert (told["status"], told.get("retry_in")) == ("failed", retry_in), (status, asked_for)
        assert told.get("retry", True)


def test_any_response_is_stored(called, server):
    body = hashlib.sha512(b"x").hexdigest().encode() * 1000
    for status in (200, 418, 500):
        _, told = called(event(server.url("/")), answer(status, body, x_a="b"))
        output = told["output"]
        assert output.keys() == {"status_code", "headers", "body", "duration_ms"}
        assert (output["status_code"], output["headers"]["x-a"]) == (status, "b")
        assert output["body"] == body[: 16 * 1024].decode()
        assert output["duration_ms"] > 0


def test_no_more_are_in_flight_than_the_settings_say(start, host):
    done = threading.Event()

    def act(*call):
        done.wait(DEADLINE)
        answer(200)(*call)

    worker = start(SCHEDULER_WORKER_CONCURRENCY="3")
    with endpoint("127.0.0.1") as a, endpoint("127.0.0.2") as b:
        for each in (a, b):
            each.on("/", act)
            for _ in range(4):
                host.publish("webhook", event(each.url("/")), exchange="schedule.work")
        until(lambda: worker.metric("scheduler_webhooks_waiting") == 5, "five that wait")
        until(lambda: len(a.received) + len(b.received) == 3, "three that were sent")
        until(lambda: worker.metric("scheduler_webhooks_in_flight") == 3, "three in flight")
        done.set()
        assert {result["status"] for result in results(host, 8).values()} == {"succeeded"}


def test_an_event_that_comes_often_is_called_once_and_each_is_acknowledged(start, server, host):
    done = threading.Event()

    def act(*call):
        done.wait(DEADLINE)
        answer(200)(*call)

    worker = start(SCHEDULER_WORKER_CONCURRENCY="1")  # it is handed 21 at a time
    asked, after = event(server.on("/", act)), event(server.url("/after"))
    for each in (*[asked] * 40, after):
        host.publish("webhook", each, exchange="schedule.work")
    server.one("/")
    until(lambda: worker.metric("scheduler_webhooks_waiting") == 1, "the last copy")
    done.set()
    assert {result["status"] for result in results(host, 2).values()} == {"succeeded"}
    assert len(server.calls("/")) == 1
