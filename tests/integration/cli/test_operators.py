"""`scheduler job`, `run`, `dead` and `token` on real servers: tables, JSON, exit codes and confirmation."""

import json
from uuid import uuid4

import jwt
import pytest
from support import connected, until
from terminal_support import on_a_terminal, without_colours

from scheduler.domain.caller import Via

SECRET = "a secret of at least thirty-two bytes, for tests"


@pytest.fixture
def jobs(database_url):
    ids = [str(uuid4()) for _ in range(4)]
    with connected(database_url) as connection, connection.cursor() as cursor:
        for number, job in enumerate(ids):
            cursor.execute(
                "INSERT INTO jobs (id, job_type, name, tenant, next_run_at, starts_at, created_at) VALUES "
                "(%s, %s, %s, 'acme', '2099-01-01', '2099-01-01', now() + %s * interval '1 second')",
                (job, "report" if number else "mail", f"Job \x1b[31m{number}", number),
            )
    return ids


def audit_entries(database_url):
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT action, kind, thing, via, tenant FROM audit ORDER BY id")
        return cursor.fetchall()


def test_jobs_are_listed_and_paused_resumed_triggered_and_cancelled(scheduler, jobs, database_url):
    lines = scheduler("job", "list").stdout.splitlines()
    assert lines[0].split() == ["ID", "STATUS", "TYPE", "NAME", "NEXT", "RUN", "EMITTED", "TENANT"]
    assert [line.split()[0] for line in lines[1:]] == jobs[::-1]
    assert "\x1b" not in "".join(lines)
    body = json.loads(scheduler("job", "list", "--q", "mail", "--json").stdout)
    assert [each["id"] for each in body] == jobs[:1]
    assert scheduler("job", "pause", jobs[0]).stdout.startswith("paused")
    assert json.loads(scheduler("job", "resume", jobs[0], "--json").stdout)["status"] == "pending"
    assert scheduler("job", "trigger", jobs[0]).returncode == 0
    asks = scheduler("job", "cancel", jobs[0])
    assert (asks.returncode, "--yes" in asks.stderr) == (1, True)
    assert scheduler("job", "cancel", jobs[0], "--yes").stdout.startswith("cancelled")
    assert scheduler("job", "pause", "--job-type", "report").stdout == "3 matched\n"
    assert json.loads(scheduler("job", "cancel", "--tenant", "acme", "--yes", "--json").stdout) == {"matched": 4}
    body = json.loads(scheduler("job", "list", "--json").stdout)
    assert {each["status"] for each in body} == {"cancelled"}
    entries = audit_entries(database_url)
    assert {entry[3] for entry in entries} == {Via.CLI.value}
    assert [entry[0] for entry in entries if entry[2] == jobs[0]] == ["pause", "resume", "trigger", "cancel"]


@pytest.mark.usefixtures("jobs")
def test_terminal_tables_fit_and_bulk_cancels_ask_and_show_progress(database_url):
    code, shown = on_a_terminal(database_url, "job", "list")
    lines = without_colours(shown).splitlines()
    assert (code, len(lines)) == (0, 5)
    assert max(map(len, lines)) <= 80
    code, shown = on_a_terminal(database_url, "job", "cancel", "--tenant", "acme", answer="n\n")
    assert (code, "Continue? [y/N]" in shown, audit_entries(database_url)) == (1, True, [])
    code, shown = on_a_terminal(database_url, "job", "cancel", "--tenant", "acme", answer="y\n")
    assert (code, "4 so far" in shown, "4 matched" in shown) == (0, True, True)
    assert [entry[0] for entry in audit_entries(database_url)] == ["cancel"] * 4


def test_exit_codes_of_errors(scheduler, jobs):
    for verb in ("show", "pause", "trigger"):
        missing = scheduler("job", verb, uuid4())
        assert (missing.returncode, "no job has the id" in missing.stderr) == (1, True)
    assert scheduler("job", "pause").returncode == 1
    assert scheduler("job", "pause", jobs[0], "--tenant", "acme").returncode == 1
    assert scheduler("job", "list", "--limit", "0").returncode == 2
    unreachable = "postgresql://127.0.0.1:1/none"
    assert scheduler("job", "list", database=unreachable).returncode == 69
    assert scheduler("job", "cancel", jobs[0], "--yes", database=unreachable).returncode == 69
    assert scheduler("dead", "list").returncode == 69
    assert scheduler("job", "list", SCHEDULER_COLOUR="red").returncode == 78


