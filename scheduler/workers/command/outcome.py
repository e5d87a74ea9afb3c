"""Build the order for a job's command, and decide the outcome of its attempt. Runs nothing."""

import signal
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from scheduler.domain.names import COMMAND_VARIABLES
from scheduler.domain.targets.command import CommandTarget
from scheduler.domain.targets.placeholders import UnknownPlaceholder, fill
from scheduler.workers.attempt import WorkerAttempt
from scheduler.workers.command.commands_file import OfferedCommand, environment_of
from scheduler.workers.command.output import fit_output, printable
from scheduler.workers.command.process import CommandEnd, CommandOrder
from scheduler.workers.outcome import WorkOutcome
from scheduler.workers.tenant_filter import includes

STOPPED, SUPERSEDED = "stop", "superseded"  # why this worker ends a command
PERMANENT_EXIT_CODES = (65, 78)  # of <sysexits.h>: EX_DATAERR, EX_CONFIG
_LINE_CHARACTERS = 500


class RefusedCommand(Exception):  # noqa: N818 - the job's fault, not an error here
    """The commands file does not allow the job's target; a retry would fail too."""


def build_order(command: OfferedCommand, attempt: WorkerAttempt, own: Mapping[str, str]) -> CommandOrder:
    """Return the order for an attempt; `own` is the worker's environment. Raises RefusedCommand."""
    if not includes(command.tenants, attempt.tenant):
        raise RefusedCommand(f"no worker offers the command {command.name}")
    try:
        target = CommandTarget.model_validate(attempt.target.get("command"))
        arguments = tuple(fill(argument, attempt.event) for argument in target.arguments)
    except (ValidationError, UnknownPlaceholder) as error:
        raise RefusedCommand(str(error)) from None
    if target.name != command.name:
        raise RefusedCommand(f"the event is for the command {target.name!r}, the queue for {command.name!r}")
    if arguments and not command.arguments:
        raise RefusedCommand(f"the command {command.name!r} accepts no arguments; "
                             "set `arguments = true` in the commands file to allow them")
    for number, (written, argument) in enumerate(zip(target.arguments, arguments, strict=True), 1):
        if "\0" in argument:
            raise RefusedCommand(f"argument {number} contains NUL, which cannot be passed to a program")
        if argument.startswith("-") and not written.startswith("-") and not command.options:
            raise RefusedCommand(f"argument {number} starts with - because of a placeholder; "
                                 "set `options = true` in the commands file to allow that")
    values = (attempt.event_id, attempt.job_id, str(attempt.number))
    environment = dict(environment_of(command, own)) | dict(zip(COMMAND_VARIABLES, values, strict=True))
    return CommandOrder(
        (*command.run, *arguments), command.directory, environment, attempt.body,
        min(attempt.timeout, command.timeout), command.grace, command.limits, command.user,
        command.argument_pattern, arguments,
    )


def partial_output(end: CommandEnd) -> dict[str, Any]:
    """Return the newest output of a running command."""
    return fit_output({"duration_ms": round(end.seconds * 1000)}, printable(end.stdout), printable(end.stderr))


def decide_outcome(end: CommandEnd, timeout: float) -> WorkOutcome | None:
    """Return the outcome to report; None if another worker has the run."""
    if end.problem is not None:
        return WorkOutcome.failed(f"not started: {end.problem}", retry=not end.permanent)
    if end.ended_by == SUPERSEDED:
        return None
    if end.ended_by == STOPPED:
        return WorkOutcome.snoozed(0.0, "the worker was stopped")
    stdout, stderr = printable(end.stdout), printable(end.stderr)
    code = {"exit_code": end.exit_code or 0} if end.signal is None else {"signal": end.signal}
    output = fit_output(code | {"duration_ms": round(end.seconds * 1000)}, stdout, stderr)
    if end.ended_by is None and end.exit_code == 0:
        return WorkOutcome.succeeded(output)
    return WorkOutcome.failed(_failure_reason(end, timeout, stderr),
                              retry=end.exit_code not in PERMANENT_EXIT_CODES, output=output)


def _failure_reason(end: CommandEnd, timeout: float, stderr: str) -> str:
    if end.ended_by == "deadline":
        return f"timed out after {timeout:g} s and ended with {_exit_text(end)}"
    if end.ended_by is not None:
        return "the worker froze; its supervisor ended the command before another worker starts it"
    last = next((line for line in reversed(stderr.splitlines()) if line.strip()), "")
    return f"{_exit_text(end)}: {last.strip()[:_LINE_CHARACTERS]}" if last else _exit_text(end)


def _exit_text(end: CommandEnd) -> str:
    if end.signal is None:
        return f"exit code {end.exit_code}"
    try:
        return f"{signal.Signals(end.signal).name} ({end.signal})"
    except ValueError:
        return f"signal {end.signal}"
