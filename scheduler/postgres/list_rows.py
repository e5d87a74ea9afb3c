"""Rows of lists, for bulk commands."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(slots=True)
class ListRow:
    """Id, position (`at`, id), owner tenant and status of a job or run."""

    id: str
    at: datetime
    tenant: str
    status: str
