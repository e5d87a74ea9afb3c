"""The history of a run: everything sent, received and done, recorded first and checked afterwards."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def digest(value: Any) -> str:
    """Return a short hash of a JSON value, equal for equal values."""
    return hashlib.sha1(json.dumps(value, sort_keys=True).encode(), usedforsecurity=False).hexdigest()[:16]


def seconds(text: str | None) -> float | None:
    """Return an RFC 3339 instant as seconds since 1970."""
    return datetime.fromisoformat(text).timestamp() if text else None


def instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")


class History:
    """Records in the order in which they were made; safe to use from threads."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.began = time.time()
        self.host_reads = True  # whether the host itself takes from `mainapp_due`
        self._lock = threading.Lock()

    def add(self, what: str, **fields: Any) -> Record:
        record = {"what": what, "t": time.time(), **fields}
        with self._lock:
            self.records.append(record)
        return record

    def of(self, *kinds: str) -> Iterator[Record]:
        with self._lock:
            snapshot = list(self.records)
        return (record for record in snapshot if record["what"] in kinds)

    def write(self, path: Path) -> None:
        with path.open("w", encoding="utf-8") as file:
            for record in list(self.records):
                file.write(json.dumps(record, default=str) + "\n")
