"""Manage jobs and people in the console: run, delete and restore jobs, and act for one tenant."""

import re

from console_support import a_visit
from playwright.sync_api import expect
from support import DEADLINE, iso, until, utc

expect.set_options(timeout=DEADLINE * 1000)


def test_a_job_is_run_now_in_its_row(world, visit):
    job = world.job(job_type="run.in.row", name="Row run", manual=True)
    page = visit.go("/jobs?q=Row run")
    page.locator(f"#job-{job}").get_by_role("button", name="Run now: Row run").click()
    expect(page.get_by_role("status").first).to_contain_text("One extra run was triggered: Row run")
    expect(page).to_have_url(re.compile(r"/jobs\?q=Row"))  # the list stays
    assert world.event(job)["occurrence"] == 1
    world.host.publish("pause", {"id": job})
    until(lambda: world.sidecar.job(job)["status"] == "paused", "the pause")
    page.reload()
    page.locator(f"#job-{job}").get_by_role("button", name="Run now: Row run").click()
    expect(page.get_by_role("status").first).to_contain_text("Row run is paused: the extra run starts when")
    page.get_by_role("button", name="Resume", exact=True).first.click()
    assert world.event(job)["occurrence"] == 2


def test_deleting_a_job_says_what_it_erases_and_erases_it(world, browser, visit):
    job = world.job(job_type="deleted", name="To be deleted", run_at=iso(utc(days=1)), payload={"secret": 1})
    with a_visit(browser, world, world.token("operator")) as operator:
        page = operator.go(f"/jobs/{job}")
        expect(page.get_by_text("Cancel …")).to_be_visible()
        expect(page.get_by_text("Delete …")).to_have_count(0)
    page = visit.go(f"/jobs/{job}")
    page.get_by_text("Delete …").click()
    expect(page.get_by_text("its definition, payload, versions, runs and outputs are erased")).to_be_visible()
    page.get_by_role("button", name="Purge this job").click()
    expect(page.get_by_role("status").first).to_contain_text("Purged: To be deleted")
    assert world.http(f"/jobs/{job}", token=world.token())[0] == 404
    assert "secret" not in str(world.sidecar.sql("SELECT * FROM jobs WHERE id = %s", job))


def test_versions_show_what_changed_and_are_restored(world, visit):
    job = world.job(job_type="versioned", name="First name", every="PT1H", payload={"page": 1})
    world.rest("PUT", f"/jobs/{job}", {"job_type": "versioned", "name": "Second name", "every": "PT1H"})
    page = visit.go(f"/jobs/{job}")
    page.get_by_role("link", name="Versions").click()
    newest = page.get_by_role("region", name="Version 2")
    expect(newest).to_contain_text("by admin@example.org (api)")
    expect(newest).to_contain_text("name: First name → Second name")
    page.get_by_role("button", name="Restore version 1").click()
    expect(page.get_by_role("status").first).to_contain_text("Restored version 1")
    expect(page.get_by_role("heading", name="First name")).to_be_visible()
    assert world.sidecar.job(job)["payload"] == {"page": 1}


def test_a_user_of_all_tenants_acts_for_one_and_for_all_again(world, visit):
    own = world.job(job_type="of.one", name="Job of acme", every="P1D", tenant="acme")
    other = world.job(job_type="of.one", name="Job of globex", every="P1D", tenant="globex")
    page = visit.go("/")
    page.get_by_role("link", name="all tenants").click()
    page.get_by_role("button", name="Act for acme").click()
    expect(page.get_by_text("admin@example.org · admin · for acme")).to_be_visible()
    page.get_by_role("link", name="Jobs", exact=True).click()
    expect(page.get_by_role("link", name="Job of acme")).to_be_visible()
    expect(page.get_by_role("link", name="Job of globex")).to_have_count(0)
    page.goto(f"{world.url}/jobs/new")
    page.get_by_label("Type", exact=True).fill("made.for.acme")
    page.get_by_label("only when triggered").check()
    page.get_by_role("button", name="Create job").click()
    expect(page.get_by_role("status").first).to_contain_text("Created")
    assert world.sidecar.job(page.url.rsplit("/", 1)[1])["tenant"] == "acme"
    page.goto(f"{world.url}/jobs/{other}")
    expect(page.get_by_text(f"No job has the id {other}.")).to_be_visible()
    page.goto(f"{world.url}/dead")
    expect(page.get_by_text("you act for acme: choose All tenants")).to_be_visible()
    page.get_by_role("button", name="All tenants").click()
    expect(page.get_by_text("You act for all tenants")).to_be_visible()
    page.goto(f"{world.url}/jobs?q=Job of")
    expect(page.get_by_role("link", name="Job of globex")).to_be_visible()
    assert own
    visit.bear("404")
    visit.bear("403")


def test_a_token_of_one_tenant_cannot_choose_another(world):
    token = world.token("admin", "acme")
    status, _, _ = world.http("/tenants/act", {"tenant": "globex"}, token=token)
    assert status == 403
    job = world.job(job_type="of.globex", every="P1D", tenant="globex")
    assert world.http(f"/jobs/{job}", token=token, headers={"Cookie": f"scheduler_session={token}; "
                                                            "scheduler_tenant=globex"})[0] == 404
