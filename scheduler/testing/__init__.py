"""A sidecar for a host's tests: in the same process, with a clock that the test controls."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scheduler.testing.client import InProcessClient
    from scheduler.testing.sidecar import Sidecar

__all__ = ["InProcessClient", "Sidecar"]

_MODULES = {"InProcessClient": "scheduler.testing.client", "Sidecar": "scheduler.testing.sidecar"}


def __getattr__(name: str) -> Any:
    """Import on first use: pytest loads this package's plugin in every run."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
