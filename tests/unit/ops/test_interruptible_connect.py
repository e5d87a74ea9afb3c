import threading

import pytest
from support import DEADLINE, until

from scheduler.domain.errors import Unavailable
from scheduler.ops import interruptible_connect


class Reached:
    def __init__(self):
        self.closed = threading.Event()

    def close(self):
        self.closed.set()


@pytest.fixture
def running(monkeypatch):
    """The process is not told to stop before, nor any longer afterwards."""
    monkeypatch.setattr(interruptible_connect, "_stopping", False)


@pytest.mark.usefixtures("running")
def test_connect_returns_or_raises():
    reached = Reached()
    assert interruptible_connect.connect_interruptibly(lambda: reached) is reached
    with pytest.raises(ZeroDivisionError):
        interruptible_connect.connect_interruptibly(lambda: 1 / 0)
    assert not interruptible_connect.has_abandoned_connects()


@pytest.mark.usefixtures("running")
def test_a_stop_abandons_connects_and_closes_late_ones():
    answer, found = threading.Event(), Reached()
    problems = []

    def dial():
        answer.wait(DEADLINE)
        return found

    def work():
        with pytest.raises(Unavailable, match="the process stops") as problem:
            interruptible_connect.connect_interruptibly(dial)
        problems.append(problem)

    worker = threading.Thread(target=work)
    worker.start()
    until(lambda: interruptible_connect._awaited, "it waits for the server")
    interruptible_connect.abandon_connects()
    worker.join(DEADLINE)
    assert problems
    assert interruptible_connect.has_abandoned_connects()
    with pytest.raises(Unavailable, match="the process stops"):
        interruptible_connect.connect_interruptibly(Reached)
    answer.set()
    assert found.closed.wait(DEADLINE)
    until(lambda: not interruptible_connect.has_abandoned_connects(), "no thread is inside a driver")
