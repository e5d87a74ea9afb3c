"""Hold messages whose rows another session has locked."""

import time
from collections import Counter
from collections.abc import Collection, Iterable

from scheduler.rabbit.delivery_parser import Delivery


class SetAside:
    """Messages by the id of their job or run, in order of delivery."""

    def __init__(self) -> None:
        self._by_id: dict[str, list[Delivery]] = {}
        self._since: dict[str, float] = {}  # when the first message of each id was added; oldest first

    def __bool__(self) -> bool:
        return bool(self._by_id)

    @property
    def ids(self) -> Collection[str]:
        """Ids of the messages' jobs and runs."""
        return self._by_id.keys()

    @property
    def held_seconds(self) -> float:
        """How long at most a message has been held; 0 if there is none."""
        return time.monotonic() - next(iter(self._since.values())) if self._since else 0.0

    def add(self, deliveries: Iterable[Delivery]) -> None:
        """Append messages to those with the same id."""
        now = time.monotonic()
        for delivery in deliveries:
            self._by_id.setdefault(delivery.read.about, []).append(delivery)
            self._since.setdefault(delivery.read.about, now)

    def remove(self, deliveries: Iterable[Delivery]) -> None:
        """Remove stored messages, which are the oldest of each id."""
        for about, count in Counter(delivery.read.about for delivery in deliveries).items():
            rest = self._by_id.pop(about)[count:]
            if rest:
                self._by_id[about] = rest
            else:
                del self._since[about]

    def next(self, limit: int) -> list[Delivery]:
        """Return up to `limit` messages with as many ids as possible; the next call starts with other ids."""
        ids = list(self._by_id)[:limit]
        limit_per_id = max(1, limit // max(1, len(ids)))
        return [delivery for about in ids for delivery in self._move_to_end(about)[:limit_per_id]]

    def next_id(self, limit: int) -> list[Delivery]:
        """Return up to `limit` messages of one id; the next call starts with another id."""
        return self._move_to_end(next(iter(self._by_id)))[:limit]

    def _move_to_end(self, about: str) -> list[Delivery]:
        deliveries = self._by_id[about] = self._by_id.pop(about)
        return deliveries
