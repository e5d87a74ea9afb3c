"""Bulk actions that can be followed and undone exactly, the load ahead, backfill, and two runs side by side."""

import json
import re
from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from console_support import a_visit
from playwright.sync_api import expect
from support import DEADLINE, iso, until, utc

expect.set_options(timeout=DEADLINE * 1000)


def jobs_of(world, job_type, number=3, **fields):
    usual = {"job_type": job_type, "every": "P1D", "run_at": iso(utc(days=2))}
    return [world.job(**usual | {"name": f"{job_type} {at}"} | fields) for at in range(number)]


def statuses(world, jobs):
    return [world.sidecar.job(job)["status"] for job in jobs]


def test_a_bulk_cancel_is_undone_exactly(world, visit):
    jobs = jobs_of(world, "bulk.undo", 4)
    world.host.publish("pause", {"id": jobs[1]})
    until(lambda: statuses(world, jobs[1:2]) == ["paused"], "the pause")
    before = [world.rest("GET", f"/jobs/{job}") for job in jobs]
    world.host.publish("cancel", {"id": jobs[3]})
    until(lambda: statuses(world, jobs[3:]) == ["cancelled"], "the cancel of one")
    page = visit.go("/jobs?job_type=bulk.undo")
    page.get_by_role("link", name="Cancel …").click()
    page.get_by_placeholder("Reason (optional)").fill("wrong filter")
    page.get_by_role("button", name="Cancel 3 jobs permanently").click()
    expect(page.get_by_role("status").first).to_contain_text("3 jobs cancelled")
    page.get_by_role("link", name="Show", exact=True).click()
    expect(page.get_by_text("Reason: wrong filter")).to_be_visible()
    world.rest("PUT", f"/jobs/{jobs[2]}", {"job_type": "bulk.undo", "every": "PT1H"})  # changed since: left alone
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status").first).to_contain_text("2 jobs scheduled again")
    after = [world.rest("GET", f"/jobs/{job}") for job in jobs]
    same = ("status", "next_run_at", "occurrence", "name", "payload")
    for number in (0, 1):
        assert {name: after[number][name] for name in same} == {name: before[number][name] for name in same}
    assert (after[1]["status"], after[2]["every"], after[3]["status"]) == ("paused", 3600, "cancelled")
    assert world.http(f"/bulk/{uuid4()}", token=world.token())[0] == 404


def test_an_undo_of_a_pause_leaves_those_alone_that_were_paused_before(world, visit):
    jobs = jobs_of(world, "bulk.pause")
    world.host.publish("pause", {"id": jobs[0]})
    until(lambda: statuses(world, jobs[:1]) == ["paused"], "the pause")
    page = visit.go("/jobs?job_type=bulk.pause")
    page.get_by_role("link", name="Pause …").click()
    page.get_by_role("button", name="Pause 2 jobs").click()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status").first).to_contain_text("2 jobs resumed")
    assert statuses(world, jobs) == ["paused", "pending", "pending"]


def test_selected_rows_are_paused_with_a_reason_which_the_job_shows(world, browser):
    jobs = jobs_of(world, "bulk.rows", tenant="acme")
    rival = world.job(job_type="bulk.rows", every="P1D", run_at=iso(utc(days=2)), tenant="rival")
    with a_visit(browser, world, world.token("operator", "acme")) as visit:
        page = visit.go("/jobs?job_type=bulk.rows")
        expect(page.get_by_role("button", name="Pause selected …")).to_be_hidden()
        for name in ("bulk.rows 0", "bulk.rows 2"):
            page.get_by_role("checkbox", name=f"Select {name}").check()
        expect(page.get_by_text("2 selected:")).to_be_visible()
        page.get_by_role("button", name="Pause selected …").click()
        page.get_by_placeholder("Reason (optional)").fill("CRM is down")
        page.get_by_role("button", name="Pause 2 jobs").click()
        expect(page.get_by_role("status").first).to_contain_text("2 jobs paused")
        assert statuses(world, jobs) == ["paused", "pending", "paused"]
        pause = visit.go(f"/jobs/{jobs[0]}").locator("#pause")
        expect(pause).to_contain_text("by operator@example.org (console): CRM is down")
        expect(page.locator("#changes")).to_contain_text("CRM is down")  # operators see the changes of their jobs
    token = world.token("operator", "acme")
    form = {"action": "pause", "sure": "1", f"pick_{rival}": "on"}
    world.http("/jobs/selected", form, token=token)
    assert statuses(world, [rival]) == ["pending"]
    assert rival not in world.http("/jobs/selected", form | {"sure": ""}, token=token)[1]


