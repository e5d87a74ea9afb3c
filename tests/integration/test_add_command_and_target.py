"""CONTRIBUTING.md lists every place that a new command or target touches: a copy with both carries them."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_PLACES = 5
# By file: an existing text and what to put in its place; without it the file is new.
COMMAND = {
    "domain/messages/commands.py": [
        ("JOB_VERBS: dict", '''class ScheduleSkip(JobVerb):
    """Omit the next occurrence."""

    kind: ClassVar[str] = "skip"
    help: ClassVar[str] = "Skip the next occurrence"
    done: ClassVar[str] = "skipped"
    changes: ClassVar[tuple[str, ...]] = ("pending",)


JOB_VERBS: dict'''),
        ("ScheduleTrigger, ScheduleCancel)", "ScheduleTrigger, ScheduleCancel, ScheduleSkip)"),
    ],
    "domain/jobs/job.py": [
        ("# Transitions for all", """def _skip(job: Job, issued: datetime, _: datetime) -> CommandOutcome:
    if job.definition is None or job.next_run_at is None:
        return CommandOutcome(job, "unchanged")
    following = compile_schedule(job.definition.spec).next_after(job.next_run_at)
    return CommandOutcome(replace(job, next_run_at=following), "scheduled")


# Transitions for all"""),
        ("    ScheduleTrigger: _trigger,\n", "    ScheduleTrigger: _trigger,\n    ScheduleSkip: _skip,\n"),
        ("from scheduler.domain.recurrence import",
         "from scheduler.domain.messages.commands import ScheduleSkip\nfrom scheduler.domain.recurrence import"),
    ],
    "client/client.py": [("    def _now(self)", """    def skip(self, id, *, wait=False, **sending):
        return self._send(order("skip", id, sending), wait)

    def _now(self)""")],
    "client/outbox.py": [("    def _write(self", """    def skip(self, id, **sending: Unpack[CommandFields]):
        self._write(order("skip", id, sending))

    def _write(self""")],
    "testing/sidecar.py": [("    def result(\n", """    def skip(self, id, **fields):
        return self._command("skip", {"id": id, **fields})

    def result(
""")],
}
TARGET = {
    "domain/targets/mail.py": [(None, '''from typing import Any, ClassVar

from scheduler.domain.targets.base import Text, WorkTarget
from scheduler.domain.targets.credential_masks import MASK


class MailTarget(WorkTarget):
    """Send a mail."""

    kind: ClassVar[str] = "mail"
    key: ClassVar[str] = "mail"
    queue: ClassVar[str] = "scheduler_mails"

    to: Text
    password: Text = ""

    @classmethod
    def masked(cls, target: dict[str, Any]) -> dict[str, Any]:
        return target | {"password": MASK}
''')],
    "domain/targets/target.py": [
        ("    command: CommandTarget | None = None\n",
         "    command: CommandTarget | None = None\n    mail: MailTarget | None = None\n"),
        ("from scheduler.domain.targets.webhook",
         "from scheduler.domain.targets.mail import MailTarget\nfrom scheduler.domain.targets.webhook"),
    ],
    "workers/mail/service.py": [(None, "class MailWorker:\n    pass\n")],
    "api/console/targets/mail.py": [(None, """from scheduler.api.console.targets.target_form import TargetForm

FORM = TargetForm("send a mail", ("mail_to",), frozenset({"to"}),
                  lambda form, read, stored: {"to": form["mail_to"]}, lambda mail: {"mail_to": mail["to"]},
                  lambda mail: ("mails", mail["to"]))
""")],
    "api/console/templates/targets/mail.html": [(None, '<input name="mail_to" value="{{ values.mail_to }}">')],
}
GENERATE = "from pathlib import Path; from tools.schemas import write; write(Path('schemas'))"
COMMAND_WORKS = """
import json, sys
from contextlib import closing
from datetime import UTC, datetime
import psycopg2
from scheduler.api.app import build
from scheduler.cli.main import _parser
from scheduler.client import Outbox, tables
from scheduler.commands.bulk_commands import job_step
from scheduler.domain.messages import COMMAND_MODELS
from scheduler.testing import InProcessClient, Sidecar
from tools import asyncapi

job = "5b0c2f4e-7a91-4c0e-8f0d-2d1f6a3b9c55"
kit = Sidecar(datetime(2030, 1, 1, 9, tzinfo=UTC))
kit.request(id=job, job_type="a", run_at="2030-01-02T00:00:00Z", rrule="FREQ=DAILY")
kit.skip(job)
InProcessClient(kit).skip(job)
with closing(psycopg2.connect(sys.argv[1])) as database, database, database.cursor() as cursor:
    cursor.execute(tables())
    Outbox(cursor).skip(job)
    cursor.execute("SELECT kind FROM scheduler_outbox")
    [(kind,)] = cursor.fetchall()
paths = build().openapi()["paths"]
print(json.dumps({
    "bound": "skip" in COMMAND_MODELS and "command.skip" in asyncapi.document()["channels"],
    "next": kit.job(job).next_run_at.isoformat(),
    "outbox": kind,
    "routes": [path for path in paths if path.endswith("/skip")],
    "verb": _parser().parse_args(["job", "skip", job]).verb,
    "bulk": job_step("skip", None, None, None).__name__,
    "role": "|skip|" in open("sql/roles/rabbitmq.sh").read(),
    "schema": json.load(open("schemas/ScheduleSkip.json"))["examples"] != [],
}))
"""
TARGET_WORKS = """
import json
from datetime import UTC, datetime
from scheduler.api.console.form import read_form
from scheduler.api.console.form_values import values_of
from scheduler.api.console.templating import environment
from scheduler.cli.main import _parser
from scheduler.domain.targets.target import SHARED_QUEUES, mask_target
from scheduler.processes.roles import ROLES
from scheduler.testing import Sidecar
from tools import asyncapi

mail = {"mail": {"to": "a@example.org", "password": "p"}}
kit = Sidecar(datetime(2030, 1, 1, 9, tzinfo=UTC))
kit.request(id="5b0c2f4e-7a91-4c0e-8f0d-2d1f6a3b9c55", job_type="a", run_at="2030-01-01T10:00:00Z", target=mail)
kit.advance(hours=1)
[event] = kit.take("mail")
form = values_of({"job_type": "a", "target": mail})
edited = read_form(form | {"when": "once", "mail_to": "b@example.org"}, {"job_type": "a", "target": mail})
print(json.dumps({
    "event": json.loads(event.body)["target"],
    "queue": SHARED_QUEUES["scheduler_mails"],
    "document": asyncapi.document()["channels"]["work.mail"]["address"],
    "masked": mask_target(mail)["mail"]["password"],
    "edited": edited.fields["target"]["mail"],
    "input": environment().get_template("targets/mail.html").render(values=form),
    "worker": ROLES["worker"].works[-1],
    "only": _parser().parse_args(["worker", "--only", "mails"]).only,
    "role": open("sql/roles/rabbitmq.sh").read().count("webhooks|mails"),
}))
"""


