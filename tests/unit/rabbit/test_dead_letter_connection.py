"""The connection to scheduler_dead while the broker does not answer."""

import pytest

from scheduler.rabbit import dead_letter_queue
from scheduler.rabbit.dead_letter_queue import DeadLetterQueue
from scheduler.rabbit.link import RabbitUnavailable


def test_a_failed_connect_is_not_retried(monkeypatch):
    attempts = []

    def get_no_answer(how):
        attempts.append(how)
        raise TimeoutError("no reply")

    monkeypatch.setattr(dead_letter_queue, "blocking", get_no_answer)
    with pytest.raises(RabbitUnavailable, match="no reply"):
        DeadLetterQueue(["amqp://guest:guest@127.0.0.1:1/"]).page(10)
    assert len(attempts) == 1
