"""A webhook's fields are validated with the request; placeholders are substituted at the call."""

import json
from datetime import UTC, datetime

import pytest

from scheduler.domain.errors import Rejected
from scheduler.domain.jobs.definition import define
from scheduler.domain.message_parser import parse_command
from scheduler.domain.strict_json import split_member
from scheduler.domain.targets.placeholders import UnknownPlaceholder
from scheduler.domain.targets.target import work_key
from scheduler.domain.targets.urls import check_url, endpoint, filled_url

EVENT = {"job_id": "j", "job_type": "t", "due_at": "d", "event_id": "e", "run": {"attempt": 3}, "payload": {
    "id": "4/2?x=1#y", "up": "..", "dot": ".", "name": "Zoë {{job_id}}", "n": 1.5, "list": [{"a": True}],
    "none": None,
}}


def parsed(**webhook):
    body = {"id": "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11", "job_type": "x", "run_at": "2026-12-01T09:00:00Z",
            "target": {"webhook": {"url": "https://example.org/"} | webhook}}
    return parse_command("request", json.dumps(body).encode(), max_payload_bytes=10_000)


def nested(depth):
    return json.loads("[" * depth + "1" + "]" * depth)


def test_what_is_taken_can_be_read_again_by_the_producer_who_sends_it():
    target = define(parsed(body=nested(198)), datetime(2026, 11, 18, tzinfo=UTC)).target
    assert work_key(target) == "webhook"


@pytest.mark.parametrize(("webhook", "field", "words"), [
    ({"url": "ftp://example.org/"}, "url", "http:// or https://"),
    ({"url": "https://user:pass@example.org/"}, "url", "user:password"),
    ({"url": "https://{{payload.host}}/"}, "url", "path and query"),
    ({"url": "https://example.org:{{payload.port}}/"}, "url", "path and query"),
    ({"url": "https://example.org/" + "x" * 2000}, "url", "2000"),
    ({"url": "https:///path"}, "url", "host"),
    ({"url": "https://exa mple.org/"}, "url", "spaces"),
    ({"url": "https://example.org\\@evil.org/"}, "url", "backslashes"),
    ({"url": "https://example.org:99999/"}, "url", "URL"),
    ({"url": "https://example.org:0/"}, "url", "port 0"),
    ({"url": "https://[::1/"}, "url", "URL"),
    ({"url": "https://example.org/{{secret.token}}"}, "url", "headers only"),
    ({"url": "https://256.1.1.1/"}, "url", "host"),
    ({"url": "https://1.2.3.4.5/"}, "url", "host"),
    ({"url": "https://127.0.0.09/"}, "url", "host"),
    ({"url": "https://4294967296/"}, "url", "host"),
    ({"method": "TRACE"}, "method", "GET"),
    ({"headers": {"hOst": "x"}}, "headers", "hOst"),
    ({"headers": {"Content-length": "1"}}, "headers", "worker"),
    ({"headers": {"transfer-encoding": "chunked"}}, "headers", "worker"),
    ({"headers": {"Connection": "close"}}, "headers", "worker"),
    ({"headers": {"Webhook-Signature": "x"}}, "headers", "worker"),
    ({"headers": {"A": "b\r\nC: d"}}, "headers", "line breaks"),
    ({"headers": {"A b": "c"}}, "headers", "name"),
    ({"headers": {"A": 1}}, "headers", "string"),
    ({"headers": {"A": "{{payload.a}}"}}, "headers", "secret.NAME"),
    ({"timeout": 901}, "timeout", "900"),
    ({"timeout": 0.5}, "timeout", "1"),
    ({"body": ["{{nope}}"]}, "body", "nope"),
    ({"body": {"a": "{{payload}}"}}, "body", "payload"),
    ({"body": "{{payload..a}}"}, "body", "payload..a"),
    ({"body": nested(200)}, "body", "198"),
    ({"body": nested(260)}, "body", "198"),
    ({"body": nested(900)}, "body", "198"),
    ({"query": {"a": "{{x}}"}}, "query", "{{x}}"),
    ({"secret": ""}, "secret", "1 character"),
    ({"wait": 1}, "wait", "not a field"),
])
def test_what_cannot_be_is_rejected_by_field(webhook, field, words):
    with pytest.raises(Rejected) as caught:
        parsed(**webhook)
    [problem] = caught.value.problems
    assert problem.field == f"target.webhook.{field}"
    assert words in problem.problem


