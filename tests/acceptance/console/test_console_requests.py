"""Requests shown, copied and duplicated; a day of a job, dead letters and the audit, in a real browser."""

import json
import re
import subprocess
from uuid import uuid4

import pytest
from console_support import a_visit
from playwright.sync_api import expect
from support import DEADLINE, iso, until, utc

from scheduler.domain.handler_catalogue import HANDLERS_HEADER

expect.set_options(timeout=DEADLINE * 1000)


def test_a_run_shows_the_request_with_its_secrets_masked(world, visit):
    webhook = {"url": "https://hook.example.org/{{payload.path}}?key=abc", "headers": {
        "Authorization": "Bearer very-secret", "X-Plain": "shown"}, "body": {"at": "{{payload.path}}"}}
    job = world.job(job_type="sent.request", run_at=iso(utc()), payload={"path": "orders"},
                    target={"webhook": webhook})
    runs = until(lambda: world.rest("GET", f"/jobs/{job}/runs")["items"], "its run")
    page = visit.go(f"/runs/{runs[0]['event_id']}")
    shown = page.locator("section").filter(has=page.get_by_role("heading", name="Request"))
    expect(shown).to_contain_text("POST https://hook.example.org/orders")
    expect(shown).to_contain_text("X-Plain")
    expect(shown).to_contain_text('"at": "orders"')
    assert "very-secret" not in page.content()


def test_a_job_is_copied_and_duplicated(world, visit, tmp_path):
    job = world.job(job_type="copied.job", name="The 'original'", every="PT1H", run_at=iso(utc(days=1)),
                    payload={"say": "it's"}, priority="high")
    page = visit.go(f"/jobs/{job}")
    page.get_by_text("Copy as JSON, curl or command line").click()
    fields = json.loads(page.locator("#copy-1").inner_text())
    assert (fields["payload"], fields["priority"], "id" in fields) == ({"say": "it's"}, "high", False)
    script = tmp_path / "copy.sh"
    script.write_text(page.locator("#copy-2").inner_text())
    environment = {"API_URL": world.url, "TOKEN": world.token(), "PATH": "/usr/bin:/bin"}
    body = json.loads(subprocess.run(["/bin/sh", script], env=environment, check=True, capture_output=True).stdout)
    assert (body["name"], body["payload"], body["id"] != job) == ("The 'original'", {"say": "it's"}, True)

    page.get_by_role("link", name="Duplicate").click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("The 'original' (copy)")
    page.get_by_role("button", name="Create job").click()
    expect(page.get_by_role("status").first).to_contain_text("Created: The 'original' (copy)")
    copy = world.rest("GET", f"/jobs/{page.url.rsplit('/', 1)[1]}")
    assert (copy["every"], copy["payload"], copy["priority"]) == (3600, {"say": "it's"}, "high")
    assert copy["id"] != job


def test_a_duplicate_of_another_tenants_job_is_not_found(world):
    job = world.job(job_type="copied.rival", run_at=iso(utc(days=1)), tenant="rival")
    token = world.token("operator", "acme")
    assert world.http(f"/jobs/new?from={job}", token=token)[0] == 404
    assert world.http(f"/jobs/{job}/day?date=2026-11-20", token=token)[0] == 404
    assert world.http("/jobs/new?from=nonsense", token=token)[0] == 404


def test_a_day_shows_each_occurrence_and_what_became_of_it(world, visit):
    _, event = world.dead_run("it broke", job_type="day.of", name="Day by day")
    job = event["job_id"]
    page = visit.go(f"/jobs/{job}")
    page.get_by_label("What happened on").fill(event["due_at"][:10])
    page.get_by_role("button", name="Show the day").click()
    row = page.locator("#day tbody tr").first
    expect(row).to_contain_text("dead")
    expect(row.get_by_role("link")).to_have_attribute("href", f"/runs/{event['event_id']}")
    world.calendar("day.closed", {"weekend": ["SA", "SU"], "closed": {"2030-01-04": "Founders' Day"}})
    job = world.job(job_type="day.moved", cron="0 9 * * *", calendar="day.closed", on_closed="skip")
    page = visit.go(f"/jobs/{job}/day?date=2030-01-04")
    expect(page.locator("#day tbody tr")).to_contain_text("Friday 4 January is closed (Founders' Day)")
    page.get_by_role("link", name="Next day").click()
    page.get_by_role("link", name="Next day").click()
    page.get_by_role("link", name="Next day").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Monday 7 January 2030")
    expect(page.locator("#day tbody tr")).to_contain_text("planned")
    assert world.http(f"/jobs/{job}/day?date=soon", token=world.token())[0] == 422


