"""Every console page in a real browser: in both themes, on a phone, and without scripts."""

import re

import pytest
from console_support import AXE, DESK, PHONE, a_visit, faults
from node_support import package_soon
from support import until


@pytest.fixture(scope="module", autouse=True)
def axe_is_fetched_meanwhile():
    package_soon(*AXE)


@pytest.fixture(scope="module")
def paths(world):
    """A page of each kind, with something on it."""
    weekly = world.job(
        job_type="report.weekly", name="Weekly report", timezone="Europe/Berlin", payload={"to": "ops"},
        rrule="FREQ=WEEKLY;BYDAY=FR;BYHOUR=9;BYMINUTE=0;BYSECOND=0", run={"max_attempts": 5},
    )
    _, event = world.dead_run()
    world.job(
        job_type="mail.digest", cron="0 8 * * 1-5", timezone="America/New_York", priority="high", tenant="acme"
    )
    world.calendar("pages.de", {"weekend": ["SA", "SU"], "closed": {"2027-12-24": "Christmas Eve"}})
    return {
        "calendars": "/calendars", "calendar": "/calendars/pages.de?year=2027", "new calendar": "/calendar/new",
        "calendar form": "/calendars/pages.de/edit", "import": "/calendar/import?name=pages.de",
        "versions": f"/jobs/{weekly}/versions",
        "load": "/load?zone=Europe/Berlin", "compare": f"/runs/{event['event_id']}/compare",
        "backfill": f"/jobs/{weekly}/backfill?from=2020-01-01T00:00&until=2020-02-01T00:00",
        "bulk": world.bulk_pause("mail.digest"),
        "tenants": "/tenants", "late": "/jobs?late=1", "find": "/find?q=rep",
        "day": f"/jobs/{weekly}/day?date=2030-01-04",
        "overview": "/", "jobs": "/jobs", "filtered": "/jobs?status=pending&q=rep", "job": f"/jobs/{weekly}",
        "new": "/jobs/new", "edit": f"/jobs/{weekly}/edit", "runs": "/runs", "run": f"/runs/{event['event_id']}",
        "dead": "/dead", "processes": "/processes", "audit": "/audit", "login": "/login",
    }


SHOWN = {
    "versions": r"Versions",
    "load": r"Load ahead", "compare": r"No other run", "backfill": r"No past occurrence", "bulk": r"1 job paused",
    "tenants": r"acme", "late": r"Late jobs", "find": r"Weekly report", "day": r"Friday 4 January 2030",
    "calendars": r"pages\.de", "calendar": r"Christmas Eve", "new calendar": r"Closed every week",
    "calendar form": r"Edit pages\.de", "import": r"Import a calendar",
    "overview": r"On time|Late", "jobs": r"Weekly report", "filtered": r"report\.weekly",
    "job": r"Fridays at 09:00 in Europe/Berlin", "new": r"Weekdays at 09:00 in UTC", "edit": r"Edit Weekly report",
    "runs": r"sync\.crm", "run": r"Dead after 1 attempt", "dead": r"Dead letters", "processes": r"producer",
    "audit": r"Audit", "login": r"Log in",
}


@pytest.mark.parametrize(("theme", "width"), [("light", DESK), ("dark", DESK), ("light", PHONE), ("dark", PHONE)])
def test_every_page_renders_in_both_themes_and_on_a_phone(world, browser, paths, theme, width):
    with a_visit(browser, world, world.token(), color_scheme=theme, width=width) as visit:
        for name, path in paths.items():
            page = visit.go(path)
            page.get_by_text(re.compile(SHOWN[name])).first.wait_for(state="attached")
            assert faults(page) == [], (name, theme, width)
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{name} is {wide} px wider than the screen of {width}"


def test_pages_can_be_read_without_scripts(world, browser, paths):
    with a_visit(browser, world, world.token(), java_script_enabled=False) as visit:
        for name, path in paths.items():
            # Retried if processes are slow to report, or the database to respond.
            until(lambda path=path, name=name: re.search(SHOWN[name], visit.go(path).content()), name)
