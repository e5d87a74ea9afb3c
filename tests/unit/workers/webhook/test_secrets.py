"""Tenants, hosts and uses of secrets, and their redaction in responses."""

import base64
import json
from urllib.parse import quote

import pytest

from scheduler.workers.webhook.redaction import Redaction
from scheduler.workers.webhook.response import MAX_BODY, WebhookResponse
from scheduler.workers.webhook.secrets import SecretMissing, Secrets

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MISSING = ("the secret {} is not available: it is not in the worker's SCHEDULER_WEBHOOK_SECRETS_FILE, or not for "
           "this tenant, host and use (whsec_ values sign, others are for headers)")
FILE = f"""
plain = "plain-value"
rotated = ["new-value", "old-value"]
signs = "{KEY}"

[acme]
value = "acme-value"
tenants = ["acme"]

[everyone]
value = ["everyone-new", "everyone-old"]
tenants = ["*"]

[untold]
value = "untold-value"

[hosts]
value = "hosts-value"
hosts = ["api.example.org", "*.internal", "10.1.0.0/16", "2001:db8::1"]

[https]
value = "https-value"
hosts = ["https://pay.example.org", "https://*.pay.test:8443", "https://10.2.0.1", "https://[2001:db8::5]:8443"]

[both]
value = "{KEY}"
use = ["sign", "header"]

[shown]
value = "{KEY}"
use = ["header"]
"""


@pytest.fixture
def secrets(tmp_path):
    file = tmp_path / "secrets.toml"
    file.write_text(FILE)
    return Secrets(str(file))


def may(secrets, name, *, tenant="default", host="a.org", url=None, use="header"):
    call = secrets.for_call(tenant, url or f"http://{f'[{host}]' if ':' in host else host}/")
    try:
        call.header(name) if use == "header" else call.signature(name, "m", 1, b"")
    except SecretMissing as error:
        return None if str(error) != MISSING.format(repr(name)) else False
    return True


@pytest.mark.parametrize(("name", "tenants"), [
    ("plain", {"default"}), ("rotated", {"default"}), ("untold", {"default"}), ("acme", {"acme"}),
    ("everyone", {"default", "acme", "other"}), ("missing", set()),
])
def test_a_secret_is_for_its_tenants_and_missing_for_others(secrets, name, tenants):
    assert {each for each in ("default", "acme", "other") if may(secrets, name, tenant=each)} == tenants


@pytest.mark.parametrize(("host", "allowed"), [
    ("api.example.org", True), ("API.example.org.", True), ("a.internal", True), ("a.b.internal", True),
    ("10.1.255.1", True), ("2001:db8::1", True),
    ("internal", False), ("example.org", False), ("evil-api.example.org", False),
    ("api.example.org.evil.net", False), ("10.2.0.1", False), ("2001:db8::2", False), ("", False),
])
def test_a_secret_is_for_its_hosts(secrets, host, allowed):
    assert may(secrets, "hosts", host=host) is allowed


@pytest.mark.parametrize(("url", "allowed"), [
    ("https://pay.example.org/", True), ("https://pay.example.org:443/", True), ("https://PAY.example.org/", True),
    ("https://a.pay.test:8443/", True), ("https://10.2.0.1/", True), ("https://[2001:db8::5]:8443/", True),
    ("http://pay.example.org/", False), ("http://pay.example.org:443/", False),
    ("https://pay.example.org:8443/", False), ("https://a.pay.test/", False), ("https://a.pay.test:18443/", False),
    ("http://a.pay.test:8443/", False), ("https://other.example.org/", False), ("https://[2001:db8::5]/", False),
])
def test_a_host_with_https_allows_only_https_on_its_port(secrets, url, allowed):
    assert may(secrets, "https", url=url) is allowed


@pytest.mark.parametrize(("name", "header", "sign"), [
    ("plain", True, False), ("signs", False, True), ("both", True, True), ("shown", True, False),
])
def test_a_secret_is_for_its_use(secrets, name, header, sign):
    assert (may(secrets, name), may(secrets, name, use="sign")) == (header, sign)


VALUE = 'pa$$ "word" <ü>/x=1&y'


@pytest.mark.parametrize("echo", [
    VALUE, json.dumps(VALUE), json.dumps({"a": {"b": f"Bearer {VALUE}"}}, ensure_ascii=False),
    quote(VALUE, safe=""), quote(VALUE), VALUE.encode().hex(),
    base64.b64encode(VALUE.encode()).decode(), base64.urlsafe_b64encode(VALUE.encode()).decode(),
    *(base64.b64encode(before + VALUE.encode() + b"after").decode() for before in (b"", b"x", b"xy", b"xyz")),
])
def test_an_echo_is_hidden_as_it_is_and_encoded(echo):
    shown = Redaction([VALUE]).text(f"before {echo} after")
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert "***" in shown
    for part in (VALUE, json.dumps(VALUE)[1:-1], quote(VALUE, safe=""), "ord", VALUE.encode().hex()):
        assert part not in shown


def test_what_basic_credentials_and_a_signing_key_stand_for_is_hidden():
    basic = base64.b64encode(b"shop:hunter2").decode()
    redaction = Redaction([basic, KEY])
    assert redaction.text("user shop password hunter2") == "user shop password ***"
    assert redaction.text(f"{KEY} {KEY.removeprefix('whsec_')}") == "*** ***"


def test_values_that_are_too_short_hide_nothing():
    assert Redaction(["a", "abc"]).text("an abc of things") == "an abc of things"


@pytest.mark.parametrize("charset", ["utf-8", "utf-16le", "latin-1"])
@pytest.mark.parametrize("secrets_before", [0, 1, 50])
def test_a_value_across_the_cut_leaves_no_beginning(charset, secrets_before):
    value = "s3cr3t-" + "x1y2" * 20
    wide = 2 if charset == "utf-16le" else 1
    start = (value + " ") * secrets_before
    for shift in (0, 1, 5, len(value) - 1, len(value)):
        text = start + "." * (MAX_BODY // wide - len(start) - shift) + value * 3
        redaction = Redaction([value])
        body = text.encode(charset)[: MAX_BODY + redaction.longest]
        answer = WebhookResponse(200, value,
                                 {"content-type": f"a/b; charset={charset}", "echo": value, value: "x"}, body,
                        0.1, redaction)
        output = json.dumps(answer.output())
        assert "s3cr" not in output
        assert "x1y2" not in output
        assert answer.phrase() == "200 ***"
        assert len(answer.output()["body"]) <= MAX_BODY
