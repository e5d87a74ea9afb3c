"""A session that ends, a server that is away, phones and the keyboard, in a real browser."""

import re

from console_support import PHONE, a_visit
from playwright.sync_api import expect
from support import DEADLINE, iso, utc

from scheduler.api.console.session import COOKIE

expect.set_options(timeout=DEADLINE * 1000)


def end_session(visit, world):
    visit.context.add_cookies([{"name": COOKIE, "value": "ended", "url": world.url}])


def test_a_form_survives_a_session_that_has_ended(world, browser):
    with a_visit(browser, world, world.token("operator"), calm=False) as visit:
        page = visit.go("/jobs/new")
        page.get_by_label("Name", exact=True).fill("Typed before the end")
        page.get_by_label("Type", exact=True).fill("session.kept")
        page.get_by_label("Payload").fill('{"a": [1, 2]}')
        page.get_by_label("Mon", exact=True).first.uncheck()
        end_session(visit, world)
        page.get_by_role("button", name="Create job").click()
        expect(page).to_have_url(re.compile(r"/login\?next=%2Fjobs%2Fnew"))
        page.get_by_label("Token").fill(world.token("operator"))
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("status").first).to_contain_text("Your input from before the sign-in")
        expect(page.get_by_label("Name", exact=True)).to_have_value("Typed before the end")
        expect(page.get_by_label("Mon", exact=True).first).not_to_be_checked()
        expect(page.get_by_label("Payload")).to_have_value('{"a": [1, 2]}')
        page.get_by_role("button", name="Create job").click()
        expect(page.get_by_role("status").first).to_contain_text("Created: Typed before the end")
        page.goto(f"{world.url}/jobs/new")
        expect(page.get_by_label("Name", exact=True)).to_have_value("")


def test_another_user_does_not_get_the_content_of_a_form(world, browser):
    with a_visit(browser, world, world.token("operator"), calm=False) as visit:
        page = visit.go("/jobs/new")
        page.get_by_label("Name", exact=True).fill("Of the first user")
        end_session(visit, world)
        page.get_by_role("button", name="Create job").click()
        page.get_by_label("Token").fill(world.token("admin"))
        page.get_by_role("button", name="Log in").click()
        expect(page).to_have_url(f"{world.url}/jobs/new")
        expect(page.get_by_label("Name", exact=True)).to_have_value("")


def test_an_open_page_says_that_the_session_has_ended(world, browser):
    with a_visit(browser, world, world.token("viewer"), calm=False) as visit:
        page = visit.go("/jobs?status=pending")
        end_session(visit, world)
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        notice = page.locator("#connection")
        expect(notice).to_contain_text("Your session has ended")
        notice.get_by_role("link", name="Sign in again").click()
        page.get_by_label("Token").fill(world.token("viewer"))
        page.get_by_role("button", name="Log in").click()
        expect(page).to_have_url(f"{world.url}/jobs?status=pending")


def test_every_page_says_that_the_server_is_away(world, browser):
    with a_visit(browser, world, world.token(), calm=False) as visit:
        for path in ("/", "/audit", "/jobs/new"):
            page = visit.go(path)
            expect(page.locator("#connection")).to_be_hidden()
            visit.context.set_offline(True)
            expect(page.locator("#connection")).to_contain_text("Offline: the server cannot be reached")
            visit.context.set_offline(False)
            expect(page.locator("#connection")).to_be_hidden()


def test_the_session_can_be_checked(world):
    assert world.http("/session", token=world.token("viewer"))[0] == 204
    assert world.http("/session", token="ended", headers={"HX-Request": "true"})[0] == 401


def test_the_focus_returns_to_the_row_and_its_button_has_a_name(world, visit):
    job = world.job(job_type="keyboard.row", name="By keyboard", every="P1D", run_at=iso(utc(days=1)))
    page = visit.go("/jobs?job_type=keyboard.row")
    button = page.get_by_role("button", name="Pause By keyboard")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Resume By keyboard")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Pause By keyboard")).to_be_focused()
    assert world.sidecar.job(job)["status"] == "pending"


def test_pages_and_filters_are_folded_on_a_phone(world, browser):
    with a_visit(browser, world, world.token(), width=PHONE) as visit:
        page = visit.go("/runs")
        expect(page.get_by_role("navigation", name="Pages")).to_be_hidden()
        page.get_by_role("button", name="Menu").click()
        page.get_by_role("link", name="Calendars", exact=True).click()
        expect(page).to_have_url(f"{world.url}/calendars")
        page = visit.go("/runs")
        page.get_by_role("button", name="Filters").click()
        page.get_by_label("Type", exact=True).fill("nothing.like.it")
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_label("Type", exact=True)).to_be_visible()  # filters that are set stay open
