"""A thousand warnings are a few lines, and none is forgotten."""

import logging

import pytest

from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def warning(clock):
    return ThrottledWarning(get_logger("warning"), "it rains", every=10.0, clock=clock)


def warnings(caplog):
    return [record.fields for record in caplog.records if record.levelno == logging.WARNING]


def test_the_first_is_shown_in_full_and_the_rest_is_counted(warning, clock, caplog):
    for drop in range(1000):
        warning.warning(drop=drop)
    assert warnings(caplog) == [{"count": 1, "drop": 0}]
    clock.now = 10.0
    warning.warning(drop=1000)
    assert warnings(caplog)[1:] == [{"count": 1000, "drop": 1000}]


def test_suppressed_warnings_are_flushed(warning, clock, caplog):
    warning.warning(count=3)
    warning.warning(count=4)
    warning.flush()
    assert [each["count"] for each in warnings(caplog)] == [3]
    clock.now = 10.0
    warning.flush()
    warning.flush()
    assert [each["count"] for each in warnings(caplog)] == [3, 4]


def test_each_is_there_at_debug(warning, caplog):
    caplog.set_level(logging.DEBUG, "warning")
    for drop in range(3):
        warning.warning(drop=drop)
    assert [record.fields["drop"] for record in caplog.records] == [0, 1, 2]
    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG", "DEBUG"]
