"""Benchmark the next run: by age of DTSTART, compared with dateutil, and for invalid rules.

Compare ratios within one run: the machine is noisy, and absolute times differ between machines.
"""

import json
import statistics
import sys
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from dateutil.rrule import rrulestr

from scheduler.domain.errors import Rejected
from scheduler.domain.recurrence import Spec, compile_schedule, resolve
from scheduler.domain.recurrence.rrule_text import read_text
from scheduler.domain.recurrence.spec import cached_text

NOW = datetime(2026, 9, 14, 13, 0, 30, tzinfo=UTC)
AGES = {"1 day": 1, "1 year": 365, "10 years": 3652}
RULES = {
    "secondly": "FREQ=SECONDLY",
    "minutely": "FREQ=MINUTELY",
    "every 7 minutes, office hours": "FREQ=MINUTELY;INTERVAL=7;BYHOUR=9,10,11,12,13,14,15,16",
    "hourly": "FREQ=HOURLY",
    "daily": "FREQ=DAILY",
    "weekdays": "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=9;BYMINUTE=0",
    "every other week": "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,SU",
    "last workday of the month": "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
    "third Tuesday": "FREQ=MONTHLY;BYDAY=3TU",
    "yearly": "FREQ=YEARLY;BYMONTH=3;BYMONTHDAY=1",
    "29 February": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29",
}
ZONE = "America/New_York"
CASES = Path(__file__).parents[1] / "tests" / "recurrence_cases"


def spec_of(text, days):
    """Return the stored spec of a rule that started `days` ago."""
    start = (NOW - timedelta(days=days)).replace(microsecond=0)
    wall = start.astimezone(UTC).replace(tzinfo=None).isoformat()
    return resolve(run_at=wall, rrule=text, cron=None, every=None, timezone=ZONE, stored_at=NOW)


def best(action, repeat, rounds=7):
    """Return the minimum seconds per call."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(repeat):
            action()
        times.append((time.perf_counter() - began) / repeat)
    return min(times)


def next_run(spec):
    """Compute the next run from the stored row, with a cached rule but a new job."""
    fresh = Spec(spec.rrule, spec.cron, spec.every, spec.timezone, spec.dtstart, spec.starts_at, spec.ends_at)
    return compile_schedule(fresh).next_after(NOW)


def from_text(spec):
    """Compute the next run with only the zone cached."""
    read_text.cache_clear()
    cached_text.cache_clear()
    return next_run(spec)


def judge(case):
    """Return the seconds to reject one invalid rule."""
    fields = dict.fromkeys(("run_at", "rrule", "cron", "every")) | {"timezone": case["tz"]}
    fields[case["kind"]] = case["text"]
    fields["run_at"] = case.get("dtstart")
    began = time.perf_counter()
    try:
        resolve(**fields, stored_at=NOW)
    except Rejected:
        return time.perf_counter() - began
    raise AssertionError(f"{case['id']} was accepted")


def row(name, ours, yardstick, goal, *, ratio, met):
    """Return one result row; times in seconds."""
    return {"name": name, "ours": ours, "yardstick": yardstick, "ratio": ratio, "goal": goal, "met": bool(met)}


def _age_rows():
    rows = []
    for name, text in RULES.items():
        specs = [spec_of(text, days) for days in AGES.values()]
        # Interleaved, so that noise affects all three ages equally.
        rounds = [[best(partial(next_run, spec), 100, 1) for spec in specs] for _ in range(15)]
        times = [min(column) for column in zip(*rounds, strict=True)]
        spread = max(times) / min(times)
        label = f"DTSTART {', '.join(AGES)} ago: {name}"
        rows.append(row(label, max(times), min(times), "within 1.5", ratio=spread, met=spread <= 1.5))
    return rows


def _dateutil(text, start):
    return rrulestr(text, dtstart=start).after(NOW.replace(tzinfo=None))


def _dateutil_rows():
    rows = []
    for name, text in RULES.items():
        spec = spec_of(text, AGES["1 day"])
        # Interleaved, as above.
        actions = (partial(next_run, spec), partial(from_text, spec), partial(_dateutil, text, spec.dtstart))
        turns, rounds = ((50, 20, 1), 2) if name == "secondly" else ((50, 20, 5), 25)
        measured = [[best(*pair, 1) for pair in zip(actions, turns, strict=True)] for _ in range(rounds)]
        ours, cold, dateutil_seconds = (min(column) for column in zip(*measured, strict=True))
        faster = dateutil_seconds / ours
        rows.append(row(f"1 day old: {name}", ours, dateutil_seconds, "no slower", ratio=faster, met=faster >= 1))
        rows.append(row(f"… new rule: {name}", cold, dateutil_seconds, "", ratio=dateutil_seconds / cold, met=True))
    spec = spec_of("FREQ=MINUTELY", AGES["10 years"])
    ours = best(partial(next_run, spec), 100)
    dateutil_seconds = best(partial(_dateutil, spec.rrule, spec.dtstart), 1, 1)
    goal, faster = "10,000 times faster", dateutil_seconds / ours
    rows.append(row("minutely, 10 years old", ours, dateutil_seconds, goal, ratio=faster, met=faster >= 1e4))
    return rows


def _bad_rows():
    with (CASES / "bad.jsonl").open(encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    times = [min(judge(case) for _ in range(3)) for case in cases]
    worst, median = max(times), statistics.median(times)
    return [
        row("invalid rules: the worst", worst, 0.1, "under 100 ms", ratio=0.1 / worst, met=worst < 0.1),
        row("invalid rules: the median", median, 0.005, "under 5 ms", ratio=0.005 / median, met=median < 0.005),
    ]


def run():
    """Return the rows of the recurrence benchmark."""
    return {"recurrence": _age_rows() + _dateutil_rows() + _bad_rows()}


def main():
    """Print the rows as a table."""
    rows = run()["recurrence"]
    print(f"{'':<58} {'ours':>14} {'yardstick':>18} {'ratio':>12}  goal")
    for item in rows:
        ours, yardstick = (f"{item[key] * 1e6:,.1f} µs" for key in ("ours", "yardstick"))
        verdict = "" if not item["goal"] else "met" if item["met"] else "MISSED"
        figures = f"{ours:>14} {yardstick:>18} {item['ratio']:>12,.1f}"
        print(f"{item['name']:<58} {figures}  {item['goal']:<24} {verdict}")
    return 0 if all(item["met"] for item in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
