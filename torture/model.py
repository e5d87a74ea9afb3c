"""The pure model: from the requests that were sent, when each job fires and how each run ends."""

import math
import re
from typing import Any

from torture.history import seconds

SECONDS = {"PT3S": 3.0, "PT1S": 1.0, "PT15M": 900.0}
MOST = 10_000  # the newest instants that are looked at
SCHEDULE = ("run_at", "rrule", "cron", "every", "timezone")


def interval(every: Any) -> float:
    return float(every) if isinstance(every, (int, float)) else SECONDS[every]


def recurs(body: dict[str, Any]) -> bool:
    return any(name in body for name in ("rrule", "cron", "every"))


def instants(body: dict[str, Any], stored: float, until: float) -> list[float]:
    """Return the instants of a request up to `until`; `stored` is the latest time at which it was stored."""
    start = seconds(body.get("run_at"))
    if "every" in body:
        step = interval(body["every"])
        start = stored + step if start is None else start
        count = max(0, math.floor((until - start) / step) + 1)
        return [start + n * step for n in range(max(0, count - MOST), count)]
    if "rrule" in body and (rule := re.fullmatch(r"FREQ=SECONDLY(?:;INTERVAL=(\d+))?;COUNT=(\d+)", body["rrule"])):
        step = float(rule[1] or 1)
        return [at for n in range(int(rule[2])) if (at := start + n * step) <= until]
    if "cron" in body:  # the only rule that is drawn is every minute
        first = math.ceil((stored if start is None else start) / 60) * 60.0
        return [float(at) for at in range(max(int(first), int(until) // 60 * 60 - MOST * 60), int(until) + 1, 60)]
    return [start] if start is not None and start <= until and "rrule" not in body else []


def ends(body: dict[str, Any]) -> bool:
    """Whether the schedule has a last occurrence."""
    return not recurs(body) or "COUNT=" in body.get("rrule", "")


def outcome(behaviour: list[dict[str, Any]], max_attempts: int) -> tuple[str, int]:
    """Return the end of a run and its number of deliveries, if every report arrives in time."""
    counted = 0
    for attempt in range(1, 100_000):
        step = behaviour[min(attempt, len(behaviour)) - 1]
        match step["o"]:
            case "ok":
                return "succeeded", attempt
            case "snooze":
                continue
            case _:
                counted = max_attempts if step["o"] == "giveup" else counted + 1
        if counted >= max_attempts and "again" in step:
            counted = 0  # dead, and retried
        elif counted >= max_attempts:
            return "dead", attempt
    return "open", 0


def least_wait(run: dict[str, Any], counted: int, attempt: int, step: dict[str, Any]) -> float:
    """Return the shortest time that may pass between a report and the next attempt."""
    if "in" in step and step["o"] in {"fail", "snooze"}:
        return float(step["in"])
    backoff = run.get("backoff", "exponential")
    delay, most = run.get("delay", 60), run.get("max_delay", 3600)
    if isinstance(backoff, list):
        return min(float(backoff[min(n, len(backoff)) - 1]) for n in (counted, attempt))
    n = min(counted, attempt)
    return min(most, {"exponential": delay * 2 ** (n - 1), "linear": delay * n, "fixed": delay}[backoff])


def web_outcome(how: str, max_attempts: int, timeout: float) -> tuple[str, int]:
    """Return the end of a webhook run, by its endpoint's path."""
    if how in {"ok", "slow"} or (how == "hang" and timeout > 26):
        return "succeeded", 1
    return "dead", 1 if how == "410" else max_attempts


def issued(record: dict[str, Any]) -> float:
    """Return the issue time of a command: its own `issued_at`, or else the latest possible time of storing."""
    given = record.get("body", {}).get("issued_at")
    if given is None:
        return record.get("answered") or record.get("confirmed") or math.inf
    year = int(given[:4])
    return -math.inf if year < 1900 else math.inf if year > 9000 else seconds(given)
