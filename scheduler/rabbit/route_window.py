"""Limits the events of a slow route by what their confirms cost the broker."""

MAX_UNCONFIRMED = 50
# A confirm within this time does not distinguish a slow route from a busy broker.
FAST_SECONDS = 0.1
# After a slow confirm the route rests for this many times its duration, so it takes a fifth of the broker's time.
REST_SHARE = 4.0
MAX_REST_SECONDS = 30.0


class RouteWindow:
    """The number of unconfirmed events that a route may have, and when it may have them.

    If many queues are bound to a route, one event costs the broker as much as hundreds of others.
    The window starts at one event, grows with each fast confirm and shrinks to half with each slow one.
    """

    def __init__(self) -> None:
        self._size = 1
        self._resume_at = 0.0

    def has_room(self, unconfirmed: int, now: float) -> bool:
        """Return whether another event may be sent."""
        return unconfirmed < self._size and now >= self._resume_at

    def confirmed(self, seconds: float, now: float) -> None:
        """Record the duration of a confirm."""
        if seconds <= FAST_SECONDS:
            self._size = min(self._size + 1, MAX_UNCONFIRMED)
            return
        self._size = max(1, self._size // 2)
        self._resume_at = max(self._resume_at, now + min(seconds * REST_SHARE, MAX_REST_SECONDS))
