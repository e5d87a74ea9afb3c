"""The broker's consumer timeout: how long a delivery may stay unacknowledged."""

import re

DEFAULT_SECONDS = 1800.0
MARGIN_SECONDS = 60.0
_value = re.compile(r"acknowledgement on channel \d+ timed out\. Timeout value used: (\d+) ms").search
_SUSPENDED = "within its consumer timeout"  # from link.py, for RabbitMQ 4.3 and later


class ConsumerTimeout:
    """The timeout as far as it is known.

    AMQP has no way to ask for it. It is RabbitMQ's default until the broker ends a consumer over it. RabbitMQ
    before 4.3 names the value in its error; with later versions it is how long the messages were held.
    """

    def __init__(self) -> None:
        self._seconds = DEFAULT_SECONDS

    @property
    def hold_seconds(self) -> float:
        """How long a message may be held before it must be returned to the queue."""
        return self._seconds - min(self._seconds / 2, MARGIN_SECONDS)

    def learn(self, problem: str, held_seconds: float) -> None:
        """Learn the timeout from the error that ended a consumer, if that is the reason."""
        if match := _value(problem):
            self._seconds = max(1.0, int(match[1]) / 1000)
        elif _SUSPENDED in problem and held_seconds:
            self._seconds = max(1.0, min(self._seconds, held_seconds))
