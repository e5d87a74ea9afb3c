"""What is run for an attempt, and what is reported of how that ended."""

import signal

import pytest

from scheduler.domain.messages import ResultStatus
from scheduler.workers.attempt import Attempt
from scheduler.workers.command_outcome import RefusedCommand, order_of, outcome_of, output_so_far
from scheduler.workers.commands_file import OfferedCommand
from scheduler.workers.running import Ended

EVENT = {"job_id": "j", "job_type": "t", "due_at": "d", "event_id": "e", "run": {"attempt": 2},
         "payload": {"nul": "a\0b", "dash": "-rf", "inner": "{{job_id}}"}}
OFFERED = OfferedCommand("show", ("/bin/echo", "--"), arguments=True, environment={"A": "b"}, grace=3)


def attempt(arguments=(), name="show"):
    target = {"command": {"name": name, "arguments": list(arguments)}}
    return Attempt("e", 2, "j", "t", EVENT, b"{}", target, 60.0, 3600.0, 3600.0, "", b"")


def test_an_order_is_the_files_command_with_the_jobs_arguments_after_it():
    asked = attempt(["{{payload.dash}}", "{{payload.inner}} {{attempt}}"])
    order = order_of(OFFERED, asked, {"PATH": "/bin", "X": "y"})
    assert order.run == ("/bin/echo", "--", "-rf", "{{job_id}} 2")
    assert order.environment == {"PATH": "/bin", "A": "b", "SCHEDULER_EVENT_ID": "e", "SCHEDULER_JOB_ID": "j",
                                 "SCHEDULER_ATTEMPT": "2"}
    assert (order.stdin, order.timeout, order.grace) == (b"{}", 60.0, 3)


@pytest.mark.parametrize(("asked", "says"), [
    (attempt(["{{payload.none}}"]), "{{payload.none}}"),
    (attempt(["x", "{{payload.nul}}"]), "argument 2 holds a NUL"),
    (attempt(name="other"), "'other'"),
    (attempt(name="no name"), "name"),
])
def test_what_a_command_is_not_given_is_refused(asked, says):
    with pytest.raises(RefusedCommand) as error:
        order_of(OFFERED, asked, {})
    assert says in str(error.value)


@pytest.mark.parametrize(("ended", "status", "retry", "error"), [
    (Ended(exit_code=0), ResultStatus.SUCCEEDED, True, None),
    (Ended(exit_code=65, stderr=b"bad line\n\n"), ResultStatus.FAILED, False, "exit code 65: bad line"),
    (Ended(exit_code=78), ResultStatus.FAILED, False, "exit code 78"),
    (Ended(exit_code=1), ResultStatus.FAILED, True, "exit code 1"),
    (Ended(exit_code=255), ResultStatus.FAILED, True, "exit code 255"),
    (Ended(signal=11), ResultStatus.FAILED, True, "SIGSEGV (11)"),
    (Ended(signal=99), ResultStatus.FAILED, True, "signal 99"),
    (Ended(exit_code=0, ended_by="deadline"), ResultStatus.FAILED, True,
     "took longer than its 60 s and was ended by exit code 0"),
    (Ended(signal=9, ended_by="silence"), ResultStatus.FAILED, True,
     "its worker stood still, and the command was ended before another would begin it"),
    (Ended(problem="Exec format error"), ResultStatus.FAILED, True, "could not be run: Exec format error"),
    (Ended(problem="too long", hopeless=True), ResultStatus.FAILED, False, "could not be run: too long"),
    (Ended(exit_code=0, ended_by="stop"), ResultStatus.SNOOZED, True, "its worker was stopped"),
])
def test_how_it_ended_decides_what_is_reported(ended, status, retry, error):
    outcome = outcome_of(ended, 60.0)
    assert (outcome.status, outcome.retry, outcome.error) == (status, retry, error)
    assert outcome.retry_in == (0.0 if status is ResultStatus.SNOOZED else None)


def test_what_is_another_workers_now_is_not_reported():
    assert outcome_of(Ended(signal=signal.SIGTERM, ended_by="superseded"), 60.0) is None


def test_the_output_has_the_contracts_fields():
    ended = Ended(exit_code=3, stdout=b"out\xff", stderr=b"err", seconds=1.5)
    assert outcome_of(ended, 60.0).output == {
        "exit_code": 3, "duration_ms": 1500, "stdout": "out\\xff", "stderr": "err",
    }
    assert outcome_of(Ended(signal=6), 60.0).output == {"signal": 6, "duration_ms": 0, "stdout": "", "stderr": ""}
    assert output_so_far(ended) == {"duration_ms": 1500, "stdout": "out\\xff", "stderr": "err"}
