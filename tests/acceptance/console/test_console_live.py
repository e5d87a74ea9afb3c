"""Live updates in the console, and parts that must not move: in a real browser."""

import re

from api_support import BUSY
from console_support import a_visit
from playwright.sync_api import expect
from support import DEADLINE, iso, unreachable, utc

expect.set_options(timeout=DEADLINE * 1000)


def place(page, row):
    """The position of a row on the screen."""
    return page.locator(row).bounding_box()["y"]


def test_new_jobs_are_counted_and_loaded_on_request(world, visit):
    first = world.job(job_type="news.mine", name="There before", every="P1D", run_at=iso(utc(days=1)))
    page = visit.go("/jobs?job_type=news.mine")
    row = f"#job-{first}"
    page.locator(row).hover()
    before = place(page, row)
    world.job(job_type="news.other", every="P1D", run_at=iso(utc(days=1)))
    second = world.job(job_type="news.mine", name="Just made", every="P1D", run_at=iso(utc(days=1)))
    news = page.locator("#news")
    expect(news).to_have_text("1 new")
    assert page.locator("#jobs tbody tr").count() == 1
    assert place(page, row) == before  # nothing moved under the pointer
    third = world.job(job_type="news.mine", every="P1D", run_at=iso(utc(days=1)))
    expect(news).to_have_text("2 new")
    news.click()
    expect(page.locator("#jobs tbody tr")).to_have_count(3)
    expect(page.locator(f"#job-{second}")).to_be_visible()
    expect(news).to_be_hidden()
    expect(page).to_have_url(re.compile("job_type=news.mine"))
    page.locator("h1").hover()
    world.host.publish("pause", {"id": third})  # a row that was brought is live as well
    expect(page.locator(f"#job-{third}").get_by_text("paused")).to_be_visible()


def test_new_runs_are_counted_by_the_filter_of_the_page(world, visit):
    _, shown = world.dead_run(job_type="news.dead")
    page = visit.go("/runs?status=dead&job_type=news.dead")
    expect(page.locator("#runs-table tbody tr")).to_have_count(1)
    world.dead_run(job_type="news.elsewhere")
    _, event = world.dead_run(job_type="news.dead", error="another one")
    expect(page.locator("#news")).to_have_text("1 new")
    page.locator("#news").click()
    expect(page.locator(f"#run-{event['event_id']}")).to_contain_text("another one")
    expect(page.locator(f"#run-{shown['event_id']}")).to_be_visible()


def test_list_rows_are_updated_in_place(world, visit):
    job = world.job(job_type="news.row", run_at=iso(utc()), run={})
    event = world.event(job)
    page = visit.go("/runs?job_type=news.row")
    row = page.locator(f"#run-{event['event_id']}")
    expect(row.get_by_text("delivered")).to_be_visible()
    world.result(event, "succeeded")
    expect(row.get_by_text("succeeded")).to_be_visible()
    page = visit.go("/jobs?job_type=news.row")
    expect(page.locator(f"#job-{job}").get_by_text("done")).to_be_visible()


def test_a_job_page_is_live(world, visit):
    job = world.job(
        job_type="live.job", name="Watched", every="P1D", run_at=iso(utc(days=1)), run={"max_attempts": 1}
    )
    page = visit.go(f"/jobs/{job}")
    expect(page.get_by_text("None yet.")).to_be_visible()
    world.host.publish("trigger", {"id": job})
    event = world.event(job)
    expect(page.locator("#part-job-strip a")).to_have_count(1)
    expect(page.locator("#part-job-runs").get_by_text("delivered")).to_be_visible()
    world.result(event, "failed", error="the printer is on fire")
    expect(page.locator("#part-job-next")).to_contain_text("The last run is dead: the printer is on fire")
    expect(page.locator("#part-job-strip .k-dead")).to_have_count(1)
    world.host.publish("pause", {"id": job})
    expect(page.locator("#part-job-head").get_by_role("button", name="Resume")).to_be_visible()
    expect(page.locator("#part-job-next")).to_contain_text("Paused: nothing is emitted until the job is resumed.")
    expect(page.locator("#part-job-ahead tbody tr")).to_have_count(0)
    world.host.publish("resume", {"id": job})
    expect(page.locator("#part-job-ahead tbody tr")).to_have_count(10)


def test_a_live_page_recovers_after_a_database_outage(world, visit):
    job = world.job(job_type="live.job", every="P1D", run_at=iso(utc(days=1)))
    page = visit.go(f"/jobs/{job}")
    with unreachable(world.sidecar.database_url), page.expect_response(
        lambda answer: "/live" in answer.url and answer.status == BUSY
    ):
        # A row that an action has drawn: the page begins a new stream.
        page.evaluate("""() => {
            const row = document.querySelector('table').insertRow();
            row.id = 'drawn';
            row.dispatchEvent(new Event('htmx:afterSettle', {bubbles: true}));
        }""")
    world.host.publish("pause", {"id": job})
    expect(page.locator("#part-job-head").get_by_role("button", name="Resume")).to_be_visible()


def test_rows_do_not_move_under_the_pointer(world, visit):
    job = world.job(job_type="live.held", every="P1D", run_at=iso(utc(days=1)), run={})
    world.host.publish("trigger", {"id": job})
    first = world.event(job)
    page = visit.go(f"/jobs/{job}")
    row = f"#run-{first['event_id']}"
    page.locator(row).hover()
    before = place(page, row)
    world.host.publish("trigger", {"id": job})
    second = world.event(job)
    bring = page.locator("#runs").get_by_role("button", name="1 new")
    expect(bring).to_be_visible()
    assert page.locator("#runs-table tbody tr").count() == 1
    assert place(page, row) == before
    bring.click()
    expect(page.locator(f"#run-{second['event_id']}")).to_be_visible()
    expect(bring).to_have_count(0)


def test_a_tenant_gets_only_its_own_updates(world, browser):
    other = world.job(job_type="quiet.theirs", name="Of globex", every="P1D", tenant="globex")
    _, event = world.dead_run(job_type="quiet.run", tenant="globex")
    token = world.token("operator", "acme")
    assert world.http(f"/live?topic=job:{other}", token=token)[0] == 404
    assert world.http("/live?topic=nonsense", token=token)[0] == 404
    assert world.http("/live?topic=jobs&rows=nonsense", token=token)[0] == 404
    with a_visit(browser, world, token) as visit:
        page = visit.go("/jobs")
        heard = page.evaluate(
            """([rows, wanted]) => new Promise((done) => {
                const heard = [];
                const listen = (address) => {
                    const source = new EventSource(address);
                    source.onmessage = (event) => {
                        heard.push(event.data);
                        if (heard.length >= wanted) done(heard);
                    };
                };
                listen(`/live?topic=jobs&newest=1&rows=${rows[0]}`);
                listen(`/live?topic=runs&newest=1&rows=${rows[1]}`);
            })""", [[other, event["event_id"]], 6])
    assert all("globex" not in each and "quiet" not in each for each in heard), heard
