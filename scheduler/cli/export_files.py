"""Writes finished runs to one file per UTC day. A complete file is never rewritten: an export can be resumed."""

import gzip
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TextIO, cast

from scheduler.domain.runs.run import Run
from scheduler.views.base import in_ascii
from scheduler.views.runs import run_json

DAY = timedelta(days=1)
# A run that finished shortly before midnight may be stored this much later.
SETTLED_AFTER = timedelta(minutes=10)
Export = Callable[[datetime, datetime], Iterable[Run]]


def days(since: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield the parts of a span that are in one UTC day each."""
    since = since.astimezone(UTC)
    while since < until:
        end = min(since.replace(hour=0, minute=0, second=0, microsecond=0) + DAY, until.astimezone(UTC))
        yield since, end
        since = end


def write_days(
    folder: Path, since: datetime, until: datetime, now: datetime, export: Export, *, compress: bool
) -> Iterator[tuple[Path, int]]:
    """Write the missing files of a span, and yield each with its number of runs.

    A day that is not over, or of which the span has only a part, goes into a file named `partial`, which the next
    export writes again. A complete file replaces it. Each file appears under its name when it is complete.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ending = ".jsonl.gz" if compress else ".jsonl"
    for begin, end in days(since, until):
        whole, partial = folder / f"{begin:%Y-%m-%d}{ending}", folder / f"{begin:%Y-%m-%d}.partial{ending}"
        if whole.exists():
            continue
        complete = end - begin == DAY and now - end >= SETTLED_AFTER
        target = whole if complete else partial
        yield target, _write(target, export(begin, end), compress=compress)
        if complete:
            partial.unlink(missing_ok=True)


def _write(target: Path, runs: Iterable[Run], *, compress: bool) -> int:
    unfinished, count = target.with_name(f"{target.name}.tmp"), 0
    with cast(TextIO, (gzip.open if compress else open)(unfinished, "wt", encoding="ascii")) as file:
        for run in runs:
            file.write(in_ascii(run_json(run)) + "\n")
            count += 1
    with unfinished.open("rb") as written:
        os.fsync(written.fileno())
    unfinished.replace(target)
    return count
