"""`scheduler job create` and `edit`, as an operator uses them."""

import json
import os
import subprocess
import sys

import pytest
from support import DEADLINE, connected

CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("SCHEDULER_", "METRICS_", "LOG_", "AMQP_"))}
ID = "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11"


@pytest.fixture
def job(database_url):
    def run(*arguments, stdin="", **env):
        return subprocess.run(
            [sys.executable, "-m", "scheduler", "job", *arguments], capture_output=True, text=True, input=stdin,
            env=CLEAN | {"DATABASE_URL": database_url} | env, timeout=DEADLINE, check=False,
        )

    return run


def stored(database_url):
    with connected(database_url, options="-c search_path=scheduler") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT job_type, payload::text, name, cron, every::text, timezone FROM jobs WHERE id = %s",
                       (ID,))
        return cursor.fetchone()


def test_a_job_is_created_and_edited_by_options(job, database_url):
    created = job("create", "--id", ID, "--job-type", "report", "--cron", "0 9 * * 1",
                  "--timezone", "Europe/Berlin", "--payload", '{"n": 1.50}')
    assert (created.returncode, created.stdout) == (0, f"{ID}\n"), created.stderr
    again = job("create", "--id", ID, "--job-type", "report", "--run-at", "+2d")
    assert (again.returncode, "already exists" in again.stderr) == (1, True)
    edited = job("edit", ID[:8], "--name", "Weekly", "--json")
    assert json.loads(edited.stdout)["name"] == "Weekly", edited.stderr
    assert stored(database_url) == ("report", '{"n": 1.5}', "Weekly", "0 9 * * 1", None, "Europe/Berlin")
    assert job("edit", ID, "--every", "PT15M").returncode == 0
    assert stored(database_url)[3:5] == (None, "00:15:00")
    for option, value in (("timezone", "Mars/Olympus"), ("payload", "[1]")):
        wrong = job("edit", ID, f"--{option}", value)
        assert (wrong.returncode, wrong.stderr.split(":")[0]) == (65, option)
    assert stored(database_url)[5] == "Europe/Berlin"
    missing = job("edit", "00000000-0000-4000-8000-000000000000", "--name", "x")
    assert (missing.returncode, "no job has the id" in missing.stderr) == (1, True)
    one = job("create", "--job-type", "once", "--run-at", "-1h", "--json")
    assert json.loads(one.stdout)["job_type"] == "once", one.stderr


def test_a_start_may_name_its_zone_but_not_contradict_it(job, database_url):
    start = "2099-03-01T09:00:00+01:00[Europe/Berlin]"
    created = job("create", "--id", ID, "--job-type", "report", "--run-at", start)
    assert (created.returncode, created.stdout) == (0, f"{ID}\n"), created.stderr
    assert stored(database_url)[5] == "Europe/Berlin"
    for options in (("--run-at", start.replace("+01", "+02")), ("--run-at", start, "--timezone", "Asia/Tokyo")):
        wrong = job("create", "--job-type", "report", *options)
        assert (wrong.returncode, wrong.stdout) == (65, ""), wrong.stderr


def test_a_request_is_read_from_a_file(job, database_url, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(f"id: {ID}\njob_type: report\nrun_at: 2099-01-01T09:00:00Z\n"
                    "payload: {at: 18:00, on: [no, 1, 0.5]}\n")
    created = job("create", "--file", str(file), "--name", "From a file")
    assert (created.returncode, created.stdout) == (0, f"{ID}\n"), created.stderr
    assert json.loads(stored(database_url)[1]) == {"at": "18:00", "on": ["no", 1, 0.5]}
    text = json.dumps({"job_type": "report", "run_at": "2099-01-01T09:00:00Z"})
    assert job("create", "--file", "-", stdin=text).returncode == 0
    for wrong, field in (("- a", "body"), ("{", "body"), ('{"run_at": "2099-01-01T09:00:00Z"}', "job_type")):
        refused = job("create", "--file", "-", stdin=wrong)
        assert (refused.returncode, refused.stderr.split(":")[0]) == (65, field)
    assert job("create", "--file", str(tmp_path / "none")).returncode == 1
    edited = job("edit", ID, "--file", "-", "--name", "Edited", stdin=f'{{"id": "{ID}", "job_type": "other"}}')
    assert edited.returncode == 0, edited.stderr
    assert stored(database_url)[::2] == ("other", "Edited", None)
    assert json.loads(stored(database_url)[1]) == {"at": "18:00", "on": ["no", 1, 0.5]}
    assert job("edit", ID, "--file", str(tmp_path / "none")).returncode == 1


def test_a_request_is_edited_in_an_editor(job, database_url):
    created = job("create", "--id", ID, "--job-type", "report", "--every", "900", "--payload", '{"a":  1}')
    assert created.returncode == 0, created.stderr
    before = stored(database_url)
    left = job("edit", ID, EDITOR="true", VISUAL="")
    assert (left.returncode, left.stdout, stored(database_url)) == (0, f"unchanged: {ID}\n", before)
    assert job("edit", ID, EDITOR="false").returncode == 1
    assert job("edit", ID, EDITOR="sed -i s/job_type/colour/").returncode == 65
    assert stored(database_url) == before
    assert job("edit", ID, EDITOR="false", VISUAL="sed -i s/report/summary/").returncode == 0
    assert stored(database_url) == ("summary", *before[1:])
