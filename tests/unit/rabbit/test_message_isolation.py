"""The record of messages over which the broker closes channels."""

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
    isolation = MessageIsolation()
    isolation.closed(TOO_LARGE.format(words), [message(1), message(2)])
    assert (isolation.max_body, isolation.one_at_a_time, isolation.any_suspended) == (10000, 0, False)
    isolation.closed("RabbitMQ at h:1: ConnectionClosedByBroker: (320, 'CONNECTION_FORCED')", [message(1)])
    assert isolation.max_body == NO_LIMIT
    assert not isolation.any_suspended


@pytest.mark.parametrize("why", [
    'StreamLostError: ("Stream connection lost",)', "ConnectionClosedByBroker: (320, 'CONNECTION_FORCED')",
    "ChannelClosedByBroker: (404, \"NOT_FOUND - no exchange 'schedule.events' in vhost '/'\")",
])
def test_no_message_is_blamed_for_an_outage(why):
    isolation = MessageIsolation()
    isolation.closed(why, [message(1)])
    isolation.closed(why, [message(1), message(2)])
    assert (isolation.one_at_a_time, isolation.problem(message(1))) == (0, None)


def test_messages_are_isolated_one_at_a_time_with_growing_suspension():
    now = [0.0]
    isolation = MessageIsolation(lambda: now[0])
    isolation.closed(REFUSED, [message(1), message(2), message(3)])
    assert isolation.one_at_a_time == 3
    for seconds in (60, 120, 240):
        isolation.closed(REFUSED, [message(2)])
        assert "ACCESS_REFUSED" in isolation.problem(message(2))
        assert isolation.problem(message(1)) is None
        now[0] += seconds - 1
        assert isolation.problem(message(2))
        now[0] += 1
        assert isolation.problem(message(2)) is None


def test_what_is_remembered_is_bounded():
    isolation = MessageIsolation()
    for number in range(1500):
        isolation.closed(REFUSED, [message(number)])
    assert len(isolation._suspended) == 1000
    assert isolation.problem(message(1499))
