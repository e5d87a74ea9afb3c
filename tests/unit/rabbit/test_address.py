"""Connection parameters from a URL."""

import pytest

from scheduler.rabbit.address import parameters


@pytest.mark.parametrize(("given", "used"), [("4096", 8192), ("8192", 8192), ("65536", 65536)])
def test_a_frame_smaller_than_rabbitmq_4_accepts_is_not_asked_for(given, used):
    assert parameters(f"amqp://u:p@h/?frame_max={given}", "x").frame_max == used
