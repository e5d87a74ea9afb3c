import threading

import pytest
from support import DEADLINE, until

from scheduler.domain.errors import Unavailable
from scheduler.ops import reaching


class Reached:
    def __init__(self):
        self.closed = threading.Event()

    def close(self):
        self.closed.set()


@pytest.fixture
def running(monkeypatch):
    """The process is not told to stop before, nor any longer afterwards."""
    monkeypatch.setattr(reaching, "_told_to_stop", False)


@pytest.mark.usefixtures("running")
def test_what_is_reached_is_returned_and_what_fails_is_raised():
    found = Reached()
    assert reaching.reach(lambda: found) is found
    with pytest.raises(ZeroDivisionError):
        reaching.reach(lambda: 1 / 0)
    assert not reaching.left_behind()


@pytest.mark.usefixtures("running")
def test_a_stop_waits_for_no_server_and_closes_what_comes_too_late():
    answer, found = threading.Event(), Reached()
    problems = []

    def dial():
        answer.wait(DEADLINE)
        return found

    def work():
        with pytest.raises(Unavailable, match="the process stops") as problem:
            reaching.reach(dial)
        problems.append(problem)

    worker = threading.Thread(target=work)
    worker.start()
    until(lambda: reaching._awaited, "it waits for the server")
    reaching.give_up()
    worker.join(DEADLINE)
    assert problems
    assert reaching.left_behind()
    with pytest.raises(Unavailable, match="the process stops"):
        reaching.reach(Reached)
    answer.set()
    assert found.closed.wait(DEADLINE)
    until(lambda: not reaching.left_behind(), "nobody is inside a driver")
