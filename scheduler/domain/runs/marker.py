"""A marker: a message in scheduler_results by which a producer learns that all results before it were read."""

from dataclasses import dataclass
from uuid import UUID

MARKER_HEADER = "x-results-marker"


@dataclass(slots=True)
class Marker:
    """A marker as a consumer reads it."""

    id: str

    @property
    def about(self) -> str:
        """The id of the marker."""
        return self.id


def read_marker(header: object) -> Marker | None:
    """Return the marker that a message's header names, None if it names none."""
    if not isinstance(header, str):
        return None
    try:
        return Marker(str(UUID(header)))
    except ValueError:
        return None
