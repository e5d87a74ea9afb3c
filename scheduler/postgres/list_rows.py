"""What lists of any kind share."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(slots=True)
class ListRow:
    """A thing of a list, by its id, its place there, whose it is and where it stands."""

    id: str
    at: datetime
    tenant: str
    status: str
