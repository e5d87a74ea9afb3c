"""The names of the form's fields, and what its lists offer."""

from scheduler.api.console.date_description import WEEKDAYS
from scheduler.api.console.formatting import ordinal

_WHAT = ("job_type", "name", "tenant", "priority", "on_missed", "max_lateness", "route", "payload")
_WHEN = (
    "when", "run_at", "starts", "timezone", "every_count", "every_unit", "days_count", "days_unit", "at", "month",
    "place", "place_of", "rule_kind", "rule", *(f"weekday_{day}" for day in range(len(WEEKDAYS))),
)
_THEN = ("then", "url", "method", "headers", "secret", "hook_timeout", "body", "command", "arguments")
_FAILS = ("tracked", "max_attempts", "delay", "backoff", "run_timeout", "overlap")
NAMES = (*_WHAT, *_WHEN, *_THEN, *_FAILS)

# Which day of a month: 1st to 31st, and from its end.
PLACES = [(str(number), ordinal(number)) for number in (*range(1, 32), -1, -2)]
PLACE_OF = [("day", "day"), ("weekday", "weekday (Mon to Fri)"), *((name[:2].upper(), name) for name in WEEKDAYS)]
