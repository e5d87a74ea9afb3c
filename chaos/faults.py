"""Registry of faults by name, in the order of the suite."""

from collections.abc import Callable
from dataclasses import dataclass

from chaos.account import Result
from scheduler.dev.servers import Stack

Run = Callable[[Stack, Result, float], None]


@dataclass(frozen=True)
class Fault:
    """A fault with its name, title and function. The function's last argument scales durations (1: full suite)."""

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
