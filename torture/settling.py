"""Waits after the faults until nothing is outstanding, or until nothing moves any more."""

import time
from collections.abc import Callable
from typing import Any

from torture.books import Books
from torture.history import History

STUCK_SECONDS = 45.0


def settle(plan: dict[str, Any], history: History, sender: Any, journal: Callable[[], list[dict[str, Any]]], say: Callable[[str], None]) -> None:
    """Return when every job has what it is owed; give up when neither that nor the attempts of open runs change for long."""
    longest = plan.get("settle", 150.0)
    began = changed = time.time()
    before: tuple[dict[str, str], int] | None = None
    while True:
        now = time.time()
        books = Books(history)
        owed = books.outstanding(journal())
        if not owed and not sender.waiting:
            break
        if (state := (owed, books.attempts(owed))) != before:
            before, changed = state, now
        if now - changed > STUCK_SECONDS or now - began > longest:
            say(f"    not settled after {now - began:.0f} s: {len(owed)} jobs owe something")
            break
        time.sleep(min(10.0, max(1.0, 2 * (time.time() - now))))
    time.sleep(1.0)  # whatever comes without being asked for would come now
    history.add("settled", owed=len(owed))
