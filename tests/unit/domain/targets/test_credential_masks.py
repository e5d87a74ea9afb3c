"""Literal credentials of a target are masked, and restored only for the same origin."""

import json

import pytest

from scheduler.commands.audit_entries import _difference
from scheduler.domain.errors import Rejected
from scheduler.domain.targets.credential_masks import is_sensitive
from scheduler.domain.targets.target import Target, mask_target, mask_target_text, restore_credentials
from scheduler.views.dead_letters import body_view

HOOK = {
    "url": "https://a.org/x?token=abc&page=2&sig=%2Fx", "method": "POST",
    "headers": {"Authorization": "Bearer abc", "X-Api-Key": "abc", "Content-Type": "text/plain",
                "Cookie": "a=abc", "X-Token": "{{secret.shop}}", "Proxy-Authorization": "Basic {{secret.shop}}",
                "X-Secret": "abc{{secret.shop}}"},
    "query": {"password": "abc", "page": "3", "key": "{{payload.key}}", "access_token": "abc"},
    "body": {"password": "kept"},
}
SHOWN = {
    "url": "https://a.org/x?token=***&page=2&sig=***", "method": "POST",
    "headers": {"Authorization": "***", "X-Api-Key": "***", "Content-Type": "text/plain", "Cookie": "***",
                "X-Token": "{{secret.shop}}", "Proxy-Authorization": "Basic {{secret.shop}}", "X-Secret": "***"},
    "query": {"password": "***", "page": "3", "key": "{{payload.key}}", "access_token": "***"},
    "body": {"password": "kept"},
}


def target(**fields):
    return Target.model_validate({"webhook": HOOK | fields})


@pytest.mark.parametrize("name", [
    "Authorization", "authorization", "Cookie", "X-Api-Key", "x_api_key", "apikey", "apiKey", "X-Auth-Token",
    "token", "access_token", "client_secret",
    "password", "pwd", "key", "sig", "signature", "X-Amz-Signature", "sessionid",
    "AuthToken", "X-Hub-Signature-256", "Ocp-Apim-Subscription-Key",
])
def test_names_that_hold_credentials(name):
    assert is_sensitive(name)


@pytest.mark.parametrize("name", [
    "Content-Type", "Accept", "X-Author", "Idempotency-Key", "page", "keyword", "monkey", "sort_key",
    "X-Request-Id", "authority", "signal", "",
])
def test_names_that_do_not(name):
    assert not is_sensitive(name)


def test_literal_credentials_are_masked_and_placeholders_shown():
    assert mask_target({"webhook": HOOK}) == {"webhook": SHOWN}
    command = {"command": {"name": "x", "arguments": ["--password=abc"]}}
    assert mask_target(command) == command
    plain = '{"webhook":{"url":"https://a.org/","body":1.50}}'
    assert mask_target_text(plain) == plain  # as it is, if there is nothing to mask
    assert json.loads(mask_target_text(json.dumps({"webhook": HOOK}))) == {"webhook": SHOWN}
    event = json.dumps({"target": {"webhook": HOOK}}).encode()
    assert body_view(event) == ("json", {"target": {"webhook": SHOWN}})


def test_returned_masks_restore_the_stored_credentials():
    stored = target().model_dump_json(exclude_unset=True)
    shown = Target.model_validate({"webhook": SHOWN})
    assert shown.work.has_masks()
    assert not target().work.has_masks()
    assert restore_credentials(shown, stored).model_dump_json(exclude_unset=True) == stored
    edited = Target.model_validate({"webhook": SHOWN | {
        "url": "https://A.org:443/y?sig=***", "headers": {"authorization": "***", "X-New": "1"}, "query": {}}})
    assert restore_credentials(edited, stored).webhook.url == "https://A.org:443/y?sig=%2Fx"
    assert restore_credentials(edited, stored).webhook.headers == {"authorization": "Bearer abc", "X-New": "1"}


@pytest.mark.parametrize(("fields", "stored", "field"), [
    ({}, None, "headers"),
    ({"headers": {"Authorization": "***"}, "query": {}, "url": "https://b.org/"}, target(), "headers"),
    ({"headers": {"Authorization": "***"}, "query": {}, "url": "http://a.org/"}, target(), "headers"),
    ({"headers": {"Authorization": "***"}, "query": {}, "url": "https://a.org:444/"}, target(), "headers"),
    ({"headers": {"X-Other-Token": "***"}, "query": {}, "url": "https://a.org/"}, target(), "headers"),
    ({"headers": {}, "query": {"other_token": "***"}, "url": "https://a.org/"}, target(), "query"),
    ({"headers": {}, "query": {}, "url": "https://a.org/?secret=***"}, target(), "url"),
])
def test_a_mask_without_a_stored_value_for_this_origin_is_an_error(fields, stored, field):
    asked = Target.model_validate({"webhook": SHOWN | fields})
    with pytest.raises(Rejected, match="replaces a hidden value") as caught:
        restore_credentials(asked, None if stored is None else stored.model_dump_json(exclude_unset=True))
    assert caught.value.problems[0].field == f"target.webhook.{field}"


def test_the_audit_shows_that_a_credential_changed_but_not_to_what():
    old, new = _difference({"target": json.dumps({"webhook": {"url": "https://a/?token=first"}}), "name": "x"},
                          {"target": json.dumps({"webhook": {"url": "https://a/?token=second"}}), "name": "x"})
    assert json.loads(old).keys() == json.loads(new).keys() == {"target"}
    assert "first" not in old
    assert "second" not in new
