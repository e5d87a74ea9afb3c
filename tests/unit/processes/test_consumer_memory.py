"""Reference counting alone frees the objects of a command."""

import gc

import pika
import pytest

from scheduler.commands.parse_deliveries import parse_command_delivery
from scheduler.domain.errors import Rejected
from scheduler.domain.jobs.definition import Incoming
from scheduler.rabbit.delivery_parser import Delivery


@pytest.mark.parametrize("body", [
    b"poison", b"[1]", b'{"id": 5}',
    b'{"id": "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11", "job_type": "t", "rule": "x"}',
    b'{"id": "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11", "job_type": "t", "run_at": "2099-01-01T00:00:00Z"}',
])
def test_a_command_leaves_no_reference_cycle(body):
    def read():
        delivery = Delivery(1, "request", pika.BasicProperties(), body, redelivered=False, size=0)
        delivery.read = parse_command_delivery(delivery, max_payload_bytes=1000)

    def alive():
        """Count only the objects of a command: other threads of the tests leave cycles too."""
        return sum(type(item) in (Delivery, Incoming, Rejected) for item in gc.get_objects())

    read()
    gc.collect()
    gc.disable()
    try:
        before = alive()
        for _ in range(50):
            read()
        assert alive() == before
    finally:
        gc.enable()
