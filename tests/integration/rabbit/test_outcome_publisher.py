"""Rejections are answered through an alarm of the broker, whenever it comes."""

from itertools import count

import pika
import pytest

from scheduler.rabbit.delivery_parser import Delivery
from scheduler.rabbit.link import Link
from scheduler.rabbit.outcome_publisher import CommandReply, OutcomePublisher
from scheduler.rabbit.reply_sender import ReplySender


@pytest.mark.parametrize("moment", [0, 1])
def test_an_alarm_between_dead_letter_and_event_is_waited_for(amqp_url, host, monkeypatch, moment):
    """Treated as a lost connection, it caused dead letters to be sent twice."""
    link, waited = Link(amqp_url, "test"), []
    sender = ReplySender(lambda: Link(amqp_url, "test replies"))

    def wait_for_alarm():
        waited.append(link.blocked)
        link.blocked = False

    try:
        answers, check, checks = OutcomePublisher(link, wait_for_alarm, sender), link.check, count()

        def alarm():
            if next(checks) == moment:
                link.blocked = True  # as the I/O thread does when the broker blocks publishers
            check()

        monkeypatch.setattr(link, "check", alarm)
        replies = host.channel.queue_declare("", exclusive=True).method.queue
        properties = pika.BasicProperties(reply_to=replies)
        raw = b"".join(properties.encode())
        delivery = Delivery(1, "request", properties, b"poison", redelivered=False, size=6, raw=raw)
        published = answers.publish([CommandReply(delivery, "ScheduleRejected", b"{}", "body: is not JSON")])
        assert (published.accepted, published.not_copied, published.refused) == ([delivery], [], [])
    finally:
        sender.close()
        link.close()
    assert waited == [True]
    assert host.get("scheduler_dead")[2] == b"poison"
    assert host.drain("scheduler_dead") == []
    host.get(replies)
