"""Calendars, sending windows and jitter in the console, in a real browser."""

import json
import re
import urllib.request

from playwright.sync_api import expect
from support import DEADLINE

expect.set_options(timeout=DEADLINE * 1000)
GERMANY = {"weekend": ["SA", "SU"], "closed": {"2027-12-24": "Christmas Eve"}, "valid_until": "2027-12-31"}


def put(world, name, fields, tenant="default"):
    request = urllib.request.Request(
        f"{world.url}/api/v1/calendars/{name}?tenant={tenant}", json.dumps(fields).encode(),
        {"Authorization": f"Bearer {world.token()}"}, method="PUT")
    with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
        return json.loads(answer.read())


def test_a_job_with_calendar_hours_and_jitter_is_made_and_edited(world, visit):
    put(world, "form.de", GERMANY)
    page = visit.go("/jobs/new")
    preview = page.locator("#preview")
    page.get_by_label("Type", exact=True).fill("plan.office")
    page.get_by_label("once", exact=True).check()
    page.locator("input[name=run_at]").fill("2027-12-24T20:00")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_role("button", name="Office hours").click()
    expect(preview.get_by_text("20:00 is outside the window 09:00-17:00: moved to its next")).to_be_visible()
    page.get_by_label("Calendar", exact=True).fill("nowhere")
    expect(preview.get_by_text("calendar: there is no calendar nowhere")).to_be_visible()
    page.get_by_label("Calendar", exact=True).fill("form.de")
    page.get_by_label("on closed days").select_option("next")
    expect(preview.get_by_text("Friday 24 December is closed (Christmas Eve): moved to Monday 27 December")
           ).to_be_visible()
    page.get_by_label("Spread by up to").fill("600")
    expect(preview.get_by_text("delayed by up to 10 min (jitter)")).to_be_visible()
    page.get_by_role("button", name="Create job").click()
    expect(page.get_by_role("status")).to_contain_text("Created: plan.office")
    expect(page.get_by_text("Occurrences on closed days of form.de move to the next open day")).to_be_visible()
    expect(page.locator("#part-job-ahead")).to_contain_text("Friday 24 December is closed (Christmas Eve)")
    job = page.url.rsplit("/", 1)[1]
    wanted = {"calendar": "form.de", "on_closed": "next", "jitter": 600,
              "window": {"from": "09:00", "to": "17:00", "days": ["MO", "TU", "WE", "TH", "FR"]}}

    page.get_by_role("link", name="Edit", exact=True).click()
    expect(page.get_by_label("Only at certain hours")).to_be_checked()
    page.get_by_label("Name", exact=True).fill("Renamed")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved")
    stored = api(world, f"/jobs/{job}")
    assert {name: stored[name] for name in wanted} == wanted
    assert stored["name"] == "Renamed"

    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_label("Only at certain hours").uncheck()
    page.get_by_label("Calendar", exact=True).fill("")
    page.get_by_label("Spread by up to").fill("")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved")
    assert {api(world, f"/jobs/{job}")[name] for name in ("calendar", "on_closed", "jitter")} == {None}


def api(world, path, token=None):
    request = urllib.request.Request(f"{world.url}/api/v1{path}",
                                     headers={"Authorization": f"Bearer {token or world.token()}"})
    with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
        return json.loads(answer.read())


def test_the_year_of_a_job_shows_closed_days_and_moved_occurrences(world, visit):
    put(world, "year.all", {"weekend": ["SA", "SU"]})
    job = world.job(job_type="plan.year", cron="0 9 * * 6", calendar="year.all", on_closed="next")
    page = visit.go(f"/jobs/{job}")
    year = page.locator("svg.year").first
    expect(year.locator("rect.d-closed").first).to_be_attached()
    moved = year.locator("title", has_text=re.compile(r"Mon .*1 run planned, moved from Sat"))
    expect(moved.first).to_be_attached()
    expect(page.locator(".legend").get_by_text("moved to this day")).to_be_visible()
