"""Calendars, sending windows and jitter in the console, in a real browser."""

import re

from console_support import a_visit
from playwright.sync_api import expect
from support import DEADLINE, iso, utc

expect.set_options(timeout=DEADLINE * 1000)
GERMANY = {"weekend": ["SA", "SU"], "closed": {"2027-12-24": "Christmas Eve"}, "valid_until": "2027-12-31"}


def test_a_job_with_calendar_hours_and_jitter_is_made_and_edited(world, visit):
    world.calendar("form.de", GERMANY)
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
    stored = world.rest("GET", f"/jobs/{job}")
    assert {name: stored[name] for name in wanted} == wanted
    assert stored["name"] == "Renamed"

    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_label("Only at certain hours").uncheck()
    page.get_by_label("Calendar", exact=True).fill("")
    page.get_by_label("Spread by up to").fill("")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved")
    assert {world.rest("GET", f"/jobs/{job}")[name] for name in ("calendar", "on_closed", "jitter")} == {None}


def test_the_year_of_a_job_shows_closed_days_and_moved_occurrences(world, visit):
    world.calendar("year.all", {"weekend": ["SA", "SU"]})
    job = world.job(job_type="plan.year", cron="0 9 * * 6", calendar="year.all", on_closed="next")
    page = visit.go(f"/jobs/{job}")
    year = page.locator("svg.year").first
    expect(year.locator("rect.d-closed").first).to_be_attached()
    moved = year.locator("title", has_text=re.compile(r"Mon .*1 run planned, moved from Sat"))
    expect(moved.first).to_be_attached()
    expect(page.locator(".legend").get_by_text("moved to this day")).to_be_visible()


ICS = """BEGIN:VCALENDAR
BEGIN:VEVENT
DTSTART;VALUE=DATE:20271225
SUMMARY:Christmas Day
END:VEVENT
BEGIN:VEVENT
DTSTART:20271225T090000Z
SUMMARY:Lunch
END:VEVENT
END:VCALENDAR
"""


def test_a_calendar_is_made_used_edited_imported_and_deleted(world, visit):
    page = visit.go("/calendars")
    page.get_by_role("link", name="New calendar").click()
    page.get_by_label("Name").fill("made.here")
    page.get_by_label("Closed dates").fill("2027-12-24 Christmas Eve\nsometime")
    page.get_by_role("button", name="Create calendar").click()
    expect(page.get_by_text("closed: line 2: must be a date and a name")).to_be_visible()
    visit.bear("422")
    expect(page.get_by_label("Closed dates")).to_have_value("2027-12-24 Christmas Eve\nsometime")
    page.get_by_label("Closed dates").fill("2027-12-24 Christmas Eve")
    page.get_by_role("button", name="Create calendar").click()
    expect(page.get_by_role("status").first).to_contain_text("Created: made.here")
    stored = world.rest("GET", "/calendars/made.here")
    assert (stored["weekend"], stored["closed"]) == (["SA", "SU"], {"2027-12-24": "Christmas Eve"})

    job = world.job(job_type="plan.used", name="It uses it", cron="0 9 * * *", calendar="made.here")
    page = visit.go("/calendars/made.here?year=2027")
    expect(page.get_by_role("link", name="It uses it")).to_have_attribute("href", f"/jobs/{job}")
    expect(page.locator("title", has_text="Fri 24 Dec 2027: closed (Christmas Eve)")).to_be_attached()
    expect(page.get_by_role("cell", name="Christmas Eve")).to_be_visible()
    expect(page.get_by_text("Delete …")).to_have_count(0)

    page.get_by_role("link", name="Edit").click()
    world.calendar("made.here", {"weekend": ["FR"]})  # meanwhile, by another person
    page.get_by_label("Closed dates").fill("2027-12-24 Holy Evening")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("changed by someone else")
    visit.bear("412")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status").first).to_contain_text("Saved: 1 job will be planned again")
    assert world.rest("GET", "/calendars/made.here")["closed"] == {"2027-12-24": "Holy Evening"}

    page.get_by_role("link", name="Import …").click()
    page.get_by_label("iCalendar or JSON file").set_input_files(
        {"name": "de.ics", "mimeType": "text/calendar", "buffer": ICS.encode()})
    expect(page.get_by_label("Content")).to_have_value(ICS)
    page.get_by_role("button", name="Show changes").click()
    preview = page.locator("#import-preview")
    expect(preview.get_by_text("events with a time of day left out")).to_be_visible()
    expect(preview.get_by_role("row", name="+ closed 2027-12-25 Christmas Day")).to_be_visible()
    assert world.rest("GET", "/calendars/made.here")["closed"] == {"2027-12-24": "Holy Evening"}
    preview.get_by_role("button", name="Save 3 changes").click()
    expect(page.get_by_role("status").first).to_contain_text("Imported: made.here: 1 job will be planned again")
    stored = world.rest("GET", "/calendars/made.here")
    assert (stored["closed"], stored["valid_until"], stored["weekend"]) == (
        {"2027-12-25": "Christmas Day"}, "2027-12-31", ["SA", "SU"])

    world.rest("DELETE", f"/jobs/{job}")
    page = visit.go("/calendars/made.here")
    page.get_by_text("Delete …").click()
    page.get_by_role("button", name="Delete this calendar").click()
    expect(page.get_by_role("status").first).to_contain_text("Deleted: made.here")
    assert world.rest("GET", "/calendars/made.here")["status"] == 404


