"""Secrets, signatures and the outcomes of responses."""

import os
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from scheduler.domain.errors import Misconfigured
from scheduler.domain.runs.result import OUTPUT_BYTES
from scheduler.settings import load
from scheduler.workers.attempt import _json
from scheduler.workers.webhook.response import MAX_BODY, WebhookResponse, decide_outcome, retry_after
from scheduler.workers.webhook.secrets import SecretMissing, Secrets

NEW, OLD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
NOW = datetime(2026, 12, 1, 8, tzinfo=UTC)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "secrets.toml"


def test_a_secret_that_is_rotated_signs_with_both_values(file):
    file.write_text(f'a = ["{NEW}", "{OLD}"]\nb = "{OLD}"')
    secrets = Secrets(str(file)).for_call("default", "https://a.org/")
    timestamp = int(datetime.now(UTC).timestamp())
    headers = {"webhook-id": "m", "webhook-timestamp": str(timestamp),
               "webhook-signature": secrets.signature("a", "m", timestamp, b"{}")}
    assert Webhook(NEW).verify("{}", headers) == Webhook(OLD).verify("{}", headers) == {}
    headers["webhook-signature"] = secrets.signature("b", "m", timestamp, b"{}")
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify("{}", headers)


def test_the_file_is_read_again_when_it_changes_and_a_bad_one_changes_nothing(file, monkeypatch):
    file.write_text('a = "first"')
    secrets = Secrets(str(file)).for_call("default", "https://a.org/")
    monkeypatch.setattr("scheduler.workers.webhook.secrets._RELOAD_SECONDS", -1.0)

    def write(text):
        file.write_text(text)
        os.utime(file, ns=(0, hash(text) & 0xFFFFFFFFFF))

    write('a = "second"')
    assert secrets.header("a") == "second"
    write("a = [")
    assert secrets.header("a") == "second"
    write('b = "third"')
    with pytest.raises(SecretMissing, match="'a'"):
        secrets.header("a")


@pytest.mark.parametrize(("text", "words"), [
    ("a = hunter2", "invalid TOML"), ("a = 7", "a must be a string"), ("a = []", "a must be"),
    ('a = ["x", 1]', "a must be"),
    ('a = "whsec_hunter2!"', "base64"), ('a = "whsec_"', "base64"), ("[a]\nb = 1", "a: 'b' is unknown"),
    ("[a]", "a must be"), ("[a]\nvalue = 1", "a must be"), ('[a]\nvalue = ["x", ""]', "a must be"),
    ('[a]\nvalue = "hunter2"\ntenants = "acme"', "a: tenants must be"),
    ('[a]\nvalue = "hunter2"\ntenants = []', "a: tenants must be"),
    ('[a]\nvalue = "hunter2"\ntenants = ["a b"]', "not a tenant"),
    ('[a]\nvalue = "hunter2"\nhosts = ["a b"]', "a: hosts"), ('[a]\nvalue = "x"\nhosts = []', "a: hosts"),
    ('[a]\nvalue = "x"\nhosts = ["https://a.org/x"]', "a: hosts"),
    ('[a]\nvalue = "x"\nhosts = ["https://a.org:99999"]', "a: hosts"),
    ('[a]\nvalue = "hunter2"\nuse = ["query"]', "a: use"), ('[a]\nvalue = "x"\nuse = []', "a: use"),
    ('[a]\nvalue = "hunter2"\nuse = ["sign"]', "a cannot sign"),
    (f'a = ["{NEW}", "hunter2"]', "a cannot sign"),
])
def test_a_bad_file_is_a_bad_setting_and_is_not_quoted(file, text, words):
    file.write_text(text)
    with pytest.raises(Misconfigured, match=words) as caught:
        Secrets(str(file))
    assert "SCHEDULER_WEBHOOK_SECRETS_FILE" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_no_file_and_no_such_file():
    with pytest.raises(SecretMissing, match="is not set"):
        Secrets(None).for_call("default", "https://a.org/").header("a")
    with pytest.raises(Misconfigured, match="cannot be read"):
        Secrets("/no/such/file")


