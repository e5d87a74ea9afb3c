"""Delayed messages in the console, in a real browser: list, show, cancel, and only as text."""

from uuid import uuid4

import pika
import pytest
from console_support import AXE, DESK, PHONE, a_visit, faults
from node_support import package_soon
from playwright.sync_api import expect
from support import DEADLINE, until
from test_console_injection import ALL

expect.set_options(timeout=DEADLINE * 1000)
HOUR = 3_600_000


@pytest.fixture(scope="module", autouse=True)
def axe_is_fetched_meanwhile():
    package_soon(*AXE)


def delay(world, key, body, **properties):
    before = len(rows(world))
    properties = {"message_id": str(uuid4()), "headers": {"x-delay": HOUR}} | properties
    sent = pika.BasicProperties(**properties)
    world.host.channel.basic_publish("schedule.delay", key, body, sent, mandatory=True)
    until(lambda: len(rows(world)) > before, "it is stored")
    return properties["message_id"]


def rows(world):
    return world.sidecar.sql("SELECT message_id FROM delayed_messages WHERE exchange IS NOT NULL")


def test_a_delayed_message_is_found_shown_and_cancelled(world, browser):
    named = delay(world, "invoice.reminder", b'{"invoice": 42}')
    delay(world, "other", b"x")
    with a_visit(browser, world, world.token(), width=DESK) as visit:
        page = visit.go("/")
        page.get_by_role("link", name="Delayed").click()
        page.get_by_label("Routing key").fill("invoice.reminder")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("tbody tr")).to_have_count(1)
        page.get_by_label("Id").fill(named)
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_text('"invoice": 42')).to_be_visible()
        page.get_by_text("Cancel …").click()
        page.get_by_role("button", name="Cancel this message").click()
        expect(page.get_by_text("Cancelled: invoice.reminder")).to_be_visible()
    assert named not in {str(row["message_id"]) for row in rows(world)}


def test_delayed_message_pages_escape_message_contents(world, browser):
    headers = {"x-delay": HOUR, ALL[:200]: ALL}
    named = delay(world, "<b>{{7*7}}", ALL.encode(), content_type=ALL[:200], headers=headers)
    for width in (DESK, PHONE):
        with a_visit(browser, world, world.token(), width=width) as visit:
            for path, shown in (("/delayed", named), (f"/delayed/{named}", "evil.example")):
                page = visit.go(path)
                expect(page.get_by_text(shown).first).to_be_attached()
                assert faults(page) == [], (path, width)
                wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert wide <= 0, f"{path} is {wide} px wider than the screen of {width}"
                assert page.locator("main script, main iframe, main svg[onload]").count() == 0


def test_delayed_messages_are_hidden_without_permission(world, browser):
    named = delay(world, "seen", b"x")
    with a_visit(browser, world, world.token("viewer"), width=DESK) as visit:
        page = visit.go(f"/delayed/{named}")
        expect(page.get_by_text("seen").first).to_be_visible()
        assert page.get_by_text("Cancel …").count() == 0
    assert world.http("/delayed", token=world.token("operator", "acme"))[0] == 403