def test_dead_letters_are_filtered_and_changed_in_bulk(world, visit):
    unique = uuid4().hex[:8]
    events = [world.dead_run(f"broken {unique}", job_type=f"dead.{unique}", name=f"Dead {unique}")[1]
              for _ in range(3)]
    world.host.publish("request", {"id": str(uuid4()), "job_type": f"dead.{unique}", "rrule": "nonsense"})
    page = visit.go("/dead")
    listed = f"/dead?job_type=dead.{unique}"
    rows = page.locator("tbody tr")

    def four():
        visit.go(listed)
        return rows.count() == 4

    until(four, "four dead letters")
    expect(page.get_by_role("link", name=f"Dead {unique}").first).to_be_visible()
    page.get_by_label("Kind").select_option("message")
    page.get_by_role("button", name="Show").click()
    expect(rows).to_have_count(1)
    page.get_by_text("Delete all …").click()
    page.get_by_role("button", name="Delete 1 permanently").click()
    expect(page.get_by_role("status").first).to_contain_text("1 letter deleted")

    world.result(events[0], "succeeded")
    world.run_status(events[0], "succeeded")
    visit.go(listed + "&succeeded=1")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("succeeded since")
    page.get_by_text("Delete all …").click()
    page.get_by_role("button", name="Delete 1 permanently").click()
    expect(page.get_by_role("status").first).to_contain_text("1 letter deleted")
    visit.go(listed)
    expect(rows).to_have_count(2)
    page.get_by_text("Retry all …").click()
    page.get_by_role("button", name="Retry 2", exact=True).click()
    expect(page.get_by_role("status").first).to_contain_text("2 letters retried")
    for event in events[1:]:
        until(lambda event=event: world.rest("GET", f"/runs/{event['event_id']}")["status"] != "dead", "a retry")


def test_only_admins_of_all_tenants_change_dead_letters_in_bulk(world):
    for token in (world.token("operator"), world.token("admin", "acme")):
        assert world.http("/dead/drop", {"kind": "run"}, token=token)[0] == 403
        assert world.http("/dead/replay", {"kind": "run"}, token=token)[0] == 403
    assert world.http("/dead?kind=nonsense", token=world.token())[0] == 422


def test_the_audit_has_filters_and_names(world, visit):
    job = world.job(job_type="audit.named", name="Named in the audit", run_at=iso(utc(days=1)))
    world.rest("POST", f"/jobs/{job}/pause")
    page = visit.go("/audit")
    page.get_by_label("Action").fill("pause")
    page.get_by_label("Id").fill(job)
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("link", name="Named in the audit")).to_have_attribute("href", f"/jobs/{job}")
    assert world.http("/audit?via=telepathy", token=world.token())[0] == 422


SCHEMA = {"type": "object", "required": ["invoice"], "properties": {
    "invoice": {"type": "integer", "title": "Invoice", "description": "Its number"},
    "channel": {"type": "string", "enum": ["mail", "post"]}, "copy": {"type": "boolean"}}}


@pytest.fixture
def handler(world):
    report = {"id": str(uuid4()), "host": "types", "pid": 5, "version": "1", "started_at": iso(utc()),
              "offers": [], "in_flight": 0, "beat": 1}
    served = [{"job_type": "typed.invoice", "description": "Sends an invoice", "parameters": SCHEMA}]
    world.host.publish("worker", report, headers={HANDLERS_HEADER: json.dumps(served)})
    until(lambda: world.sidecar.sql("SELECT 1 FROM workers WHERE id = %s", report["id"]), "the worker is known")


@pytest.mark.usefixtures("handler")
def test_a_payload_form_is_made_from_the_parameters_of_the_type(world, visit):
    page = visit.go("/jobs/new")
    page.get_by_label("Type", exact=True).focus()
    expect(page.locator("#types option[value='typed.invoice']")).to_be_attached()
    page.get_by_label("Type", exact=True).fill("typed.invoice")
    page.get_by_label("Name", exact=True).focus()
    page.get_by_label("Invoice").fill("42")
    page.get_by_label("channel").select_option("post")
    page.get_by_label("copy", exact=True).check()
    expect(page.get_by_label("Payload")).to_have_value(re.compile('"invoice": 42'))
    page.get_by_label("only when triggered").check()
    page.get_by_role("button", name="Create job").click()
    expect(page.get_by_role("status").first).to_contain_text("Created: typed.invoice")
    job = page.url.rsplit("/", 1)[1]
    assert world.rest("GET", f"/jobs/{job}")["payload"] == {"invoice": 42, "channel": "post", "copy": True}
    page.get_by_role("link", name="Edit", exact=True).click()
    expect(page.get_by_label("Invoice")).to_have_value("42")


@pytest.mark.usefixtures("handler")
def test_a_payload_that_the_handlers_of_its_type_would_not_read_is_not_saved(visit):
    page = visit.go("/jobs/new")
    page.get_by_label("Type", exact=True).fill("typed.invoice")
    page.get_by_label("only when triggered").check()
    page.get_by_label("Payload").fill('{"invoice": "many", "channel": "fax"}')
    preview = page.locator("#preview")
    expect(preview.get_by_text("payload.invoice: must be integer")).to_be_visible()
    page.get_by_role("button", name="Create job").click()
    expect(page.get_by_text("Your input is kept")).to_be_visible()
    expect(page.locator("#problem-payload-channel")).to_have_text("payload.channel: must be one of mail, post")
    page.get_by_label("Payload").fill('{"invoice": 7}')
    page.get_by_role("button", name="Create job").click()
    expect(page.get_by_role("status").first).to_contain_text("Created: typed.invoice")
    visit.bear("422")


def test_a_tenants_viewer_cannot_use_what_only_operators_may(world, browser):
    job = world.job(job_type="viewed.only", run_at=iso(utc(days=1)), tenant="acme")
    with a_visit(browser, world, world.token("viewer", "acme")) as visit:
        page = visit.go(f"/jobs/{job}")
        expect(page.get_by_role("link", name="Duplicate")).to_have_count(0)
        expect(page.get_by_text("Copy as JSON, curl or command line")).to_be_visible()
