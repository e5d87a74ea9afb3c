"""The names of the form's fields, and the options of its lists."""

from scheduler.api.console import adjustment_form
from scheduler.api.console.date_description import WEEKDAYS
from scheduler.api.console.formatting import ordinal
from scheduler.api.console.targets.forms import INPUTS

_WHAT = (
    "job_type", "name", "description", "paused", "tenant", "priority", "on_missed", "max_lateness", "route",
    "payload",
)
_WHEN = (
    "when", "run_at", "starts", "timezone", "every_count", "every_unit", "days_count", "days_unit", "at", "month",
    "place", "place_of", "rule_kind", "rule", *(f"weekday_{day}" for day in range(len(WEEKDAYS))),
)
_FAILS = ("tracked", "max_attempts", "delay", "backoff", "run_timeout", "overlap", "max_running")
NAMES = (*_WHAT, *_WHEN, *adjustment_form.INPUTS, "then", *INPUTS, *_FAILS)

# Days of a month: 1st to 31st, and counted from its end.
PLACES = [(str(number), ordinal(number)) for number in (*range(1, 32), -1, -2)]
PLACE_OF = [("day", "day"), ("weekday", "weekday (Mon to Fri)"), *((name[:2].upper(), name) for name in WEEKDAYS)]
ON_CLOSED = [
    ("skip", "skip the occurrence"), ("next", "move to the next open day"),
    ("previous", "move to the open day before"), ("nearest", "move to the nearest open day"),
    ("next_in_month", "move, but stay in the month"),
]