def answered(status, body=b"", **headers):
    found = {name.replace("_", "-"): value for name, value in headers.items()}
    return decide_outcome(WebhookResponse(status, "Why", found, body, 0.25), "a.org:443", 3600, NOW)


@pytest.mark.parametrize(("status", "outcome", "retry"), [
    (200, "succeeded", True), (204, "succeeded", True), (205, "succeeded", True), (299, "succeeded", True),
    (100, "failed", True), (300, "failed", True), (302, "failed", True), (304, "failed", True),
    (400, "failed", True), (404, "failed", True), (410, "failed", False), (429, "failed", True),
    (500, "failed", True), (503, "failed", True), (599, "failed", True), (999, "failed", True),
])
def test_what_a_status_means(status, outcome, retry):
    found = answered(status, retry_after="7")
    assert (found.status, found.retry) == (outcome, retry)
    assert found.retry_in == (7 if status in (429, 503) else None)
    assert found.output["status_code"] == status
    assert found.output["duration_ms"] == 250


@pytest.mark.parametrize(("text", "seconds"), [
    ("0", 0), ("120", 120), (" 5 ", 5), ("99999", 3600), ("9" * 500, 3600),
    ("Tue, 01 Dec 2026 08:02:00 GMT", 120), ("Tue, 01 Dec 2026 23:00:00 GMT", 3600),
    ("Tue, 01 Dec 2026 07:59:59 GMT", None), ("-5", None), ("1.5", None), ("soon", None), ("", None), (None, None),
    ("\u0665", None), ("Tue, 99 Dec 2026 08:02:00 GMT", None), ("Mon, 01 Jan 999999 00:00:00 GMT", None),
])
def test_retry_after(text, seconds):
    assert retry_after(text, 3600, NOW) == seconds


@pytest.mark.parametrize("byte", [b"\x00", b"\xff", b"\x01", b'"', b"\xc3\xa9", b"\xf0\x9f\x98\x80", b"\n"])
def test_whatever_a_body_holds_its_output_fits(byte):
    body = (byte * MAX_BODY)[:MAX_BODY]
    headers = {f"h{n}": byte.decode("latin-1") * 60 for n in range(200)}
    output = decide_outcome(WebhookResponse(500, "x", headers, body, 1.0), "a", 1, NOW).output
    assert len(_json(output)) < OUTPUT_BYTES


@pytest.mark.parametrize(("content_type", "text"), [
    (None, "\u00e9"), ("", "\u00e9"), ("text/plain", "\u00e9"), ("text/plain; charset=utf-8", "\u00e9"),
    ('text/html;Charset = "ISO-8859-1" ; x=y', "\u00c3\u00a9"), ("a/b; charset=latin1", "\u00c3\u00a9"),
    ("a/b; charset=utf-16le", "\ua9c3"), ("a/b; charset=punycode", "\u00e9"), ("a/b; charset=idna", "\u00e9"),
    ("a/b; charset=rot13", "\u00e9"), ("a/b; charset=nothing", "\u00e9"), ("a/b; charset=", "\u00e9"),
    ("a/b; charset=iso-8859-99", "\u00e9"), ("a/b; charset=utf-8-but-not", "\u00e9"),
])
def test_an_endpoint_says_its_charset_but_does_not_choose_what_decodes_it(content_type, text):
    headers = {} if content_type is None else {"content-type": content_type}
    assert WebhookResponse(200, "", headers, "\u00e9".encode(), 0).output()["body"] == text


@pytest.mark.parametrize("text", ["socks5://u:hunter2@x:1", "http://", "hunter2", "http://a:hunter2@c/path"])
def test_a_proxy_that_cannot_be_is_a_bad_setting(text):
    with pytest.raises(Misconfigured, match="SCHEDULER_WEBHOOK_PROXY") as caught:
        load({"SCHEDULER_WEBHOOK_PROXY": text})
    assert "hunter2" not in str(caught.value)
