"""Every fault by name, in the order of the suite."""

from collections.abc import Callable
from dataclasses import dataclass

from chaos.account import Result
from scheduler.dev.servers import Stack

Run = Callable[[Stack, Result, float], None]


@dataclass(frozen=True)
class Fault:
    """A name, a sentence, and what to do; the last argument scales the durations (1 is the full suite)."""

    name: str
    title: str
    run: Run


FAULTS: dict[str, Fault] = {}


def fault(name: str, title: str) -> Callable[[Run], Run]:
    """Register a fault."""

    def register(run: Run) -> Run:
        FAULTS[name] = Fault(name, title, run)
        return run

    return register
