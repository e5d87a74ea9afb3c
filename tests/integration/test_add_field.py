"""CONTRIBUTING.md lists every place that a new request field touches: a copy with a new field carries it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_PLACES = 6
# By file: an existing line, and the lines to add above it.
EDITS = {
    "sql/migrations/": [(None, "ALTER TABLE jobs ADD COLUMN note text;\n")],
    "domain/messages/jobs.py": [
        ("    run: RunPolicy | None = Field(\n",
         "    note: Annotated[str, Field(strict=True, max_length=50)] | None = Field(default=None)\n"),
        ('    target: Target | None = Field(default=None, description="The work for a worker.")\n',
         "    note: str | None = None\n"),
    ],
    "domain/jobs/definition.py": [("    spec: Spec\n", "    note: str | None\n")],
    "domain/jobs/emission.py": [
        ("    if definition.target is not None:\n        optional",
         """    if definition.note is not None:
        optional = f'{optional},"note":{_quoted(definition.note)}'
"""),
    ],
    "client/commands.py": [("    route: str\n", "    note: str\n")],
    "client/handlers.py": [("    target: dict[str, Any] | None = None\n", "    note: str | None = None\n")],
}
TRAVEL = """
import json, sys
from datetime import UTC, datetime, timedelta
from contextlib import closing
from scheduler.api.console.form import read_form
from scheduler.api.console.job_summary import job_context
from scheduler.views.jobs import request_fields
from scheduler.client import commands
from scheduler.client.handlers import Due
from scheduler.commands.apply_batch import apply_commands
from scheduler.domain.message_parser import parse_command
from scheduler.domain.messages import ScheduleDue
from scheduler.emitting.source import EmissionTime
from scheduler.emitting.sources.jobs import DueJobs
from scheduler.postgres.claims import ClaimSession
from scheduler.postgres.connection import connect
from scheduler.postgres.jobs.lists import find_job
from scheduler.postgres.migrate import migrate
from scheduler.postgres.priority_classes import FROM_THE_BOTTOM
from scheduler.testing import Sidecar
from scheduler.views.base import as_json
from scheduler.views.jobs import JobView, job_view

url, job_id = sys.argv[1:]
migrate(url)
fields = {"run_at": datetime.now(UTC) - timedelta(hours=1), "note": "n\\u00f6te"}
body = commands.request(job_id, "a", None, fields).body(lambda: datetime.now(UTC))
with closing(connect(url, "test")) as connection:
    apply_commands(connection, [parse_command("request", body, max_payload_bytes=1000)], timedelta(0))
    row = find_job(connection, job_id)
source = DueJobs()
with closing(ClaimSession(url, "test")) as session:
    claim = source.claim(session, 10, FROM_THE_BOTTOM)
    emission = source.decide(claim.things[0], claim.claimed_at)
    event = source.messages(emission, EmissionTime.of(claim.claimed_at))[0].body
kit = Sidecar()
kit.request(**json.loads(body))
page = job_context(row, [], datetime.now(UTC))
print(json.dumps({
    "view": json.loads(as_json(job_view(row)))["note"],
    "openapi": "note" in JobView.model_json_schema()["properties"],
    "page": dict(page["other_fields"]).get("Note"),
    "edited": read_form({"job_type": "a", "when": "once"}, request_fields(row)).fields["note"],
    "event": ScheduleDue.model_validate_json(event).note,
    "client": Due[dict].model_validate_json(event).note,
    "kit": kit.due()[0].note,
}))
"""


def places() -> list[str]:
    """Return the files and folders that CONTRIBUTING.md names for a field."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("**A request field that is copied to the event.**")[2].partition("\n\nThe ")[0]
    return re.findall(r"^\d\. .*?`((?:sql|domain|client)/[^`]*)`", section, re.MULTILINE)


def copy_with_field(tree: Path) -> None:
    for folder in ("scheduler", "sql"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for place, edits in EDITS.items():
        path = tree / (place if place.startswith("sql/") else f"scheduler/{place}")
        for line, added in edits:
            if line is None:
                number = len(list(path.glob("*.sql"))) + 1
                (path / f"{number:04}_note.sql").write_text(added, encoding="utf-8")
                continue
            text = path.read_text(encoding="utf-8")
            assert text.count(line) == 1, (place, line)
            path.write_text(text.replace(line, added + line), encoding="utf-8")


def test_a_field_added_at_the_listed_places_travels_from_the_request_to_the_event_and_the_views(
    tmp_path, empty_database,
):
    assert places() == list(EDITS)
    assert len(EDITS) <= MAX_PLACES
    copy_with_field(tmp_path)
    job_id = "5b0c2f4e-7a91-4c0e-8f0d-2d1f6a3b9c55"
    done = subprocess.run(
        [sys.executable, "-c", TRAVEL, empty_database, job_id], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)}, check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown == dict.fromkeys(shown, "nöte") | {"openapi": True}
