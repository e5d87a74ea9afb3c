"""From a job's target to what is run, and from how that ended to what is reported; nothing is run here."""

import signal
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from scheduler.domain.messages.targets import CommandTarget
from scheduler.domain.names import COMMAND_VARIABLES
from scheduler.domain.targets.placeholders import UnknownPlaceholder, fill
from scheduler.workers.attempt import WorkerAttempt
from scheduler.workers.command_output import fitted, printable
from scheduler.workers.command_process import CommandEnd, CommandOrder
from scheduler.workers.commands_file import OfferedCommand, environment_of
from scheduler.workers.outcome import WorkOutcome
from scheduler.workers.tenant_filter import includes

STOPPED, SUPERSEDED = "stop", "superseded"  # why this worker ends a command
NEVER_AGAIN = (65, 78)  # of <sysexits.h>: the data are bad, the configuration is bad
_LINE_CHARACTERS = 500


class RefusedCommand(Exception):  # noqa: N818 - a verdict about the job, not an accident
    """The job asks for what this command is not given; another attempt would fare no better."""


def order_of(command: OfferedCommand, attempt: WorkerAttempt, own: Mapping[str, str]) -> CommandOrder:
    """Return what to run for an attempt; `own` is the worker's environment."""
    if not includes(command.tenants, attempt.tenant):
        raise RefusedCommand(f"no worker offers the command {command.name}")
    try:
        target = CommandTarget.model_validate(attempt.target.get("command"))
        arguments = tuple(fill(each, attempt.event) for each in target.arguments)
    except (ValidationError, UnknownPlaceholder) as error:
        raise RefusedCommand(str(error)) from None
    if target.name != command.name:
        raise RefusedCommand(f"the event is for the command {target.name!r} and came to {command.name!r}")
    if arguments and not command.arguments:
        raise RefusedCommand(f"the command {command.name!r} takes no arguments from jobs; "
                             "`arguments = true` in the commands file would allow them")
    for number, (written, each) in enumerate(zip(target.arguments, arguments, strict=True), 1):
        if "\0" in each:
            raise RefusedCommand(f"argument {number} holds a NUL, which no program can be given")
        if each.startswith("-") and not written.startswith("-") and not command.options:
            raise RefusedCommand(f"argument {number} begins with - because of a placeholder; `options = true` in "
                                 "the commands file would allow that")
    told = (attempt.event_id, attempt.job_id, str(attempt.number))
    environment = dict(environment_of(command, own)) | dict(zip(COMMAND_VARIABLES, told, strict=True))
    return CommandOrder(
        (*command.run, *arguments), command.directory, environment, attempt.body,
        min(attempt.timeout, command.timeout), command.grace, command.limits, command.user,
        command.argument_pattern, arguments,
    )


def output_so_far(ended: CommandEnd) -> dict[str, Any]:
    """Return the newest output of a command at work."""
    about = {"duration_ms": round(ended.seconds * 1000)}
    return fitted(about, printable(ended.stdout), printable(ended.stderr))


def outcome_of(ended: CommandEnd, timeout: float) -> WorkOutcome | None:
    """Return what to report of a command that has ended; None where the run is no longer this worker's own."""
    if ended.problem is not None:
        return WorkOutcome.failed(f"could not be run: {ended.problem}", retry=not ended.hopeless)
    if ended.ended_by == SUPERSEDED:
        return None
    if ended.ended_by == STOPPED:
        return WorkOutcome.snoozed(0.0, "its worker was stopped")
    stdout, stderr = printable(ended.stdout), printable(ended.stderr)
    how = {"exit_code": ended.exit_code or 0} if ended.signal is None else {"signal": ended.signal}
    output = fitted(how | {"duration_ms": round(ended.seconds * 1000)}, stdout, stderr)
    if ended.ended_by is None and ended.exit_code == 0:
        return WorkOutcome.succeeded(output)
    return WorkOutcome.failed(_failure_reason(ended, timeout, stderr), retry=ended.exit_code not in NEVER_AGAIN,
                              output=output)


def _failure_reason(ended: CommandEnd, timeout: float, stderr: str) -> str:
    if ended.ended_by == "deadline":
        return f"took longer than its {timeout:g} s and was ended by {_end(ended)}"
    if ended.ended_by is not None:
        return "its worker stood still, and the command was ended before another would begin it"
    last = next((line for line in reversed(stderr.splitlines()) if line.strip()), "")
    return f"{_end(ended)}: {last.strip()[:_LINE_CHARACTERS]}" if last else _end(ended)


def _end(ended: CommandEnd) -> str:
    if ended.signal is None:
        return f"exit code {ended.exit_code}"
    try:
        return f"{signal.Signals(ended.signal).name} ({ended.signal})"
    except ValueError:
        return f"signal {ended.signal}"
