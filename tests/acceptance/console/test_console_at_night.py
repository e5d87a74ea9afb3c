"""What is late and why, found quickly: the engineer at 3 a.m. in a real browser."""

import re
from uuid import uuid4

import pytest
from console_support import a_visit
from playwright.sync_api import expect
from support import DEADLINE, iso, until, utc

expect.set_options(timeout=DEADLINE * 1000)


@pytest.fixture(scope="module")
def late(world):
    """Late jobs of two tenants: no queue is bound for their route. The older one was requested later."""
    fields = {"job_type": "night.late", "route": "night.nowhere"}
    newer = world.job(name="Late newer", run_at=iso(utc(minutes=-5)), tenant="acme", **fields)
    older = world.job(name="Late older", run_at=iso(utc(minutes=-50)), tenant="rival", **fields)
    refused = "SELECT 1 FROM jobs WHERE id = ANY(%s::uuid[]) AND retries > 0"
    until(lambda: len(world.sidecar.sql(refused, [newer, older])) == 2, "two refused jobs")
    return {"acme": newer, "rival": older}


@pytest.mark.usefixtures("late")
def test_the_late_are_listed_by_lateness_with_the_cause(visit):
    page = visit.go("/")
    expect(page.locator("#part-status h1")).to_contain_text("Late: ")
    expect(page.get_by_role("list", name="Causes").get_by_role("link", name=re.compile(
        "No queue is bound to schedule.events for due.night.nowhere: 2 jobs of 2 tenants"))).to_be_visible()
    page.get_by_role("link", name="Show late jobs").click()
    expect(page).to_have_url(re.compile("/jobs.late=1"))
    rows = page.locator("#jobs tbody tr").filter(has_text="night.late")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("Late older")
    expect(rows.nth(0)).to_contain_text("No queue is bound to schedule.events for due.night.nowhere, refused")
    page.get_by_label("Tenant").fill("acme")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    expect(page.get_by_role("heading", name="Late jobs")).to_be_visible()


def test_the_api_lists_the_late(world, late):
    listed = world.rest("GET", "/jobs?late=true&job_type=night.late")["items"]
    assert [job["id"] for job in listed] == [late["rival"], late["acme"]]
    assert "no queue is bound" in listed[0]["last_problem"]
    first = world.rest("GET", "/jobs?late=true&job_type=night.late&limit=1")
    assert [job["id"] for job in first["items"]] == [late["rival"]]
    rest = world.rest("GET", f"/jobs?late=true&job_type=night.late&limit=1&after={first['next']}")
    assert ([job["id"] for job in rest["items"]], rest["next"]) == ([late["acme"]], None)
    viewer = world.token("viewer", "acme")
    assert [job["id"] for job in world.rest("GET", "/jobs?late=true", token=viewer)["items"]] == [late["acme"]]
    assert world.rest("GET", "/jobs?late=true&tenant=rival", token=viewer)["items"] == []
    assert world.rest("GET", "/jobs?late=true&status=paused")["items"] == []
    assert world.rest("GET", "/jobs?late=maybe")["status"] == 422


@pytest.mark.usefixtures("late")
def test_a_tenants_overview_shows_only_its_own_causes(world, browser):
    with a_visit(browser, world, world.token("viewer", "acme")) as visit:
        page = visit.go("/")
        expect(page.get_by_role("list", name="Causes")).to_contain_text("for due.night.nowhere: 1 job")
        expect(page.get_by_text("tenants")).to_have_count(0)
        page.get_by_role("link", name="Show late jobs").click()
        expect(page.locator("#jobs tbody tr")).to_have_count(1)
        expect(page.get_by_text("Late older")).to_have_count(0)


def test_a_link_from_fails_most_keeps_the_tenant(world, visit):
    for tenant in ("acme", "rival"):
        for _ in range(2):
            world.dead_run("it broke", job_type="night.fails", tenant=tenant)
    page = visit.go("/")
    row = page.locator("#part-failing tr").filter(has_text="night.fails").filter(has_text="acme")
    row.get_by_role("link", name="2", exact=True).click()
    expect(page).to_have_url(re.compile(r"status=dead.*job_type=night\.fails.*tenant=acme"))
    expect(page.locator("#runs-table tbody tr")).to_have_count(2)
    page.get_by_role("link", name="Retry …").click()
    expect(page.get_by_role("button", name="Retry 2 runs")).to_be_visible()


