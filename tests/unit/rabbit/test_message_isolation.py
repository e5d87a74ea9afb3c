"""What a process learns from channels that the broker closes over messages."""

import pytest

from scheduler.rabbit.frames import NO_LIMIT, DueMessage
from scheduler.rabbit.message_isolation import MessageIsolation

TOO_LARGE = ("RabbitMQ at h:1 closed the channel: ChannelClosedByBroker: (406, 'PRECONDITION_FAILED - message "
             "size 20000 is larger than {} size 10000')")
REFUSED = "ChannelClosedByBroker: (403, 'ACCESS_REFUSED - access to topic')"


def message(number):
    return DueMessage(b"{}", f"event {number}", 0)


@pytest.mark.parametrize("words", ["max", "configured max"])
def test_the_limit_of_the_broker_is_learned_until_its_connection_is_lost_for_another_reason(words):
    known = MessageIsolation()
    known.closed(TOO_LARGE.format(words), [message(1), message(2)])
    assert (known.max_body, known.one_at_a_time, known.shuns_any) == (10000, 0, False)
    known.closed("RabbitMQ at h:1: ConnectionClosedByBroker: (320, 'CONNECTION_FORCED')", [message(1)])
    assert known.max_body == NO_LIMIT
    assert not known.shuns_any


@pytest.mark.parametrize("why", [
    'StreamLostError: ("Stream connection lost",)', "ConnectionClosedByBroker: (320, 'CONNECTION_FORCED')",
    "ChannelClosedByBroker: (404, \"NOT_FOUND - no exchange 'schedule.events' in vhost '/'\")",
])
def test_no_message_is_blamed_for_an_outage(why):
    known = MessageIsolation()
    known.closed(why, [message(1)])
    known.closed(why, [message(1), message(2)])
    assert (known.one_at_a_time, known.problem(message(1))) == (0, None)


def test_messages_go_one_at_a_time_until_one_is_found_and_that_one_is_tried_ever_more_rarely():
    now = [0.0]
    known = MessageIsolation(lambda: now[0])
    known.closed(REFUSED, [message(1), message(2), message(3)])
    assert known.one_at_a_time == 3
    for seconds in (60, 120, 240):
        known.closed(REFUSED, [message(2)])
        assert "ACCESS_REFUSED" in known.problem(message(2))
        assert known.problem(message(1)) is None
        now[0] += seconds - 1
        assert known.problem(message(2))
        now[0] += 1
        assert known.problem(message(2)) is None


def test_what_is_remembered_is_bounded():
    known = MessageIsolation()
    for number in range(1500):
        known.closed(REFUSED, [message(number)])
    assert len(known._shunned) == 1000
    assert known.problem(message(1499))
