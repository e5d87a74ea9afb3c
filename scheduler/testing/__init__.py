"""For a host's own tests: a sidecar in the same process, with a clock that the test moves."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scheduler.testing.client import InProcessClient
    from scheduler.testing.sidecar import Sidecar

__all__ = ["InProcessClient", "Sidecar"]

_HOMES = {"InProcessClient": "scheduler.testing.client", "Sidecar": "scheduler.testing.sidecar"}


def __getattr__(name: str) -> Any:
    """Import on first use: pytest loads the plugin beside us in every run, also where nobody needs it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
