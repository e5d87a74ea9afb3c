"""The rows of a list of occurrences, with the skipped ones between them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from scheduler.views.occurrences import MovedOccurrenceView, OccurrenceView, PreviewPage, SkippedView

_SKIPS_SHOWN = 3  # in a row


def preview_rows(page: PreviewPage) -> list[dict[str, Any]]:
    """Return occurrences, and before each one the skipped ones: all of a few, otherwise the first and a count."""
    rows: list[dict[str, Any]] = []
    skips = sorted(page.skipped or (), key=lambda skip: datetime.fromisoformat(skip.nominal_at))
    for item in page.items:
        before = [skip for skip in skips if datetime.fromisoformat(skip.nominal_at) < _nominal(item)]
        skips = skips[len(before):]
        rows += [*_skip_rows(before), _row(item)]
    return rows + _skip_rows(skips)


def _nominal(item: OccurrenceView) -> datetime:
    return datetime.fromisoformat(item.nominal_at if isinstance(item, MovedOccurrenceView) else item.utc)


def _skip_rows(skips: Sequence[SkippedView]) -> list[dict[str, Any]]:
    shown = skips if len(skips) <= _SKIPS_SHOWN else skips[:1]
    rows: list[dict[str, Any]] = [{"utc": skip.nominal_at, "note": skip.note, "skipped": True, "instead": None}
                                  for skip in shown]
    if len(shown) < len(skips):
        rows[0]["note"] += f"; and {len(skips) - 1:,} more"
    return rows


def _row(item: OccurrenceView) -> dict[str, Any]:
    moved = isinstance(item, MovedOccurrenceView) and any(mover != "jitter" for mover in item.moved)
    instead = item.nominal_at if isinstance(item, MovedOccurrenceView) and moved else None
    return {"utc": item.utc, "note": item.note, "skipped": False, "instead": instead}