@pytest.mark.parametrize("path", ["/jobs?status=pnding", "/runs?status=ded", "/jobs?priority=urgent&late=1",
                                  "/runs?since=yesterday", "/runs?zone=Mars", "/runs?job_id=7"])
def test_an_unknown_filter_value_is_an_error_not_everything(world, path):
    world.job(job_type="night.any", run_at=iso(utc(days=1)))
    status, markup, _ = world.http(path, token=world.token())
    assert status == 422
    assert 'role="alert"' in markup
    assert "night.any" not in markup


def test_runs_show_the_names_of_their_jobs_and_filter_in_the_viewers_zone(world, browser):
    job, event = world.dead_run(job_type="night.named", name="Sync of the night", run_at=iso(utc()))
    with a_visit(browser, world, world.token()) as visit:
        page = visit.go("/runs?job_type=night.named")
        expect(page.locator("#runs-table").get_by_role("link", name="Sync of the night")).to_be_visible()
        page.get_by_label("Due from (your time)").fill("2026-01-01T09:00")
        page.get_by_role("button", name="Show").click()
        expect(page).to_have_url(re.compile("zone=America%2FNew_York"))
        expect(page.locator("#runs-table tbody tr")).to_have_count(1)
        page.get_by_label("Id of a run, or job begins with").fill("Sync of the")
        page.get_by_role("button", name="Show").click()
        expect(page).to_have_url(re.compile(f"/runs.job_id={job}"))
        page.get_by_label("Id of a run, or job begins with").fill(event["event_id"])
        page.get_by_role("button", name="Show").click()
        expect(page).to_have_url(re.compile(f"/runs/{event['event_id']}"))


def test_find_anything_with_the_keyboard(world, visit):
    unique = f"Zebra {uuid4().hex[:8]}"
    job = world.job(job_type="find.me", name=f"Monthly {unique} report", run_at=iso(utc(days=1)),
                    payload={"order": {"number": unique}})
    world.job(job_type="find.other", name=f"Another {unique}", run_at=iso(utc(days=1)), tenant="rival")
    page = visit.go("/")
    page.keyboard.press("/")
    page.keyboard.type(unique.upper())
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name=f"Monthly {unique} report")).to_be_visible()
    expect(page.get_by_role("link", name=f"Another {unique}")).to_be_visible()
    page.locator("input[name=q]:visible").fill(f"payload.order.number:{unique}")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/jobs/{job}"))
    page.keyboard.press("/")
    page.keyboard.type(job)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/jobs/{job}"))
    viewer = world.token("viewer", "acme")
    for text in (unique, job, f"payload.order.number:{unique}"):
        assert "Nothing matches" in world.http(f"/find?q={text.replace(' ', '+')}", token=viewer)[1]


def test_a_tenant_is_found_and_paused_with_three_clicks(world, browser, late):
    job = world.job(job_type="tenant.job", every="PT1H", run_at=iso(utc(days=1)), tenant="paused-one")
    with a_visit(browser, world, world.token()) as visit:
        page = visit.go("/")
        page.get_by_role("link", name="Tenants", exact=True).click()
        row = page.locator("#tenants tbody tr").filter(has_text="rival")
        expect(row.get_by_role("link", name="1", exact=True).first).to_be_visible()
        assert late["rival"] in visit.go("/jobs?late=1&tenant=rival").content()
        page = visit.go("/tenants")
        page.get_by_role("link", name="Pause the jobs of paused-one …").click()
        page.get_by_role("button", name="Pause 1 job").click()
        expect(page.get_by_role("status").first).to_contain_text("1 job paused")
    assert world.sidecar.job(job)["status"] == "paused"
    assert world.http("/tenants", token=world.token("admin", "acme"))[0] == 403
