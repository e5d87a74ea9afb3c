"""`scheduler job create` and `edit`: functions that return an error text, an exit code, or None."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scheduler.cli.request_text import BadRequestText, as_body, as_yaml, read_text
from scheduler.cli.verb_helpers import cli_caller, open_connection, wake_horizon
from scheduler.commands.operator_commands import (
    AlreadyExists,
    JobCommandHooks,
    NoSuchRecord,
    SupersededCommand,
    VersionConflict,
    run_command,
)
from scheduler.commands.tenancy import Tenancy
from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.jobs.definition import can_precompute_schedule, precompute_schedule
from scheduler.domain.jobs.etag import etag
from scheduler.domain.message_parser import parse_command
from scheduler.domain.time_ordered_id import time_ordered_id
from scheduler.postgres.jobs.lists import JobRow, find_job
from scheduler.settings import Settings
from scheduler.views.base import as_json, in_ascii
from scheduler.views.jobs import JobView, job_view, request_fields

EX_DATAERR = 65
_RULES = ("rrule", "cron", "every")
# Options of which only one can apply: each replaces the stored values of the others.
_REPLACED = dict.fromkeys(_RULES, (*_RULES, "manual")) | {
    "run_at": ("manual",), "manual": (*_RULES, "run_at", "calendar", "on_closed", "window", "jitter"),
}


def create(settings: Settings, args: Namespace) -> str | int | None:
    """Create a job from options or a file; print its id."""
    try:
        fields = {} if args.file is None else read_text(_read(args.file))
        fields |= args.fields
        fields.setdefault("id", str(time_ordered_id() if args.id is None else args.id))
        row = _store(settings, as_body(fields), new=True)
    except OSError as error:
        return f"cannot read {args.file}: {error.strerror}"
    except AlreadyExists:
        return f"the job {fields['id']} already exists; change it with `scheduler job edit`"
    except (Rejected, BadRequestText) as error:
        return _report(error)
    view = job_view(row)
    print(in_ascii(as_json(view)) if args.json else str(view.id))
    return None


def edit(settings: Settings, args: Namespace) -> str | int | None:
    """Change the given fields of a job, or open its request in an editor."""
    with open_connection(settings, "job edit") as connection:
        row = find_job(connection, str(args.id))
    if row is None or row.job.definition is None:
        return f"no job has the id {args.id}"
    try:
        given = _given(args)
    except OSError as error:
        return f"cannot read {args.file}: {error.strerror}"
    except BadRequestText as error:
        return _report(error)
    stored = request_fields(row) | {"payload": json.loads(row.job.definition.payload)}
    try:
        fields = _changed(stored, given) if given else _edited(stored)
        if fields == stored:
            _print(job_view(row), "unchanged", args)
            return None
        payload = row.job.definition.payload if fields.get("payload") == stored["payload"] else None
        row = _store(settings, as_body(fields | {"id": str(args.id)}, payload), if_match=[etag(row.job)])
    except subprocess.CalledProcessError as error:
        return f"the editor ended with exit code {error.returncode}; nothing was changed"
    except OSError as error:
        return f"the editor cannot be started: {error.strerror}; set EDITOR, or give options"
    except NoSuchRecord:
        return "the tenant of a job cannot be changed"
    except (VersionConflict, SupersededCommand):
        return "the job was changed by another command in the meantime; edit it again"
    except (Rejected, BadRequestText) as error:
        return _report(error)
    _print(job_view(row), "changed", args)
    return None


def _given(args: Namespace) -> dict[str, Any]:
    """Return the fields of the file and the options; an id in the file is ignored."""
    fields = {} if args.file is None else read_text(_read(args.file))
    return {name: value for name, value in (fields | args.fields).items() if name != "id"}


def _print(view: JobView, done: str, args: Namespace) -> None:
    print(in_ascii(as_json(view)) if args.json else f"{done}: {view.id}")


def _changed(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    replaced = {name for option in given for name in _REPLACED.get(option, ())} - given.keys()
    return {name: value for name, value in stored.items() if name not in replaced} | dict(given)


def _edited(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request as edited by the operator. Raises BadRequestText, or the editor's error."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    before = as_yaml(stored)
    with tempfile.TemporaryDirectory(prefix="scheduler-") as folder:
        path = Path(folder) / "job.yaml"
        path.write_text(before, encoding="utf-8")
        subprocess.run([*shlex.split(editor), str(path)], check=True)  # noqa: S603 - the user's own editor
        after = path.read_text(encoding="utf-8")
    return dict(stored) if after == before else read_text(after)


def _read(path: str) -> str:
    return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")


def _store(settings: Settings, body: bytes, *, new: bool = False, if_match: Sequence[str] | None = None) -> JobRow:
    incoming = parse_command("request", body, max_payload_bytes=settings.max_payload_bytes)
    Tenancy.of("field", (), settings.tenant_routes).check_route(incoming)
    incoming.caller = cli_caller()
    if can_precompute_schedule(incoming):
        precompute_schedule(incoming)
    with open_connection(settings, "job request") as connection:
        return run_command(connection, JobCommandHooks(incoming, None, new=new, if_match=if_match),
                           wake_horizon(settings))


def _report(error: Rejected | BadRequestText) -> int:
    problems = error.problems if isinstance(error, Rejected) else (Problem(error.field, str(error)),)
    for problem in problems:
        print(f"{problem.field}: {problem.problem}", file=sys.stderr)
    return EX_DATAERR
