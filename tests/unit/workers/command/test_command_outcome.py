"""The order of an attempt's command, and the outcome of its end."""

import signal
from dataclasses import replace

import pytest

from scheduler.domain.messages import ResultStatus
from scheduler.workers.attempt import WorkerAttempt
from scheduler.workers.command.commands_file import OfferedCommand
from scheduler.workers.command.outcome import RefusedCommand, build_order, decide_outcome, partial_output
from scheduler.workers.command.process import CommandEnd
from scheduler.workers.command.supervisor.argument_pattern import argument_problem

EVENT = {"job_id": "j", "job_type": "t", "due_at": "d", "event_id": "e", "run": {"attempt": 2},
         "payload": {"nul": "a\0b", "dash": "-rf", "empty": "", "inner": "{{job_id}}"}}
OFFERED = OfferedCommand("show", ("/bin/echo", "--"), arguments=True, environment={"A": "b"}, grace=3)


def attempt(arguments=(), name="show", tenant="default"):
    target = {"command": {"name": name, "arguments": list(arguments)}}
    return WorkerAttempt("e", 2, "j", "t", EVENT, b"{}", target, 60.0, 3600.0, 3600.0, "", b"", tenant=tenant)


def test_an_order_is_the_files_command_with_the_jobs_arguments_after_it():
    asked = attempt(["-r", "{{payload.inner}} {{attempt}}"])
    order = build_order(OFFERED, asked, {"PATH": "/bin", "X": "y"})
    assert order.run == ("/bin/echo", "--", "-r", "{{job_id}} 2")
    assert order.environment == {"PATH": "/bin", "A": "b", "SCHEDULER_EVENT_ID": "e", "SCHEDULER_JOB_ID": "j",
                                 "SCHEDULER_ATTEMPT": "2"}
    assert (order.stdin, order.timeout, order.grace) == (b"{}", 60.0, 3)


@pytest.mark.parametrize(("timeout", "effective"), [(5, 5), (3600, 60.0)])
def test_the_shorter_of_the_runs_and_the_commands_timeout_applies(timeout, effective):
    assert build_order(replace(OFFERED, timeout=timeout), attempt(), {}).timeout == effective


@pytest.mark.parametrize(("asked", "says"), [
    (attempt(["{{payload.none}}"]), "{{payload.none}}"),
    (attempt(["x", "{{payload.nul}}"]), "argument 2 contains NUL"),
    (attempt(name="other"), "'other'"),
    (attempt(name="no name"), "name"),
    (attempt(["{{payload.dash}}"]), "argument 1 starts with -"),
    (attempt(["--day", "{{payload.empty}}{{payload.dash}}"]), "argument 2 starts with -"),
    (attempt(tenant="acme"), "no worker offers the command show"),
    (attempt(["{{payload.none}}"], tenant="acme"), "no worker offers the command show"),
])
def test_unoffered_arguments_are_rejected(asked, says):
    with pytest.raises(RefusedCommand) as error:
        build_order(OFFERED, asked, {})
    assert says in str(error.value)


def test_an_option_that_the_job_writes_out_or_the_file_allows_is_given():
    written = attempt(["--day={{payload.dash}}", "-{{payload.inner}}", "x{{payload.dash}}"])
    assert build_order(OFFERED, written, {}).arguments == ("--day=-rf", "-{{job_id}}", "x-rf")
    allowed = replace(OFFERED, options=True)
    assert build_order(allowed, attempt(["{{payload.dash}}"]), {}).arguments == ("-rf",)


@pytest.mark.parametrize(("tenants", "runs"), [
    ({"default"}, {"default"}), ({"acme"}, {"acme"}), ({"acme", "other"}, {"acme", "other"}),
    ({"*"}, {"default", "acme", "other"}),
])
def test_a_command_is_for_its_tenants(tenants, runs):
    command = replace(OFFERED, tenants=frozenset(tenants))
    for tenant in ("default", "acme", "other"):
        if tenant in runs:
            assert build_order(command, attempt(tenant=tenant), {}).run == OFFERED.run
        else:
            with pytest.raises(RefusedCommand, match=r"^no worker offers the command show$"):
                build_order(command, attempt(tenant=tenant), {})


@pytest.mark.parametrize(("pattern", "arguments", "problem"), [
    (None, ["anything"], None), ("[a-z]+", [], None), ("[a-z]+", ["abc", "d"], None),
    ("[a-z]+", ["abc", "d1"], "does not match"), ("[a-z]+", ["abc\n"], "does not match"),
    ("a|ab", ["ab"], None), ("[a-z]+", [""], "does not match"),
    ("([a-z]+-?)+", ["a" * 60 + "!"], "of CPU time"), (".*", ["x" * 10_001], "more than 10,000 characters"),
])
def test_each_argument_must_match_the_pattern_as_a_whole_in_bounded_time(pattern, arguments, problem):
    found = argument_problem(pattern, arguments)
    assert found == problem or problem in found


@pytest.mark.parametrize(("ended", "status", "retry", "error"), [
    (CommandEnd(exit_code=0), ResultStatus.SUCCEEDED, True, None),
    (CommandEnd(exit_code=65, stderr=b"bad line\n\n"), ResultStatus.FAILED, False, "exit code 65: bad line"),
    (CommandEnd(exit_code=78), ResultStatus.FAILED, False, "exit code 78"),
    (CommandEnd(exit_code=1), ResultStatus.FAILED, True, "exit code 1"),
    (CommandEnd(exit_code=255), ResultStatus.FAILED, True, "exit code 255"),
    (CommandEnd(signal=11), ResultStatus.FAILED, True, "SIGSEGV (11)"),
    (CommandEnd(signal=99), ResultStatus.FAILED, True, "signal 99"),
    (CommandEnd(exit_code=0, ended_by="deadline"), ResultStatus.FAILED, True,
     "timed out after 60 s and ended with exit code 0"),
    (CommandEnd(signal=9, ended_by="silence"), ResultStatus.FAILED, True,
     "the worker froze; its supervisor ended the command before another worker starts it"),
    (CommandEnd(problem="Exec format error"), ResultStatus.FAILED, True, "not started: Exec format error"),
    (CommandEnd(problem="too long", permanent=True), ResultStatus.FAILED, False, "not started: too long"),
    (CommandEnd(exit_code=0, ended_by="stop"), ResultStatus.SNOOZED, True, "the worker was stopped"),
])
def test_how_it_ended_decides_what_is_reported(ended, status, retry, error):
    outcome = decide_outcome(ended, 60.0)
    assert (outcome.status, outcome.retry, outcome.error) == (status, retry, error)
    assert outcome.retry_in == (0.0 if status is ResultStatus.SNOOZED else None)


def test_attempts_of_another_worker_are_not_reported():
    assert decide_outcome(CommandEnd(signal=signal.SIGTERM, ended_by="superseded"), 60.0) is None


def test_the_output_has_the_contracts_fields():
    ended = CommandEnd(exit_code=3, stdout=b"out\xff", stderr=b"err", seconds=1.5)
    assert decide_outcome(ended, 60.0).output == {
        "exit_code": 3, "duration_ms": 1500, "stdout": "out\\xff", "stderr": "err",
    }
    assert decide_outcome(CommandEnd(signal=6), 60.0).output == {"signal": 6, "duration_ms": 0, "stdout": "",
                                                             "stderr": ""}
    assert partial_output(ended) == {"duration_ms": 1500, "stdout": "out\\xff", "stderr": "err"}
