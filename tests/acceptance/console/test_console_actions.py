"""Actions in the console, each in a real browser, and their results."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import pytest
from console_support import a_visit
from playwright.sync_api import expect
from support import DEADLINE, iso, until, utc

from scheduler.api.console.session import form_token
from scheduler.domain.worker_facts import FACTS_HEADER

expect.set_options(timeout=DEADLINE * 1000)
VERDICT = re.compile("On time|Late")  # a busy machine is late, and that is what it must say then


def status(world, job_id):
    return world.sidecar.job(job_id)["status"]


def test_logging_in_with_a_token_and_out_again(world, browser):
    # A page that requires a login returns 303 or 401, and the browser logs a 401: not an error here.
    with a_visit(browser, world, calm=False) as visit:
        page = visit.go("/jobs?status=paused")
        expect(page).to_have_url(re.compile(r"/login\?next=%2Fjobs%3Fstatus%3Dpaused"))
        page.get_by_label("Token").fill("nonsense")
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("#token-problem")).to_contain_text("token")
        page.get_by_label("Token").fill(world.token("viewer"))
        page.get_by_role("button", name="Log in").click()
        expect(page).to_have_url(f"{world.url}/jobs?status=paused")
        [cookie] = [cooky for cooky in visit.context.cookies() if cooky["name"] == "scheduler_session"]
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["expires"]) == (True, "Strict", -1)
        assert page.evaluate("document.cookie") == ""
        page.get_by_role("button", name="Log out").click()
        expect(page).to_have_url(f"{world.url}/login")
        assert visit.context.cookies() == []


def test_pause_and_resume_in_the_row(world, visit):
    job = world.job(job_type="rowed", name="In the row", every="P1D", run_at=iso(utc(days=1)))
    page = visit.go("/jobs?q=In the row")
    row = page.locator(f"#job-{job}")
    row.get_by_role("button", name="Pause").click()
    expect(row.get_by_role("button", name="Resume")).to_be_visible()
    expect(row.get_by_text("paused")).to_be_visible()
    assert status(world, job) == "paused"
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_text("pending")).to_be_visible()
    assert status(world, job) == "pending"
    expect(page).to_have_url(re.compile(r"/jobs\?q=In"))  # the filter stays in the address


def test_filters_are_kept_in_the_url(world, visit):
    world.job(job_type="filter.one", name="One of them", every="P1D", priority="high", tenant="acme")
    world.job(job_type="filter.two", name="Another one", every="P1D")
    page = visit.go("/jobs")
    page.get_by_label("Type", exact=True).fill("filter.one")
    page.get_by_label("Priority").select_option("high")
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile("job_type=filter.one.*priority=high"))
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    expect(page.get_by_role("link", name="One of them")).to_be_visible()
    page.get_by_role("link", name="Clear").click()
    expect(page.get_by_role("link", name="Another one")).to_be_visible()


def test_the_job_page_triggers_pauses_undoes_and_cancels(world, visit):
    job = world.job(job_type="acted", name="Acted upon", every="P1D", run_at=iso(utc(days=1)), run={})
    page = visit.go(f"/jobs/{job}")
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_role("status")).to_contain_text("One extra run was triggered")
    event = world.event(job)
    world.result(event, "succeeded", output={"rows": 3})
    world.run_status(event, "succeeded")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_contain_text("Paused")
    assert status(world, job) == "paused"
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_contain_text("Resumed")
    assert status(world, job) == "pending"
    expect(page.locator("#runs").get_by_text("succeeded")).to_be_visible()
    page.get_by_text("Cancel …").click()
    page.get_by_role("button", name="Cancel this job").click()
    expect(page.get_by_text("Cancelled: nothing more is emitted.", exact=True)).to_be_visible()
    assert status(world, job) == "cancelled"


def test_the_job_form_previews_occurrences_and_problems(world, visit):
    page = visit.go("/jobs/new")
    preview = page.locator("#preview")
    page.get_by_label("Name", exact=True).fill("Every last Friday")
    page.get_by_label("Type", exact=True).fill("plan.friday")
    page.get_by_label("Unit").last.select_option("month")
    page.get_by_label("Which", exact=True).select_option("-1")
    page.get_by_label("Day or weekday", exact=True).select_option("FR")
    page.get_by_label("Time zone").fill("Europe/Berlni")
    expect(preview.get_by_text("did you mean Europe/Berlin?")).to_be_visible()
    page.get_by_label("Time zone").fill("Europe/Berlin")
    expect(preview.get_by_text("The last Friday of every month at 09:00 in Europe/Berlin")).to_be_visible()
    expect(preview.locator("tbody tr")).to_have_count(10)
    page.get_by_label("Payload").fill('{"a": ')
    expect(preview.get_by_text("payload: is not JSON")).to_be_visible()
    page.get_by_role("button", name="Create job").click()
    expect(page.get_by_text("Your input is kept")).to_be_visible()
    expect(page.get_by_label("Payload")).to_have_value('{"a": ')
    expect(page.get_by_label("Name", exact=True)).to_have_value("Every last Friday")
    page.get_by_label("Payload").fill('{"a": 1}')
    page.get_by_role("button", name="Create job").click()
    expect(page.get_by_role("status")).to_contain_text("Created: Every last Friday")
    stored = world.sidecar.job(page.url.rsplit("/", 1)[1])
    assert stored["rrule"] == "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=9;BYMINUTE=0;BYSECOND=0"
    assert (stored["timezone"], stored["payload"]) == ("Europe/Berlin", {"a": 1})
    visit.bear("422")


def test_a_paused_manual_job_is_created_edited_triggered_and_resumed(world, visit):
    page = visit.go("/jobs/new")
    page.get_by_label("Name", exact=True).fill("On demand")
    page.get_by_label("Type", exact=True).fill("plan.manual")
    page.get_by_label("Description").fill("For the <b>night</b> shift")
    page.get_by_label("only when triggered").check()
    expect(page.locator("#preview").get_by_text("Only when triggered")).to_be_visible()
    page.get_by_label("Create paused").check()
    page.get_by_label("Track runs").check()
    page.get_by_label("While a run is open").select_option("wait")
    page.get_by_label("Max open runs").fill("2")
    page.get_by_role("button", name="Create job").click()
    expect(page.get_by_role("status")).to_contain_text("Created: On demand")
    job = page.url.rsplit("/", 1)[1]
    assert (status(world, job), world.sidecar.job(job)["run"]["max_running"]) == ("paused", 2)
    expect(page.locator("#part-job-head").get_by_text("For the <b>night</b> shift")).to_be_visible()
    expect(page.get_by_text("with 2 open runs, the next occurrence waits")).to_be_visible()

    page.get_by_role("link", name="Edit", exact=True).click()
    expect(page.get_by_label("only when triggered")).to_be_checked()
    expect(page.get_by_label("Max open runs")).to_have_value("2")
    expect(page.get_by_label("Create paused")).to_have_count(0)
    page.get_by_label("Description").fill("For the day shift")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#part-job-head").get_by_text("For the day shift")).to_be_visible()
    assert status(world, job) == "paused"

    page.locator("#part-job-head").get_by_role("button", name="Run now").click()
    expect(page.get_by_role("status")).to_contain_text("is paused: the extra run starts when the job is resumed")
    page.get_by_role("status").get_by_role("button", name="Resume").click()
    assert world.event(job)["next_run_at"] is None
    expect(page.get_by_text("No schedule: it runs only when it is triggered.").first).to_be_visible()
    assert status(world, job) == "pending"


def test_every_fifteen_minutes_and_a_raw_rule(visit):
    page = visit.go("/jobs/new")
    page.get_by_label("every so often").check()
    expect(page.locator("#preview").get_by_text("Every 15 minutes")).to_be_visible()
    page.get_by_label("by a rule").check()
    page.get_by_label("Written as").select_option("cron")
    page.get_by_label("Rule", exact=True).fill("0 9 * * 1-5 *")
    expect(page.locator("#preview").get_by_text("cron has 5 fields")).to_be_visible()
    page.get_by_label("Rule", exact=True).fill("0 9 * * 1-5")
    expect(page.locator("#preview").get_by_text("Weekdays at 09:00 in UTC")).to_be_visible()


def test_an_edit_keeps_hidden_fields_and_detects_conflicts(world, visit):
    job = world.job(
        job_type="edited",
        name="Before",
        every="PT1H",
        run_at=iso(utc(hours=1)),
        payload={"x": [1, 2]},
        priority="low",
        run={"max_attempts": 4, "start_timeout": 77, "backoff": [1, 2, 3]},
        max_lateness=600,
    )
    page = visit.go(f"/jobs/{job}/edit")
    page.get_by_label("Name", exact=True).fill("After")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved")
    stored = world.sidecar.job(job)
    assert (stored["name"], stored["priority"], stored["payload"]) == ("After", "low", {"x": [1, 2]})
    assert stored["run"]["start_timeout"] == 77
    assert stored["run"]["backoff"] == [1, 2, 3]
    page = visit.go(f"/jobs/{job}/edit")
    world.host.publish("pause", {"id": job})
    until(lambda: status(world, job) == "paused", "a pause by another user")
    page.get_by_label("Name", exact=True).fill("Mine")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The job was changed by someone else")).to_be_visible()
    expect(page.get_by_label("Name", exact=True)).to_have_value("Mine")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved")
    visit.bear("412")


def test_an_edit_emits_no_past_occurrence(world, visit):
    job = world.job(job_type="edited.often", name="Old name", every="PT3H", run_at=iso(utc(hours=-1)), run={})
    world.event(job)
    before = world.sidecar.job(job)["next_run_at"]
    page = visit.go(f"/jobs/{job}/edit")
    page.get_by_label("Name", exact=True).fill("New name")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved")
    stored = world.sidecar.job(job)
    assert (stored["name"], stored["next_run_at"]) == ("New name", before)
    assert before > utc()


def test_a_failing_run_is_found_and_retried(world, visit):
    """The way of someone woken at night: from the overview to a run that succeeds."""
    job, event = world.dead_run(name="CRM sync", job_type="sync.night", error="502 from crm.example.org")
    page = visit.go("/")
    expect(page.locator("#part-failing").get_by_role("link", name="sync.night")).to_be_visible()
    expect(page.locator("#part-tiles a[href='/runs?status=dead'] .value")).to_have_text(re.compile("[1-9]"))
    page.locator("#part-failing").get_by_role("link", name="502 from crm.example.org").click()
    expect(page.get_by_text("502 from crm.example.org").first).to_be_visible()
    expect(page.get_by_text("Dead after 1 attempt")).to_be_visible()
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("status")).to_contain_text("The run is retried now")
    again = world.event(job)
    assert (again["event_id"], again["run"]["attempt"]) == (event["event_id"], 2)
    world.result(again, "succeeded")
    expect(page.get_by_text("Succeeded with attempt 2")).to_be_visible()  # automatically: the page is live


class Hook(BaseHTTPRequestHandler):
    """/broken returns 500 with a reason, everything else 200."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        broken = self.path == "/broken"
        body = b"no table called customers" if broken else b"welcome"
        self.send_response(500 if broken else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def endpoint(world):
    """Something that a worker calls, and the worker."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    world.sidecar.start("worker", SCHEDULER_WEBHOOK_ALLOW="127.0.0.1").ready()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_user_finds_a_failing_job_fixes_its_target_and_reruns_it(world, visit, endpoint):
    world.job(job_type="crm.sync", name="Sync with the CRM", every="P1D", run_at=iso(utc()),
              run={"max_attempts": 1}, target={"webhook": {"url": f"{endpoint}/broken"}})
    page = visit.go("/")
    page.locator("#part-failing").get_by_role("link", name="crm.sync", exact=True).click()
    expect(page.get_by_role("heading", name="Sync with the CRM")).to_be_visible()
    page.get_by_role("link", name="show the run").click()
    expect(page.get_by_text("Status 500", exact=True)).to_be_visible()
    expect(page.get_by_text("no table called customers")).to_be_visible()
    page.get_by_role("link", name="Edit the job").click()
    page.get_by_label("URL").fill(f"{endpoint}/mended")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("status").get_by_role("button", name="Run now").click()
    expect(page.get_by_role("status")).to_contain_text("One extra run was triggered")
    succeeded = page.locator("#part-job-runs tbody tr", has_text="succeeded")  # automatically: the page is live
    succeeded.get_by_role("link").first.click()
    expect(page.get_by_text("Status 200", exact=True)).to_be_visible()
    expect(page.get_by_text("welcome")).to_be_visible()


def test_a_dead_run_of_an_edited_job_offers_to_run_the_current_job(world, visit, endpoint):
    job = world.job(job_type="crm.again", every="P1D", run_at=iso(utc()), run={"max_attempts": 1},
                    target={"webhook": {"url": f"{endpoint}/broken"}})
    dead = "SELECT event_id FROM run_history WHERE job_id = %s AND status = 'dead'"
    until(lambda: world.sidecar.sql(dead, job), "its run is dead")
    event_id = world.sidecar.sql(dead, job)[0]["event_id"]
    page = visit.go(f"/runs/{event_id}")
    expect(page.get_by_text("If the job itself is wrong, edit it")).to_be_visible()
    page.get_by_role("link", name="Edit the job").click()
    page.get_by_label("URL").fill(f"{endpoint}/mended")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved")
    page = visit.go(f"/runs/{event_id}")
    expect(page.get_by_text("The job was changed since")).to_be_visible()
    page.get_by_role("button", name="Run the job now").click()
    expect(page).to_have_url(f"{world.url}/jobs/{job}")
    expect(page.locator("#part-job-strip .k-succeeded")).to_have_count(1)


def test_the_job_form_tests_a_target(visit, endpoint):
    page = visit.go("/jobs/new")
    page.get_by_label("Type", exact=True).fill("tried.first")
    page.get_by_label("call a webhook").check()
    page.get_by_label("URL").fill(f"{endpoint}/broken")
    page.get_by_role("button", name="Try it now, once").click()
    page.get_by_role("link", name="show the result").click()
    expect(page.get_by_role("heading", name="Test of tried.first")).to_be_visible()
    expect(page.get_by_text("no retries")).to_be_visible()


def test_output_appears_during_a_run(world, visit):
    job = world.job(job_type="report.slow", run_at=iso(utc()), run={})
    event = world.event(job)
    page = visit.go(f"/runs/{event['event_id']}")
    world.result(event, "running", output={"stdout": "one line\n"}, progress=0.25, heartbeat=600)
    expect(page.get_by_text("one line")).to_be_visible()
    expect(page.get_by_text("25 % done")).to_be_visible()
    world.result(event, "running", output={"stdout": "one line\nanother line\n"}, progress=0.5, heartbeat=600)
    expect(page.get_by_text("another line")).to_be_visible()
    world.result(event, "succeeded", output={"exit_code": 0, "stdout": "all lines\n", "stderr": "a warning"})
    expect(page.get_by_text("exit code 0")).to_be_visible()
    expect(page.get_by_text("a warning")).to_be_visible()


def test_the_overview_is_live_and_its_charts_are_drawn(world, visit):
    page = visit.go("/")
    expect(page.get_by_text("live", exact=False).first).to_be_visible()
    expect(page.locator(".timeliness h1")).to_have_text(VERDICT)
    job = world.job(job_type="due.soon", name="Appears by itself", run_at=iso(utc(hours=1)))
    expect(page.locator("#part-upcoming").get_by_role("link", name="Appears by itself")).to_be_visible()
    world.host.publish("cancel", {"id": job})
    expect(page.locator("#part-upcoming").get_by_role("link", name="Appears by itself")).to_have_count(0)
    expect(page.locator(".u-wrap canvas")).to_have_count(4)  # once there are two samples


def test_bulk_actions_show_the_count_before_confirmation(world, visit):
    jobs = [world.job(job_type="bulk.many", every="P1D", run_at=iso(utc(days=1))) for _ in range(3)]
    page = visit.go("/jobs?job_type=bulk.many")
    page.get_by_role("link", name="Pause …").click()
    expect(page.get_by_text("Pause 3 jobs of type bulk.many?")).to_be_visible()
    page.get_by_role("button", name="Pause 3 jobs").click()
    expect(page.get_by_role("status")).to_contain_text("3 jobs paused")
    assert {status(world, job) for job in jobs} == {"paused"}
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_contain_text("3 jobs resumed")
    assert {status(world, job) for job in jobs} == {"pending"}
    page.get_by_role("link", name="Pause …").click()
    page.get_by_role("button", name="Pause 3 jobs").click()
    page.get_by_role("link", name="Resume …").click()
    page.get_by_role("button", name="Resume 3 jobs").click()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_contain_text("3 jobs paused")
    assert {status(world, job) for job in jobs} == {"paused"}
    page.get_by_role("link", name="Resume …").click()
    page.get_by_role("button", name="Resume 3 jobs").click()
    expect(page.get_by_role("status")).to_contain_text("3 jobs resumed")
    page.get_by_role("link", name="Resume …").click()
    expect(page.get_by_text("Nothing to resume")).to_be_visible()
    page.get_by_role("link", name="No", exact=True).click()
    page.get_by_role("link", name="Cancel …").click()
    page.get_by_role("button", name="Cancel 3 jobs permanently").click()
    expect(page.get_by_role("status")).to_contain_text("3 jobs cancelled")
    assert {status(world, job) for job in jobs} == {"cancelled"}


def test_all_dead_runs_of_a_type_are_retried(world, visit):
    events = [world.dead_run(job_type="bulk.dead")[1] for _ in range(2)]
    page = visit.go("/runs?status=dead&job_type=bulk.dead")
    page.get_by_role("link", name="Retry …").click()
    expect(page.get_by_text("Retry 2 runs")).to_have_count(2)  # the question and the button
    page.get_by_role("button", name="Retry 2 runs").click()
    expect(page.get_by_role("status")).to_contain_text("2 runs retried")
    wanted, seen = {event["event_id"] for event in events}, set()

    def both_came():
        seen.update(json.loads(body)["event_id"] for body in world.host.drain("mainapp_due"))
        return wanted <= seen  # there may be some of other tests

    until(both_came, "both again")


def test_dead_letters_are_replayed_and_dropped(world, visit):
    def letters():
        return world.http("/dead", token=world.token())[1]

    mended = str(uuid4())
    world.host.publish("request", {"id": mended, "job_type": "mended", "every": "P1D", "tenant": "not a tenant"})
    world.host.publish("pause", {"id": "nonsense"})
    # Exactly those two: there are also dead runs from other tests.
    until(lambda: mended in (found := letters()) and "nonsense" in found, "both letters")
    page = visit.go("/")
    expect(page.locator("#part-tiles a[href='/dead'] .value")).to_have_text(re.compile("[1-9]"))
    page.locator("#part-tiles a[href='/dead']").click()
    letter = page.locator("tr", has_text="nonsense")
    letter.get_by_text("Delete …").click()
    letter.get_by_role("button", name="Delete this message").click()
    expect(page.get_by_role("status")).to_contain_text("Deleted: pause")
    expect(page.locator("tr", has_text="nonsense")).to_have_count(0)
    letter = page.locator("tr", has_text=mended)
    expect(letter).to_contain_text("tenant:")
    letter.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("status")).to_contain_text("Replayed: request")


def test_the_audit_page_shows_authors_and_changes(world, visit):
    job = world.job(job_type="audited", name="Audited", every="P1D", run_at=iso(utc(days=1)))
    page = visit.go(f"/jobs/{job}")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#changes")).to_contain_text("admin@example.org")
    page = visit.go("/audit")
    row = page.locator("tr", has=page.locator(f"a[href='/jobs/{job}']")).first
    expect(row).to_contain_text("pause")
    row.get_by_role("link", name="Audited").click()
    expect(page.get_by_role("heading", name="Audited")).to_be_visible()


def test_jobs_can_be_sorted_by_next_due(world, visit):
    late = world.job(job_type="sorted", name="Later", run_at=iso(utc(hours=5)))
    soon = world.job(job_type="sorted", name="Sooner", run_at=iso(utc(hours=4)))
    page = visit.go("/jobs?job_type=sorted")
    assert [row.get_attribute("id") for row in page.locator("#jobs tbody tr").all()] == [
        f"job-{soon}",
        f"job-{late}",
    ]
    another = world.job(job_type="sorted", name="Between", run_at=iso(utc(hours=4.5)))
    page.get_by_label("Sort").select_option("next")
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile("sort=next"))
    expect(page.locator("#jobs tbody tr")).to_have_count(3)  # the address is there before the page is
    ids = [row.get_attribute("id") for row in page.locator("#jobs tbody tr").all()]
    assert ids == [f"job-{soon}", f"job-{another}", f"job-{late}"]


def test_jobs_sorted_by_next_due_are_paged(world, visit):
    at = iso(utc(days=30))  # all at once
    jobs = sorted(f"job-{world.host.request(job_type='many.next', run_at=at)}" for _ in range(101))
    for job in jobs:
        world.sidecar.stored(job.removeprefix("job-"))
    page = visit.go("/jobs?job_type=many.next&sort=next")
    rows = [row.get_attribute("id") for row in page.locator("#jobs tbody tr").all()]
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_role("link", name="First page")).to_be_visible()
    expect(page).to_have_url(re.compile("sort=next"))
    rows += [row.get_attribute("id") for row in page.locator("#jobs tbody tr").all()]
    assert rows == jobs
    expect(page.get_by_role("link", name="Next page")).to_have_count(0)


def test_a_worker_shows_its_runs(world, visit):
    now = iso(utc())
    events = {}
    for worker in ("fleet-1:77", "fleet-2:78"):
        events[worker] = world.event(world.job(job_type="of.workers", run_at=now, run={}))
        world.result(events[worker], "succeeded", worker=worker)
        world.run_status(events[worker], "succeeded")
    report = {"id": str(uuid4()), "host": "fleet-1", "pid": 77, "version": "1", "started_at": now, "offers": [],
            "in_flight": 0, "beat": 1}
    facts = {"platform": "Linux x86_64, Python 3.11.7", "pools": ["default", "eu"], "capacity": 20}
    world.host.publish("worker", report | {"in_flight": 3}, headers={FACTS_HEADER: json.dumps(facts)})
    until(lambda: world.sidecar.sql("SELECT 1 FROM workers WHERE id = %s", report["id"]), "the worker is known")
    page = visit.go("/processes")
    worker = page.get_by_role("row", name=re.compile("fleet-1"))
    for text in ("Linux x86_64, Python 3.11.7", "eu", "3 of 20", "15 %"):
        expect(worker.get_by_text(text, exact=False)).to_be_visible()
    page.get_by_role("link", name="fleet-1").click()
    expect(page.get_by_text("of the worker fleet-1:77")).to_be_visible()
    rows = page.locator("#list tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first).to_have_attribute("id", f"run-{events['fleet-1:77']['event_id']}")
    page.get_by_label("Type").fill("of.workers")  # a further filter goes with it
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile("worker=fleet-1"))
    page.goto(f"{world.url}/runs/{events['fleet-2:78']['event_id']}")
    page.get_by_role("link", name="fleet-2:78").click()
    expect(page.locator("#list tbody tr")).to_have_count(1)


def test_full_times_are_shown_on_focus(world, visit):
    job = world.job(job_type="told.in.full", run_at="2030-01-02T03:04:05Z", timezone="Europe/Berlin")
    page = visit.go("/jobs?job_type=told.in.full")
    page.locator(f"#job-{job} time").first.focus()
    tip = page.locator("#tip")
    expect(tip).to_contain_text("Wed 2 Jan 2030 04:04:05 CET")
    expect(tip).to_contain_text("2030-01-02 03:04:05.000 UTC")
    expect(tip).to_contain_text("your time")
    page.get_by_label("Type", exact=True).focus()
    expect(tip).to_be_hidden()


def test_the_theme_is_chosen_and_kept(visit):
    page = visit.go("/jobs")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.get_by_role("button", name="Theme: system").click()
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate(ground) == "rgb(15, 18, 22)"
    page = visit.go("/runs")
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert page.evaluate(ground) == "rgb(15, 18, 22)"


def test_forbidden_actions_are_hidden_and_rejected(world, browser):
    job = world.job(job_type="guarded", name="Guarded", every="P1D", run_at=iso(utc(days=1)))
    viewer = world.token("viewer")
    with a_visit(browser, world, viewer) as visit:
        page = visit.go(f"/jobs/{job}")
        expect(page.get_by_text("Every day").first).to_be_visible()
        for name in ("Run now", "Pause", "Cancel …", "Edit"):
            assert page.get_by_text(name, exact=True).count() == 0, name
        assert page.get_by_role("link", name="Audit").count() == 0
        assert page.get_by_role("link", name="Dead letters").count() == 0
        assert visit.go("/").locator("a[href='/dead']").count() == 0
        page = visit.go("/jobs")
        assert page.get_by_role("button", name="Pause").count() == 0
        assert page.get_by_role("link", name="New job").count() == 0
    for path in (f"/jobs/{job}/pause", f"/jobs/{job}/cancel", f"/jobs/{job}/edit", "/jobs/new"):
        assert world.http(path, {"job_type": "x"}, token=viewer)[0] == 403, path
    assert world.http("/jobs/new", token=viewer)[0] == 403
    assert status(world, job) == "pending"


def test_a_form_of_another_site_or_session_is_refused(world):
    job = world.job(job_type="forged", every="P1D", run_at=iso(utc(days=1)))
    token, path = world.token("operator"), f"/jobs/{job}/pause"
    assert world.http(path, {}, token=token, csrf="")[0] == 403
    assert world.http(path, {}, token=token, csrf="0" * 64)[0] == 403
    other = world.token("admin", seconds=60)
    assert world.http(path, {}, token=token, csrf=form_token(other))[0] == 403
    assert world.http(path, {}, token=token, headers={"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert status(world, job) == "pending"
    assert world.http(path, {}, token=token)[0] == 303
    assert status(world, job) == "paused"


def test_a_tenant_sees_and_changes_only_its_own_data(world):
    mine = world.job(job_type="theirs.mine", name="Of acme", every="P1D", tenant="acme")
    other, event = world.dead_run(name="Of globex", tenant="globex", job_type="theirs.other")
    token = world.token("operator", "acme")
    listed = world.http("/jobs?q=theirs", token=token)[1]
    assert "Of acme" in listed
    assert "Of globex" not in listed
    assert "Of globex" not in world.http("/", token=token)[1]
    assert "theirs.other" not in world.http("/", token=token)[1]
    assert world.http(f"/jobs/{mine}", token=token)[0] == 200
    for path in (f"/jobs/{other}", f"/runs/{event['event_id']}", f"/live?topic=run:{event['event_id']}",
                 f"/jobs/{other}/edit"):
        assert world.http(path, token=token)[0] == 404, path
    for path in (f"/jobs/{other}/pause", f"/runs/{event['event_id']}/retry"):
        assert world.http(path, {}, token=token)[0] == 404, path
    assert world.http("/processes", token=token)[0] == 403


def test_a_login_link_works_once(world, browser):
    token = world.token("operator")
    code, text, _ = world.http("/login/link", {}, headers={"Authorization": f"Bearer {token}"})
    assert code == 201
    path = json.loads(text)["path"]
    with a_visit(browser, world) as visit:
        page = visit.go(path)
        expect(page).to_have_url(f"{world.url}/")
        expect(page.locator(".timeliness h1")).to_be_visible()
    assert world.http(path)[0] == 404
    assert world.http("/login/link", {})[0] == 303  # no token, no link


def test_sessions_end_with_their_token_and_bad_cookies_are_deleted(world):
    code, _, headers = world.http("/jobs", token="ey.not.one")
    assert (code, headers["Location"]) == (303, "/login?next=%2Fjobs")
    assert any(
        'scheduler_session=""' in each or "scheduler_session=;" in each for each in headers.get_all("Set-Cookie")
    )
    assert world.http("/jobs", token=world.token(seconds=-3600))[0] == 303


def test_a_link_from_another_site_is_followed_with_the_session(world):
    code, text, _ = world.http("/jobs?status=dead", headers={"Sec-Fetch-Site": "cross-site"})
    assert code == 200
    assert 'http-equiv="refresh" content="0; url=/jobs?status=dead"' in text.replace("&amp;", "&")
    assert world.http("/jobs?status=dead", headers={"Sec-Fetch-Site": "same-origin"})[0] == 303


def test_a_login_redirects_only_within_this_site(world):
    token = world.token()
    for target in ("//evil.example", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"):
        code, _, headers = world.http("/login", {"token": token, "next": target})
        assert (code, headers["Location"]) == (303, "/"), target


def test_static_files_are_cached_and_compressed(world):
    text = world.http("/login")[1]
    for address in re.findall(r"/static/[\w.-]+", text):
        code, _, headers = world.http(address)
        assert (code, "immutable" in headers["Cache-Control"]) == (200, True)
        assert world.http(address, headers={"If-None-Match": headers["ETag"]})[0] == 304
    assert world.http("/static/../session.py")[0] == 404
    assert world.http("/static/nothing.js")[0] == 404


def test_a_missing_page_is_404_as_html_and_json(world):
    code, text, headers = world.http("/nonsense", headers={"Accept": "text/html"})
    assert (code, "There is no such page" in text, headers.get_content_type()) == (404, True, "text/html")
    for path in ("/nonsense", "/api/v1/nonsense"):
        assert world.http(path, headers={"Accept": "*/*"})[2].get_content_type() == "application/problem+json"
    assert world.http("/api/v1/nonsense", headers={"Accept": "text/html"})[2].get_content_type() != "text/html"


def test_pages_have_a_strict_content_security_policy(world):
    for path, code in (("/login", 200), ("/nonsense", 404), ("/jobs/not-a-uuid", 303)):
        found, _, headers = world.http(path)
        assert found == code, path
        assert "default-src" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
