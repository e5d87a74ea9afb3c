"""Calendars over AMQP, REST and the command line."""

import json
import os
import subprocess
import sys
from uuid import uuid4

from support import DEADLINE

DE = {"weekend": ["SA", "SU"], "closed": {"2026-12-25": "Christmas Day"}, "open": {"2026-12-19": "bridge day"},
      "valid_until": "2030-12-31"}


def scheduler(shared, *arguments, stdin=None):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SCHEDULER_", "METRICS_", "LOG_"))}
    return subprocess.run(
        [sys.executable, "-m", "scheduler", "calendar", *arguments], env=clean | shared.env, input=stdin,
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )


def listed(api):
    """The names of the tenant's own calendars: other tests store some for all tenants on the same server."""
    return [item["name"] for item in api.get("/calendars").json["items"] if item["tenant"] != "*"]


def test_a_calendar_is_stored_over_amqp(shared_host, served):
    def send(**fields):
        shared_host.publish("calendar", {"name": name} | fields, reply_to=replies, correlation_id="c-1")
        _, properties, body = shared_host.get(replies)
        assert properties.correlation_id == "c-1"
        return properties.type, json.loads(body)

    name, replies = f"de-{uuid4().hex[:8]}", shared_host.channel.queue_declare("", exclusive=True).method.queue
    accepted = {"name": name, "tenant": "default", "status": "stored", "version": 1}
    assert send(**DE, issued_at="2026-11-01T00:00:00Z") == ("ScheduleAccepted", accepted)
    assert send(**DE, issued_at="2026-11-02T00:00:00Z")[1] == accepted | {"status": "unchanged"}
    assert send(issued_at="2026-11-01T12:00:00Z")[1] == accepted | {"status": "superseded"}
    assert send(weekend=["FR"])[1] == accepted | {"version": 2}
    kind, rejected = send(closed={"2026-02-30": "x"})
    assert (kind, rejected["name"], rejected["errors"][0]["field"]) == ("ScheduleRejected", name, "closed")
    assert "id" not in rejected
    view = served.get(f"/calendars/{name}").json
    assert (view["weekend"], view["closed"], view["version"], view["jobs"]) == (["FR"], {}, 2, 0)
    entries = served.get("/audit", kind="calendar", id=name).json["items"]
    assert [(entry["action"], entry["via"]) for entry in entries] == [("calendar", "amqp")] * 2
    assert entries[1]["after"]["closed"] == DE["closed"]


def test_a_calendar_is_put_read_and_deleted_over_rest(api):
    stored = api.ask("PUT", "/calendars/de", DE)
    assert stored.status == 201, stored.body
    view = stored.json
    assert {name: view[name] for name in DE} == DE
    assert (view["name"], view["version"], view["jobs"]) == ("de", 1, 0)
    assert view["updated_by"]
    assert api.get("/calendars/de").json == view
    assert listed(api) == ["de"]
    days = api.get("/calendars/de/days", **{"from": "2026-12-19", "to": "2026-12-26"}).json
    assert days["next"] is None
    assert days["items"][0] == {"date": "2026-12-19", "open": True, "name": "bridge day"}
    assert [(item["open"], item["name"]) for item in days["items"][1:]] == [
        (False, None), *[(True, None)] * 4, (False, "Christmas Day"), (False, None)]
    changed = api.ask("PUT", "/calendars/de", {"weekend": ["SU"]})
    assert (changed.status, changed.json["version"], changed.json["closed"]) == (200, 2, {})
    assert api.ask("DELETE", "/calendars/de").status == 200
    for path in ("/calendars/de", "/calendars/de/days?from=2026-01-01&to=2026-01-01"):
        assert api.get(path).status == 404
    assert listed(api) == []


def test_invalid_requests_are_described(api):
    for fields, field in (({"closed": {"2026-02-30": "x"}}, "closed"), ({"holiday": {}}, "holiday"),
                          ({"weekend": ["XX"]}, "weekend"), ({"name": "other"}, "name"),
                          ({"closed": {f"{year:04}-01-01": "" for year in range(1, 9999)},
                            "open": {f"{year:04}-01-02": "" for year in range(1, 9)}}, "closed")):
        answer = api.ask("PUT", "/calendars/de", fields)
        assert (answer.status, *answer.errors) == (422, field), answer.body
    assert api.ask("PUT", "/calendars/d%20e", {}).status == 422
    api.ask("PUT", "/calendars/de", {})
    for query in ({"from": "2026-01-01", "to": "2027-01-02"}, {"from": "2026-01-02", "to": "2026-01-01"}, {},
                  {"from": "yesterday", "to": "2026-01-01"}):
        assert api.get("/calendars/de/days", **query).status == 422
    assert api.get("/calendars/%00").status == 404