def test_dead_letters_are_listed_shown_replayed_and_dropped(scheduler, host, database_url):
    assert scheduler("dead", "list").stdout == "scheduler_dead is empty.\n"
    job = str(uuid4())
    headers = {"x-rejected-reason": "colour: \x1b[31mno", "x-rejected-at": "2026-12-01T08:00:00Z"}
    for number in (1, 2):
        host.publish("pause", {"id": job, "n": number}, "schedule.dead", headers=headers)
    found = until(lambda: len(got := json.loads(scheduler("dead", "list", "--json").stdout or "[]")) == 2 and got,
                  "both dead letters")
    table = scheduler("dead", "list").stdout
    assert found[0]["id"] in table
    assert "\x1b" not in table
    shown = scheduler("dead", "show", found[0]["id"]).stdout
    assert job in shown
    assert "schedule.commands" in shown
    sent = scheduler("dead", "replay", found[0]["id"]).stdout
    assert sent.startswith("replayed to schedule.commands; dead-letter reason: colour: ")
    assert "\x1b" not in sent
    host.publish("pause", {"id": job, "n": 3}, "schedule.dead", headers=headers)
    third = until(lambda: next((load for load in json.loads(scheduler("dead", "list", "--json").stdout)
                                if load["body"]["n"] == 3), None), "the third dead letter")
    assert json.loads(scheduler("dead", "replay", third["id"], "--json").stdout) == third
    assert json.loads(host.get("scheduler_inbox")[2]) == found[0]["body"]
    asks = scheduler("dead", "drop", found[1]["id"])
    assert (asks.returncode, "--yes" in asks.stderr) == (1, True)
    assert json.loads(scheduler("dead", "drop", found[1]["id"], "--yes", "--json").stdout) == found[1]
    assert scheduler("dead", "show", found[1]["id"]).returncode == 1
    actions = [(action, kind) for action, kind, *_ in audit_entries(database_url)]
    assert actions == [("replay", "dead"), ("replay", "dead"), ("drop", "dead")]


def test_a_token_is_signed_with_the_secret_key(scheduler, tmp_path):
    done = scheduler("token", "--role", "operator", "--tenant", "acme", "--for", "2h", "--sub", "ann",
                     SCHEDULER_JWT_KEY=SECRET, SCHEDULER_JWT_AUDIENCE="scheduler")
    claims = jwt.decode(done.stdout.strip(), SECRET, ["HS256"], audience="scheduler")
    assert (claims["role"], claims["tenant"], claims["sub"]) == ("operator", "acme", "ann")
    assert claims["exp"] - claims["iat"] == 7200
    for tenant in ((), ("--tenant", "*")):
        done = scheduler("token", "--role", "viewer", "--sub", "ann", *tenant, "--json", SCHEDULER_JWT_KEY=SECRET)
        fields = json.loads(done.stdout)
        claims = jwt.decode(fields.pop("token"), SECRET, ["HS256"])
        assert (claims["role"], claims.get("tenant", "*")) == ("viewer", "*")
        assert fields == {"sub": "ann", "role": "viewer", "tenant": "*", "expires_in": 8 * 3600}
    (tmp_path / "key").write_text(SECRET + "\n")
    assert scheduler("token", "--role", "viewer", SCHEDULER_JWT_KEY_FILE=str(tmp_path / "key")).returncode == 0
    assert scheduler("token", "--role", "viewer").returncode == 78
    assert scheduler("token", "--role", "root", SCHEDULER_JWT_KEY=SECRET).returncode == 2
    assert scheduler("token", "--role", "viewer", "--for", "8y", SCHEDULER_JWT_KEY=SECRET).returncode == 2
    assert scheduler("token", "--role", "viewer", "--tenant", "a b", SCHEDULER_JWT_KEY=SECRET).returncode == 2
    short = scheduler("token", "--role", "viewer", SCHEDULER_JWT_KEY="short-secret")
    assert (short.returncode, "short-secret" in short.stderr) == (78, False)
