"""The templates: everything that is put into one is shown as text, never as markup."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import BaseModel

from scheduler import __version__
from scheduler.api.console import assets, formatting
from scheduler.api.console.schedule_description import in_words
from scheduler.domain.instants import rfc3339
from scheduler.views.base import Verbatim

FOLDER = Path(__file__).resolve().parent / "templates"
SHAPES = {
    "succeeded": "●",
    "emitted": "●",
    "running": "◐",
    "delivered": "○",
    "waiting": "○",
    "failed": "▲",
    "timed_out": "▲",
    "lost": "▲",
    "snoozed": "○",
    "dead": "■",
    "cancelled": formatting.NOTHING,
    "pending": "●",
    "paused": "‖",
    "done": "✓",
    "awaiting": "○",
    "expected": "○",
}
_LONGEST_SHOWN = 200_000
# What a browser's own fields for moments and times take; anything else is shown in a plain field, and so kept.
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?")
_TIME = re.compile(r"[0-9]{2}:[0-9]{2}(:[0-9]{2})?")


def environment() -> Environment:
    """Return the templates' environment: autoescape for every file, and an unknown name is an error."""
    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals |= {"asset": assets.address, "version": __version__, "nothing": formatting.NOTHING,
                     "shape": _shape,
                     "problems": {}}
    made.filters |= {
        "relative": formatting.relative, "span": formatting.span, "number": formatting.number,
        "local": formatting.local, "iso": _iso,
        "full": _full, "pretty": _pretty, "schedule": _schedule, "took": _took,
    }
    made.tests |= {"moment_like": _MOMENT.fullmatch, "time_like": _TIME.fullmatch}
    return made


def _shape(word: str) -> str:
    return SHAPES.get(word, "○")


def _iso(moment: str | datetime) -> str:
    when = formatting.instant(moment)
    return "" if when is None else rfc3339(when.astimezone(UTC))


def _full(moment: str | datetime, zone_name: str | None = None) -> str:
    """Write a moment for a title: in the job's own zone, where it has one, and in UTC."""
    utc = formatting.exactly(moment)
    return utc if zone_name in (None, "UTC") else f"{formatting.local(moment, zone_name)} · {utc}"


def _pretty(value: Any) -> str:
    verbatim = isinstance(value, Verbatim)
    text = value.text if verbatim else json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "\n… cut here"


def _schedule(job: Any) -> str:
    return in_words(job.model_dump() if isinstance(job, BaseModel) else job)


def _took(attempt: Any) -> str:
    return formatting.span(formatting.duration_of(attempt.model_dump() if isinstance(attempt,
                                                                                     BaseModel) else attempt))