def test_a_bad_file_is_told_by_line_and_stores_nothing(world, visit):
    page = visit.go("/calendar/import?name=bad.file")
    page.get_by_label("Content").fill('{"closed":\n {"2027-02-30": "x"}}')
    page.get_by_role("button", name="Show changes").click()
    expect(page.get_by_role("alert")).to_contain_text("line 2: closed: the date 2027-02-30 does not exist")
    visit.bear("422")
    assert world.rest("GET", "/calendars/bad.file")["status"] == 404


def test_an_expiring_calendar_is_marked(world, visit):
    world.calendar("expired.soon", {"weekend": ["SU"], "valid_until": iso(utc(days=5))[:10]})
    page = visit.go("/calendars")
    expect(page.get_by_role("row", name="expired.soon")).to_contain_text("expires in 5 days")


def test_a_tenant_sees_only_its_own_calendars_and_those_of_all(world, browser):
    world.calendar("secret.acme", {"weekend": ["SU"]}, "acme")
    world.calendar("secret.rival", {"weekend": ["SU"]}, "rival")
    world.calendar("shared.by-all", {"weekend": ["SU"]}, "*")
    world.job(job_type="rival.job", name="Rival's job", tenant="rival", cron="@daily", calendar="shared.by-all")
    with a_visit(browser, world, world.token("viewer", "acme")) as visit:
        page = visit.go("/calendars")
        expect(page.get_by_role("link", name="secret.acme")).to_be_visible()
        expect(page.get_by_role("link", name="shared.by-all")).to_be_visible()
        expect(page.get_by_role("link", name="secret.rival")).to_have_count(0)
        expect(page.get_by_role("link", name="New calendar")).to_have_count(0)
        page.get_by_role("link", name="shared.by-all").click()
        expect(page.get_by_text("No pending or paused job uses it.")).to_be_visible()
        expect(page.get_by_text("Rival's job")).to_have_count(0)
    viewer, operator = world.token("viewer", "acme"), world.token("operator", "acme")
    assert world.http("/calendars/secret.rival?tenant=rival", token=viewer)[0] == 404
    assert world.http("/calendar/new", {"name": "x"}, token=viewer)[0] == 403
    assert world.http("/calendars/secret.rival/delete?tenant=rival", {}, token=operator)[0] == 404
    assert world.http("/calendars/shared.by-all/edit?tenant=*", {"version": "1"}, token=operator)[0] == 403
    assert world.http("/calendar/import", {"name": "a", "tenant": "rival", "text": "{}", "version": "new"},
                      token=operator)[0] == 404
