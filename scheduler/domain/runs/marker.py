"""Markers in scheduler_results: they show a producer that all earlier results were read."""

from dataclasses import dataclass
from uuid import UUID

MARKER_HEADER = "x-results-marker"


@dataclass(slots=True)
class Marker:
    """A marker as received."""

    id: str

    @property
    def about(self) -> str:
        """The id of the marker."""
        return self.id


def read_marker(header: object) -> Marker | None:
    """Return the marker from a message's header, or None."""
    if not isinstance(header, str):
        return None
    try:
        return Marker(str(UUID(header)))
    except ValueError:
        return None
