"""The consumer timeout is learned from the broker's message when it closes a consumer."""

from scheduler.rabbit.consumer_timeout import ConsumerTimeout
from scheduler.rabbit.link import _cancelled

CLOSED = ("RabbitMQ at h:5672 closed the channel: ChannelClosedByBroker: (406, 'PRECONDITION_FAILED - delivery "
          "acknowledgement on channel 2 timed out. Timeout value used: {} ms. This timeout value can be …')")


def test_the_default_is_taken_until_the_broker_names_a_value():
    timeout = ConsumerTimeout()
    assert timeout.hold_seconds == 1740
    timeout.learn("RabbitMQ at h:5672: ConnectionClosedByBroker: (320, 'CONNECTION_FORCED')", held_seconds=5)
    assert timeout.hold_seconds == 1740
    timeout.learn(CLOSED.format(300_000), held_seconds=0)
    assert timeout.hold_seconds == 240
    timeout.learn(CLOSED.format(6000), held_seconds=0)
    assert timeout.hold_seconds == 3


def test_rabbitmq_4_3_names_no_value():
    timeout = ConsumerTimeout()
    timeout.learn(_cancelled("scheduler_inbox", None), held_seconds=0)  # nothing was held: its node is gone
    assert timeout.hold_seconds == 1740
    timeout.learn(_cancelled("scheduler_inbox", None), held_seconds=60)
    assert timeout.hold_seconds == 30
