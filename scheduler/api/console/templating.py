"""The template environment. Values are escaped: they are shown as text, never as markup."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import BaseModel

from scheduler import __version__
from scheduler.api.console import assets, formatting
from scheduler.api.console.adjustment_description import describe_adjustments
from scheduler.api.console.schedule_description import describe_schedule
from scheduler.api.console.targets.forms import target_kind, target_summary
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
_MAX_SHOWN = 200_000
# The format of a browser's time inputs; other values are shown in a text input, so that they are kept.
_TIME = re.compile(r"[0-9]{2}:[0-9]{2}(:[0-9]{2})?")


def environment() -> Environment:
    """Return the environment: all files are escaped, and an unknown name is an error."""
    jinja = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    jinja.globals |= {"asset": assets.address, "version": __version__, "nothing": formatting.NOTHING,
                     "shape": _shape,
                     "problems": {}}
    jinja.filters |= {
        "relative": formatting.relative, "span": formatting.span, "number": formatting.number,
        "short": formatting.short,
        "local": formatting.local, "utc_beside": formatting.utc_beside, "iso": _iso,
        "full": _full, "pretty": _pretty, "schedule": _schedule, "adjustments": _adjustments,
        "duration": _duration,
        "target_kind": target_kind, "target_summary": target_summary,
    }
    jinja.tests |= {"moment_like": formatting.moment_like, "time_like": _TIME.fullmatch}
    return jinja


def _shape(status: str) -> str:
    return SHAPES.get(status, "○")


def _iso(moment: str | datetime) -> str:
    when = formatting.instant(moment)
    return "" if when is None else rfc3339(when.astimezone(UTC))


def _full(moment: str | datetime, zone_name: str | None = None) -> str:
    """Format a moment for a title: in the job's time zone, if it has one, and in UTC."""
    utc = formatting.exactly(moment)
    return utc if zone_name in (None, "UTC") else f"{formatting.local(moment, zone_name)} · {utc}"


def _pretty(value: Any) -> str:
    verbatim = isinstance(value, Verbatim)
    text = value.text if verbatim else json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "\n… cut here"


def _schedule(job: Any) -> str:
    return describe_schedule(job.model_dump() if isinstance(job, BaseModel) else job)


def _adjustments(job: Any) -> str:
    return describe_adjustments(job.model_dump() if isinstance(job, BaseModel) else job)


def _duration(attempt: Any) -> str:
    return formatting.span(formatting.duration_of(attempt.model_dump() if isinstance(attempt,
                                                                                     BaseModel) else attempt))