@pytest.mark.parametrize("url", [
    "http://127.0.0.1", "https://EXAMPLE.org:8443/a?b=c#d", "https://b\u00fccher.example/", "http://[2001:db8::1]:80/",
    "http://0x7f.1/", "https://example.org/{{payload.a}}?b={{payload.c}}", "HTTPS://example.org",
])
def test_a_url_may_be_written_in_many_ways(url):
    check_url(url)
    parsed(url=url)


@pytest.mark.parametrize("webhook", [
    {"url": "https://example.org/".ljust(2000, "x")}, {"timeout": 1}, {"timeout": 900}, {"timeout": 1.5},
    *({"method": each} for each in ("GET", "POST", "PUT", "PATCH", "DELETE")),
    {"headers": {"X-Host": "a", "Authorization": "{{secret.a}}"}}, {"query": {"a b": "{{payload.c}}"}},
    {"body": None},
])
def test_up_to_the_limit_all_is_taken(webhook):
    [(name, value)] = webhook.items()
    assert getattr(parsed(**webhook).command.target.webhook, name) == value


def test_the_rest_has_defaults_and_only_the_url_is_required():
    found = parsed().command.target.webhook
    assert (found.method, found.headers, found.query, found.timeout, found.secret) == ("POST", {}, {}, 30, None)
    with pytest.raises(Rejected, match=r"target\.webhook\.url"):
        target_of({"webhook": {}})


def target_of(target):
    body = {"id": "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11", "job_type": "x", "run_at": "2026-12-01T09:00:00Z",
            "target": target}
    return parse_command("request", json.dumps(body).encode(), max_payload_bytes=10_000).command.target


@pytest.mark.parametrize(("command", "field"), [
    ({}, "name"), ({"name": ""}, "name"), ({"name": "x" * 101}, "name"), ({"name": "a.b"}, "name"),
    ({"name": "a/b"}, "name"), ({"name": "a\n"}, "name"), ({"name": "ü"}, "name"), ({"name": 1}, "name"),
    ({"name": "a", "arguments": "b"}, "arguments"), ({"name": "a", "arguments": [1]}, "arguments"),
    ({"name": "a", "arguments": ["{{secret.b}}"]}, "arguments"),
    ({"name": "a", "arguments": ["{{b}}"]}, "arguments"),
    ({"name": "a", "run": ["/bin/sh"]}, "run"), ({"name": "a", "environment": {}}, "environment"),
])
def test_what_cannot_be_a_command_is_rejected_by_field(command, field):
    with pytest.raises(Rejected) as caught:
        target_of({"command": command})
    assert [problem.field for problem in caught.value.problems] == [f"target.command.{field}"]


def test_a_command_is_a_name_and_arguments():
    arguments = ["--day", "{{due_at}}", "{{payload.a.b}}", ""]
    found = target_of({"command": {"name": "aA9_-" * 20, "arguments": arguments}}).command
    assert (len(found.name), found.arguments) == (100, tuple(arguments))
    assert target_of({"command": {"name": "a"}}).command.arguments == ()


def test_exactly_one_target():
    for target in ({}, {"webhook": {"url": "http://a/"}, "command": {"name": "b"}}):
        body = {"id": "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11", "job_type": "x", "run_at": "2026-12-01T09:00:00Z",
                "target": target}
        with pytest.raises(Rejected, match="exactly one"):
            parse_command("request", json.dumps(body).encode(), max_payload_bytes=1000)


@pytest.mark.parametrize(("url", "query", "filled"), [
    ("https://a.org", {}, "https://a.org/"),
    ("https://A.org/x/{{payload.id}}/y", {}, "https://a.org/x/4%2F2%3Fx%3D1%23y/y"),
    ("https://a.org/?i={{payload.id}}", {}, "https://a.org/?i=4%2F2%3Fx%3D1%23y"),
    ("https://a.org/?b=1", {"c": "{{payload.name}}"}, "https://a.org/?b=1&c=Zo%C3%AB%20%7B%7Bjob_id%7D%7D"),
    ("https://a.org/{{attempt}}/{{payload.n}}/{{payload.list.0.a}}/{{payload.none}}", {},
     "https://a.org/3/1.5/true/null"),
    ("https://b\u00fccher.example:81/\u00fc#f", {}, "https://xn--bcher-kva.example:81/%C3%BC"),
    ("http://[2001:DB8::1]/%41", {}, "http://[2001:db8::1]/%41"),
    ("https://a.org/../b", {}, "https://a.org/../b"),
    ("https://a.org/x{{payload.up}}", {}, "https://a.org/x.."),
])
def test_placeholders_stay_within_their_part_of_the_url(url, query, filled):
    assert filled_url(url, query, EVENT) == filled


