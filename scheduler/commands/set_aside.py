"""Messages that cannot be stored yet, because another session has locked their rows."""

from collections.abc import Collection, Iterable

from scheduler.rabbit.delivery_parser import Delivery


class SetAside:
    """Keeps such messages by what they are about, each in the order of delivery, until they are stored."""

    def __init__(self) -> None:
        self._by_id: dict[str, list[Delivery]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_id)

    @property
    def ids(self) -> Collection[str]:
        """What they are about."""
        return self._by_id.keys()

    def add(self, deliveries: Iterable[Delivery]) -> None:
        """Keep messages, behind those about the same."""
        for each in deliveries:
            self._by_id.setdefault(each.read.about, []).append(each)

    def remove(self, deliveries: Iterable[Delivery]) -> None:
        """Forget messages that were stored; of each id the oldest."""
        stored: dict[str, int] = {}
        for each in deliveries:
            stored[each.read.about] = stored.get(each.read.about, 0) + 1
        for about, count in stored.items():
            rest = self._by_id.pop(about)[count:]
            if rest:
                self._by_id[about] = rest

    def next(self, limit: int) -> list[Delivery]:
        """Return up to `limit` messages, of as many ids as possible; the next call begins with others."""
        ids = list(self._by_id)[:limit]
        each_limit = max(1, limit // max(1, len(ids)))
        return [delivery for about in ids for delivery in self._moved_back(about)[:each_limit]]

    def next_id(self, limit: int) -> list[Delivery]:
        """Return up to `limit` messages of one id; the next call begins with others."""
        return self._moved_back(next(iter(self._by_id)))[:limit]

    def _moved_back(self, about: str) -> list[Delivery]:
        found = self._by_id[about] = self._by_id.pop(about)
        return found