def test_calendars_belong_to_a_tenant_or_to_all(served):
    name = f"shared-{uuid4().hex[:8]}"
    one, two = (served.as_("operator", f"{tenant}-{name}") for tenant in ("one", "two"))
    everyone = served.as_("operator")
    assert one.ask("PUT", f"/calendars/{name}", {}, tenant="*").status == 403
    assert everyone.ask("PUT", f"/calendars/{name}", {"weekend": ["SU"]}, tenant="*").json["tenant"] == "*"
    assert one.get(f"/calendars/{name}").json["weekend"] == ["SU"]
    assert one.ask("DELETE", f"/calendars/{name}").status == 404
    assert one.ask("PUT", f"/calendars/{name}", {"weekend": ["SA"]}).json["tenant"] == f"one-{name}"
    assert one.get(f"/calendars/{name}").json["weekend"] == ["SA"]
    assert one.get(f"/calendars/{name}", tenant="*").json["weekend"] == ["SU"]
    listed = one.get("/calendars").json["items"]
    assert [each["tenant"] for each in listed if each["name"] == name] == [f"one-{name}"]
    assert two.get(f"/calendars/{name}").json["tenant"] == "*"
    assert two.get(f"/calendars/{name}", tenant=f"one-{name}").status == 404
    assert two.ask("PUT", f"/calendars/{name}", {}, tenant=f"one-{name}").status == 404
    assert everyone.get(f"/calendars/{name}", tenant=f"one-{name}").json["weekend"] == ["SA"]
    assert served.as_("viewer", f"two-{name}").ask("PUT", f"/calendars/{name}", {}).status == 403


def test_calendars_are_imported_and_shown_on_the_command_line(shared, served, tmp_path):
    name, file = f"cli-{uuid4().hex[:8]}", tmp_path / "holidays.ics"
    file.write_text("BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:20271225\nSUMMARY:Christmas Day\n"
                    "END:VEVENT\nBEGIN:VEVENT\nDTSTART:20271224T100000Z\nEND:VEVENT\nEND:VCALENDAR\n")
    imported = scheduler(shared, "import", name, str(file), "--weekend", "SA,SU", "--json")
    assert imported.returncode == 0, imported.stderr
    assert "1 events with a time of day left out" in imported.stderr
    view = json.loads(imported.stdout)
    assert (view["closed"], view["valid_until"], view["weekend"]) == (
        {"2027-12-25": "Christmas Day"}, "2027-12-31", ["SA", "SU"])
    served.ask("PUT", f"/calendars/{name}", {"weekend": ["FR"], "open": {"2027-01-01": "inventory"}})
    again = scheduler(shared, "import", name, "-", "--json", "--valid-until", "2030-06-30", stdin=file.read_text())
    view = json.loads(again.stdout)
    assert (view["weekend"], view["open"], view["valid_until"]) == (
        ["FR"], {"2027-01-01": "inventory"}, "2030-06-30")
    assert view["version"] == 3
    file.write_text(json.dumps(view | {"closed": {"2026-02-30": "x"}}, indent=1))
    wrong = scheduler(shared, "import", name, str(file))
    assert wrong.returncode == 65
    assert "line " in wrong.stderr
    assert json.loads(scheduler(shared, "show", name, "--json").stdout) == view
    assert json.loads(scheduler(shared, "import", name, "-", "--json", stdin=json.dumps(view)).stdout) == view
    assert name in scheduler(shared, "list").stdout
    assert scheduler(shared, "delete", name).returncode == 1
    assert scheduler(shared, "delete", name, "--yes").returncode == 0
    assert scheduler(shared, "show", name).returncode == 1
    entries = served.get("/audit", kind="calendar", id=name).json["items"]
    assert [(entry["action"], entry["via"]) for entry in entries] == [
        ("delete", "cli"), ("calendar", "cli"), ("calendar", "api"), ("calendar", "cli")]
