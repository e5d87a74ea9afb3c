"""A stop ends the process in time even if it hangs."""

import os
import signal
import threading

import pytest

from scheduler.domain.errors import Unavailable
from scheduler.ops import interruptible_connect
from scheduler.processes.runtime import Stop

CONTRACT_SECONDS = 5


class Timer:
    """A fake timer; tests call `act` themselves."""

    def __init__(self, seconds, act):
        self.seconds, self.act, self.started = seconds, act, False

    def start(self):
        self.started = True


class Ended(BaseException):
    """Raised instead of ending the process."""


@pytest.fixture
def timers(monkeypatch):
    timers = []

    def make(*arguments):
        timers.append(Timer(*arguments))
        return timers[-1]

    def end(code):
        raise Ended(code)

    monkeypatch.setattr(threading, "Timer", make)
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(interruptible_connect, "_stopping", False)  # restored for the next tests
    return timers


def test_a_process_that_hangs_exits_within_the_seconds_of_the_contract(timers):
    stop = Stop(late_exit_code=69)
    stop._on_signal(signal.SIGTERM)
    assert stop
    with pytest.raises(Unavailable, match="the process stops"):  # it waits for no server
        interruptible_connect.connect_interruptibly(lambda: None)
    [timer] = timers
    assert (timer.started, timer.daemon) == (True, True)
    assert 0 < timer.seconds < CONTRACT_SECONDS
    with pytest.raises(Ended, match="69"):
        timer.act()


def test_a_second_signal_exits_at_once(timers):
    stop = Stop()
    stop._on_signal(signal.SIGINT)
    with pytest.raises(Ended, match=str(128 + signal.SIGTERM)):
        stop._on_signal(signal.SIGTERM)
    assert len(timers) == 1
