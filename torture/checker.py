"""Checks a history against the model: every rule yields its violations."""

import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torture.books import Books
from torture.history import History, Record

DISRUPTIVE = {"kill", "stop_gently", "freeze", "cut", "partition", "broker", "database", "slow"}
RULES: list[Callable[["Case"], Iterator["Violation"]]] = []


@dataclass
class Violation:
    """One broken promise; `rule` is its kind."""

    rule: str
    text: str
    jobs: list[str] = field(default_factory=list)


def rule(function: Callable[["Case"], Iterator[Violation]]) -> Callable[["Case"], Iterator[Violation]]:
    RULES.append(function)
    return function


class Case:
    """A history with what rules ask of it: books, faults, and time that counts."""

    def __init__(self, plan: dict[str, Any], history: History, code: Path) -> None:
        self.plan = plan
        self.history = history
        self.code = code
        self.books = Books(history)
        self.faults = [r for r in history.of("fault") if "problem" not in r]
        self.ticks = list(history.of("tick"))
        self._times = [tick["t"] for tick in self.ticks]
        self.end = max((r["t"] for r in history.of("settled")), default=history.records[-1]["t"])
        self.last = max((r["t"] for r in history.of("due", "missed", "finished")), default=self.end)

    def disturbed(self, begin: float, end: float, after: float = 60.0, kinds: set[str] = DISRUPTIVE) -> bool:
        """Whether such a fault was active in this time, or at most `after` seconds before it."""
        return any(f["kind"] in kinds and f["t"] <= end and f.get("ended", end) + after >= begin for f in self.faults)

    @property
    def exactly_once(self) -> bool:
        """Whether nothing kept a producer from settling what it had published; otherwise it may publish it again."""
        starved = max((tick["late"] for tick in self.ticks), default=0.0) > 3
        return not starved and not any(f["kind"] in DISRUPTIVE and concerns(f, {"producer"}) for f in self.faults)

    def faults_in(self, begin: float, end: float, after: float = 0.0) -> list[Record]:
        return [f for f in self.faults if f["t"] <= end and f.get("ended", end) + after >= begin]

    def counted(self, begin: float, end: float) -> float:
        """Seconds between two times in which both servers answered and this machine let the harness run."""
        low, high = bisect.bisect_left(self._times, begin), bisect.bisect_right(self._times, end)
        good = 0.0
        for tick in self.ticks[low:high]:
            if tick["late"] < 0.15 and tick["database"] < 1.5 and tick["broker"] < 1.5:
                good += 0.25 + tick["late"]
        return good


def victim(fault: Record) -> str:
    """Return the member or role that a fault is about."""
    return (fault.get("who") or fault.get("link", "*")).split("/")[0]


def concerns(fault: Record, roles: set[str]) -> bool:
    """Whether a fault affects one of these roles or a server."""
    role = victim(fault).split("-")[0].rstrip("*")
    return fault["kind"] in {"broker", "database"} or role in {"", "all"} or role in roles


def judge(plan: dict[str, Any], history: History, code: Path) -> list[Violation]:
    """Return every violation, the gravest rules first, at most five of a kind."""
    case = Case(plan, history, code)
    found: list[Violation] = []
    for each in RULES:
        found.extend(each(case))
    kept: dict[str, list[Violation]] = {}
    for violation in found:
        kept.setdefault(violation.rule, []).append(violation)
    for violations in kept.values():
        if len(violations) > 5:
            violations[4] = Violation(violations[4].rule, f"and {len(violations) - 4} more of this kind",
                                      [job for v in violations[4:] for job in v.jobs])
            del violations[5:]
    return [violation for violations in kept.values() for violation in violations]
