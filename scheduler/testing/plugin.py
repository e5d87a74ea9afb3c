"""A pytest plugin, which pytest loads automatically if the package is installed."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from scheduler.testing.sidecar import Sidecar


@pytest.fixture
def scheduler_sidecar() -> "Sidecar":
    """A new sidecar; its clock starts now and moves only when the test moves it."""
    from scheduler.testing.sidecar import Sidecar  # noqa: PLC0415 - most tests of a host do not need it

    return Sidecar()