@pytest.mark.parametrize(("path", "form"), [
    ("/jobs/selected", {"action": "pause", "pick_7": "on"}), ("/jobs/selected", {"action": "pause"}),
    ("/jobs/selected", {"action": "trigger", "pick_7": "on"}), ("/jobs/bulk", {"action": "pause"}),
])
def test_a_bulk_action_without_a_valid_choice_changes_nothing(world, path, form):
    assert world.http(path, form, token=world.token())[0] == 422
    assert world.http(path, form, token=world.token("viewer"))[0] in {403, 422}


def test_retried_runs_are_followed(world, visit):
    kind = f"bulk.retry.{uuid4().hex[:6]}"
    events = [world.dead_run(job_type=kind, tenant="acme")[1] for _ in range(2)]
    page = visit.go(f"/runs?status=dead&job_type={kind}")
    page.get_by_role("link", name="Retry …").click()
    page.get_by_role("button", name="Retry 2 runs").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("2 runs retried")
    expect(page.locator("#bulk-progress")).to_contain_text("0 of 2 have ended")
    retried = {event["event_id"] for event in events}
    while retried:  # they come in any order
        [event] = world.host.due()
        if event["event_id"] in retried:
            retried.remove(event["event_id"])
            world.result(event, "succeeded")
    expect(page.locator("#bulk-progress")).to_contain_text("2 of 2 have ended")
    batch = page.url.rpartition("/")[2]
    assert world.http(f"/bulk/{batch}", token=world.token("viewer", "acme"))[0] == 200
    assert world.http(f"/bulk/{batch}", token=world.token("admin", "rival"))[0] == 404
    assert world.http(f"/bulk/{batch}/undo", {}, token=world.token("viewer", "acme"))[0] == 403
    listed = world.rest("GET", f"/audit?kind=run&id={events[0]['event_id']}")["items"]
    assert batch in {entry.get("batch") for entry in listed}


def test_who_paused_a_job_is_named_on_the_day_of_a_missed_occurrence(world, visit):
    job = world.job(job_type="day.paused", every="PT1S", run_at=iso(utc(seconds=-2)), on_missed="skip")
    world.rest("POST", f"/jobs/{job}/pause")
    day = f"/jobs/{job}/day?date={utc():%Y-%m-%d}"
    text = "not emitted then: paused by admin@example.org"
    until(lambda: text in visit.go(day).content(), "an occurrence during the pause")


def test_the_load_ahead_shows_each_hour_and_its_jobs(world, browser):
    kind = f"load.{uuid4().hex[:6]}"
    start = (utc() + timedelta(hours=2)).replace(minute=0, second=0, microsecond=0)
    world.job(job_type=kind, name="Every ten minutes", every="PT10M", run_at=iso(start), tenant="acme")
    world.job(job_type=kind, name="Once", run_at=iso(start + timedelta(minutes=5)), tenant="acme")
    world.job(job_type=kind, name="Paused one", every="PT1M", run_at=iso(start), tenant="acme", paused=True)
    world.job(job_type=kind, name="Of a rival", every="PT1M", run_at=iso(start), tenant="rival")
    with a_visit(browser, world, world.token("viewer", "acme")) as visit:
        page = visit.go("/")
        page.get_by_role("link", name="Load", exact=True).click()
        page.get_by_label("Type").fill(kind)
        page.get_by_role("button", name="Show").click()
        cell = page.locator(f".heat td a[title*='{start.day} {start:%b %Y %H:%M}']")
        expect(cell).to_have_text("7")
        cell.click()
        hour = page.locator("#hour")
        expect(hour.locator("tbody tr")).to_have_count(2)
        expect(hour).to_contain_text("Every ten minutes")
        expect(page.get_by_text("Of a rival")).to_have_count(0)
        expect(page.get_by_text("Estimate")).to_have_count(0)
        hour.get_by_role("link", name="All jobs whose next run is in this hour").click()
        expect(page.locator("#jobs tbody tr")).to_have_count(2)
        expect(page.get_by_text(f"with the next run from {start:%a} {start.day}")).to_be_visible()
    assert world.http("/load?zone=Mars", token=world.token())[0] == 422
    assert world.http("/load?at=soon", token=world.token())[0] == 422
    assert world.http("/jobs?sort=next&from=soon", token=world.token())[0] == 422


