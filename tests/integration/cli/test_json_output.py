"""The fields of `--json` that docs/cli.md promises are in the output."""

import json
import re
from pathlib import Path
from uuid import uuid4

import pytest
from support import connected, until

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.partition("## JSON")[2].splitlines() if line.startswith("| `")]
JOB, RUN, MESSAGE = (str(uuid4()) for _ in range(3))


def names(cell):
    return re.findall(r"`([^`]*)`", cell)


def promised():
    """Return each command of the table with its kind and fields."""
    by_command = {}
    for commands, kinds, fields in ROWS:
        own = [name for name in names(fields) if name not in by_command and not name.startswith("--")]
        for name in names(fields):
            own += by_command.get(name, (None, []))[1]
        for command, kind in zip(names(commands), kinds.split(", ") * 2, strict=False):
            by_command[command] = (kind, own)
    return by_command


@pytest.fixture
def filled(database_url, host):
    """One row of everything that the commands show."""
    with connected(database_url, options="-c search_path=scheduler") as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO jobs (id, job_type, next_run_at, starts_at) "
                       "VALUES (%s, 'report', '2099-01-01', now())", (JOB,))
        cursor.execute(
            "INSERT INTO run_history (event_id, status, job_id, job_type, due_at, finished_at, origin, policy, "
            "event) VALUES (%s, 'dead', %s, 'report', now(), now(), 'schedule', '{}', '{}')", (RUN, JOB))
        cursor.execute(
            "INSERT INTO delayed_messages (message_id, exchange, routing_key, properties, body, due_at, wake_at) "
            "VALUES (%s, 'x', '', '', '', '2099-01-01', '2099-01-01')", (MESSAGE,))
    host.publish("pause", {"id": JOB, "n": 1}, "schedule.dead", headers={"x-rejected-reason": "no"})


@pytest.mark.usefixtures("host", "filled")
def test_every_promised_field_is_printed(scheduler, tmp_path):
    calendar = tmp_path / "bank.json"
    calendar.write_text('{"closed": {"2099-12-25": "Christmas Day"}}')
    assert scheduler("calendar", "import", "bank", calendar).returncode == 0
    dead = until(lambda: json.loads(scheduler("dead", "list", "--json").stdout or "[]"), "the dead letter")
    shown = {"job show": JOB, "run show": RUN, "delayed show": MESSAGE, "dead show": dead[0]["id"],
             "calendar show": "bank"}
    assert len(promised()) == 11
    for command, (kind, fields) in promised().items():
        plan = ["--plan"] if command == "zones" else []
        done = scheduler(*command.split(), *([shown[command]] if command in shown else plan), "--json")
        assert done.returncode == 0, (command, done.stderr)
        printed = json.loads(done.stdout)
        assert isinstance(printed, list) == (kind == "array"), command
        [one] = printed if kind == "array" else [printed]
        assert set(fields) - one.keys() == set(), command
        assert len(fields) > 3, command