@pytest.mark.parametrize("url", ["https://a.org/x/{{payload.up}}/y", "https://a.org/{{payload.dot}}", "https://a.org/.{{payload.dot}}"])
def test_no_placeholder_leads_out_of_its_directory(url):
    with pytest.raises(UnknownPlaceholder, match="change the path"):
        filled_url(url, {}, EVENT)


def test_a_missing_path_is_named():
    with pytest.raises(UnknownPlaceholder, match=r"\{\{payload\.list\.1\}\}"):
        filled_url("https://a.org/{{payload.list.1}}", {}, EVENT)


@pytest.mark.parametrize(("url", "found"), [
    ("http://127.1/", "127.0.0.1:80"), ("http://0x7f.0.0.1/", "127.0.0.1:80"),
    ("http://017700000001", "127.0.0.1:80"),
    ("http://2130706433/", "127.0.0.1:80"), ("http://1.2.3/", "1.2.0.3:80"), ("http://3com.org", "3com.org:80"),
    ("https://A.org/x", "a.org:443"), ("http://a.org", "a.org:80"), ("http://[::1]:8/", "[::1]:8"),
])
def test_calls_to_one_machine_and_port_are_to_one_endpoint(url, found):
    assert endpoint(url) == found


@pytest.mark.parametrize(("text", "target", "without"), [
    ('{"a":1.50,"target":{"b":"}"},"c":"\u00e9"}', '{"b":"}"}', '{"a":1.50,"c":"\u00e9"}'),
    ('{"target":{}, "a" : {"target":  {}}}', "{}", '{"a" : {"target":  {}}}'),
    ('{"a":1,"target":{}}', "{}", '{"a":1}'),
    ('{"a":1,"target":{"b":[1.50, 2]},"c":{}}', '{"b":[1.50, 2]}', '{"a":1,"c":{}}'),
    ('{"target":{}}', "{}", "{}"),
    (' { "a" : [1, {"b":2}] , "target":{} } ', "{}", '{"a" : [1, {"b":2}]}'),
    ('{"a":12345678901234567890.123}', "", '{"a":12345678901234567890.123}'),
    # The same name within: in a payload, in a string, in the target itself; once, and with the outer name escaped.
    ('{"payload":{"x":1,"target":{}},"target":{"b":1}}', '{"b":1}', '{"payload":{"x":1,"target":{}}}'),
    ('{"a":"\\",\\"target\\":","target":{"b":1}}', '{"b":1}', '{"a":"\\",\\"target\\":"}'),
    ('{"a":1,"target":{"c":1,"target":{"c":1}},"d":2}', '{"c":1,"target":{"c":1}}', '{"a":1,"d":2}'),
    ('{"p":{"x":1,"target":{"c":1}},"target" : {"c":2}}', '{"c":2}', '{"p":{"x":1,"target":{"c":1}}}'),
    ('{"p":{"x":1,"target":{"c":1}}}', "", '{"p":{"x":1,"target":{"c":1}}}'),
])
def test_an_event_is_sent_as_the_very_text_it_was_but_for_its_target(text, target, without):
    members, found, rest = split_member(text.encode(), "target")
    assert (members, found, rest.decode()) == (json.loads(text), target, without)


@pytest.mark.parametrize("text", [
    b"{", b'{"a"}', b'{"a":}', b'{"a":1', b'{"a":1,}', b'{"a":[1}', b'{"\xff":2}',
    b'{"a":1,"target":{}', b'{"a":1,"target":}', b'{"a":1,"target":{"b":1}',
])
def test_an_event_that_is_no_json_is_refused(text):
    with pytest.raises(Rejected, match="JSON"):
        split_member(text, "target")


@pytest.mark.parametrize("text", [b"", b"[]", b"7"])
def test_what_is_no_object_has_no_members(text):
    assert split_member(text, "target") == ({}, "", b"{}")