def places(title: str) -> list[str]:
    """Return the files that CONTRIBUTING.md names."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition(f"**{title}**")[2].partition("\n\nThen")[0]
    return re.findall(r"^\d\. .*?`([a-zA-Z_/]+/[^`]*)`", section, re.MULTILINE)


def copy_with(edits: dict, tree: Path) -> None:
    for folder in ("scheduler", "sql", "tools", "schemas"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for place, replacements in edits.items():
        path = tree / "scheduler" / place
        for before, after in replacements:
            if before is None:
                path.parent.mkdir(exist_ok=True)
                path.write_text(after, encoding="utf-8")
                continue
            text = path.read_text(encoding="utf-8")
            assert text.count(before) == 1, (place, before)
            path.write_text(text.replace(before, after), encoding="utf-8")


def run(tree: Path, program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=tree, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(tree)}, check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("title", "edits"), [("A command for a job.", COMMAND), ("A target.", TARGET)])
def test_contributing_lists_every_touched_file(title, edits):
    assert places(title) == [place.replace("mail", "command") for place in edits]
    assert len(edits) <= MAX_PLACES


def test_a_command_added_at_the_listed_places_works(tmp_path, empty_database):
    copy_with(COMMAND, tmp_path)
    run(tmp_path, GENERATE)
    assert json.loads(run(tmp_path, COMMAND_WORKS, empty_database)) == {
        "bound": True, "next": "2030-01-04T00:00:00+00:00", "outbox": "skip",
        "routes": ["/api/v1/jobs/skip", "/api/v1/jobs/{id}/skip"], "verb": "skip", "bulk": "step", "role": True,
        "schema": True,
    }


def test_a_target_added_at_the_listed_places_works(tmp_path):
    copy_with(TARGET, tmp_path)
    run(tmp_path, GENERATE)
    assert json.loads(run(tmp_path, TARGET_WORKS)) == {
        "event": {"mail": {"to": "a@example.org", "password": "p"}}, "queue": "mail", "document": "mail",
        "masked": "***", "edited": {"to": "b@example.org", "password": "p"},
        "input": '<input name="mail_to" value="a@example.org">',
        "worker": "scheduler.workers.mail.service:MailWorker",
        "only": "mails", "role": 3,
    }
