"""Pending work in the order of its priority class; each class is first in, first out."""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from scheduler.domain.targets.pools import NORMAL_RANK

Item = TypeVar("Item")

EVERY = 10  # one in ten starts is for the work that has waited longest, so that no class starves


class ClassQueues(Generic[Item]):
    """Items with the time at which each came, by rank; the lowest rank is first. Not thread-safe."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[int, deque[tuple[float, Item]]] = {}  # never empty ones

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __iter__(self) -> Iterator[Item]:
        return (item for queue in self._queues.values() for _, item in queue)

    @property
    def rank(self) -> int:
        """The rank of the first item."""
        return min(self._queues)

    @property
    def lowest(self) -> int:
        """The highest rank; its items come last."""
        return max(self._queues)

    def add(self, at: float, item: Item, rank: int = NORMAL_RANK) -> None:
        """Add an item that came at this time."""
        queue = self._queues.get(rank)
        if queue is None:
            queue = self._queues[rank] = deque()
        queue.append((at, item))

    def ahead(self, rank: int) -> int:
        """Return the number of items before a new one of this rank."""
        return sum(len(queue) for own, queue in self._queues.items() if own <= rank)

    def pop(self, *, longest: bool = False) -> tuple[int, Item]:
        """Remove and return the first item with its rank, or the one that has waited longest."""
        rank = min(self._queues, key=lambda rank: self._queues[rank][0][0]) if longest else min(self._queues)
        queue = self._queues[rank]
        _, item = queue.popleft()
        self._drop_empty(rank)
        return rank, item

    def pop_newest(self) -> tuple[int, Item]:
        """Remove and return the newest item of the lowest class, with its rank."""
        rank = max(self._queues)
        _, item = self._queues[rank].pop()
        self._drop_empty(rank)
        return rank, item

    def pop_before(self, at: float) -> list[tuple[int, Item]]:
        """Remove and return the items that came before this time, the lowest class first."""
        popped = []
        for rank in sorted(self._queues, reverse=True):
            queue = self._queues[rank]
            while queue and queue[0][0] < at:
                popped.append((rank, queue.popleft()[1]))
            self._drop_empty(rank)
        return popped

    @property
    def newest_at(self) -> float:
        """Arrival time of the newest item of the lowest class."""
        return self._queues[max(self._queues)][-1][0]

    @property
    def oldest_at(self) -> float:
        """Arrival time of the oldest item."""
        return min(queue[0][0] for queue in self._queues.values())

    def _drop_empty(self, rank: int) -> None:
        if not self._queues[rank]:
            del self._queues[rank]
