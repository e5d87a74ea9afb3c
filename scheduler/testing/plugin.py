"""A pytest plugin, loaded by itself wherever the package is installed."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from scheduler.testing.sidecar import Sidecar


@pytest.fixture
def scheduler_sidecar() -> "Sidecar":
    """A sidecar of the test's own; its clock starts now and stands still until the test moves it."""
    from scheduler.testing.sidecar import Sidecar  # noqa: PLC0415 - most tests of a host do not need it

    return Sidecar()