def test_a_range_is_backfilled_after_a_preview_and_only_once(world, visit):
    kind = f"backfill.{uuid4().hex[:6]}"
    first = (utc() - timedelta(days=3)).replace(microsecond=0)
    job = world.job(job_type=kind, name="Nightly", every="P1D", run_at=iso(first), on_missed="skip",
                    payload={"size": 1.10})
    page = visit.go(f"/jobs/{job}")
    page.get_by_role("link", name="Backfill …").click()
    page.get_by_label("From").fill(f"{first - timedelta(hours=1):%Y-%m-%dT%H:%M}")
    page.get_by_label("Before").fill(f"{first + timedelta(days=2, hours=1):%Y-%m-%dT%H:%M}")
    page.get_by_role("button", name="Show the occurrences").click()
    expect(page.locator("#occurrences tbody tr")).to_have_count(3)
    for _ in range(2):  # none is proposed: what an untracked job has emitted is not recorded
        page.get_by_role("checkbox", checked=False).nth(0).check()
    page.get_by_role("button", name="Emit the chosen occurrences").click()
    expect(page.get_by_role("status").first).to_contain_text("2 occurrences emitted again")
    seen = {}

    def both_came():
        events = map(json.loads, world.host.drain("mainapp_due"))
        seen.update({datetime.fromisoformat(each["due_at"]): each["payload"] for each in events
                     if each["job_type"] == kind and each["job_id"] != job})
        return len(seen) == 2

    until(both_came, "both occurrences")
    assert seen == {first + timedelta(days=day): {"size": 1.1} for day in (0, 1)}
    page.go_back()
    page.reload()
    expect(page.get_by_text("backfilled:")).to_have_count(2)
    assert world.http(f"/jobs/{job}/backfill", token=world.token("viewer"))[0] == 403
    assert world.http(f"/jobs/{job}/backfill", token=world.token("operator", "acme"))[0] == 404


def test_two_runs_are_compared(world, visit):
    job = world.job(job_type="compare", name="Compared", every="PT1H", run_at=iso(utc(hours=1)),
                    run={"max_attempts": 1}, payload={"invoice": 42})
    for status, output in (("succeeded", {"rows": 7, "ok": True}), ("failed", {"rows": 0, "ok": True})):
        world.rest("POST", f"/jobs/{job}/trigger")
        event = world.event(job)
        world.result(event, status, output=output, error=None if status == "succeeded" else "no rows")
        world.run_status(event, "succeeded" if status == "succeeded" else "dead")
    page = visit.go(f"/runs/{event['event_id']}")
    page.get_by_role("link", name="with the last success before it").click()
    table = page.locator("#compared")
    expect(table.locator("tr", has_text="Output")).to_contain_text("differs")
    expect(table.locator("mark")).to_have_count(2)
    expect(table.locator("tr", has_text="Payload")).not_to_contain_text("differs")
    assert world.http(f"/runs/{event['event_id']}/compare?with=7", token=world.token())[0] == 404


def test_the_engineer_at_night_needs_no_mouse(world, visit):
    """From the overview to a retried run by keyboard alone."""
    kind = f"keys.{uuid4().hex[:6]}"
    _, event = world.dead_run("keyboard", job_type=kind, name=f"Keys {kind}")
    page = visit.go("/")
    page.keyboard.press("/")
    page.keyboard.type(event["event_id"])
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/runs/{event['event_id']}"))
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Retry":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").first).to_contain_text("The run is retried now")
