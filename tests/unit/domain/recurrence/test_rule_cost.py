"""Every rule is cheap to validate and to plan. Work is measured in calls, not in time."""

import random
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from scheduler.domain.errors import Rejected
from scheduler.domain.jobs.missed import plan
from scheduler.domain.messages import OnMissed
from scheduler.domain.recurrence import Schedule, Spec, compile_schedule, resolve, zone
from scheduler.domain.recurrence.day_masks import DAY, january_first
from scheduler.domain.recurrence.zones import Clock, clock, clock_in
from tests.call_count import CallCount

NOW = datetime(2026, 11, 18, tzinfo=UTC)
MAX_CALLS = 80_000  # under 10 ms; the defects that these tests are for took several times as many
MAX_CALLS_PLANNING = 200_000  # of a job that missed 126 years: it names the newest 200 runs
ZONES = ("UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe")
STARTS = (
    "0001-01-02T00:00:00", "1900-02-28T23:59:59", "2026-12-01T00:00:00", "2096-02-29T02:30:00",
    "9950-01-01T00:00:00",
)
SECONDS = "3,5,6,7,9,12,14,18,20,21,22,24,26,28,29,30,32,33,35,36,37,39,42,43,45,46,50,54,55,57"
HOURS = "1,2,3,4,5,6,7,8,9,10,11,12,13,15,16,17,18,19,20,21,22,23"
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
HOSTILE = (
    "FREQ=WEEKLY;BYSETPOS=150;BYDAY=MO;BYHOUR=7",
    f"FREQ=WEEKLY;BYHOUR=5;BYMINUTE=6;BYSECOND={SECONDS};BYSETPOS=-201",
    "FREQ=MONTHLY;BYDAY=MO;BYMONTHDAY=-1,-2,-3,-4,-5,-6,-7;BYSETPOS=2",
    f"FREQ=MINUTELY;INTERVAL=61;BYHOUR={HOURS};BYSECOND=7;BYDAY=MO,TU,WE,TH,FR,SA,SU;COUNT=900000007",
    f"FREQ=MINUTELY;INTERVAL=61;BYHOUR={HOURS};BYSECOND=7;BYDAY=MO,TU,WE,TH,FR,SA;COUNT=90000000",
    f"FREQ=MINUTELY;INTERVAL=61;BYHOUR={HOURS};BYSECOND=7;BYDAY=MO,TU,WE,TH,FR,SA;COUNT=1000000",
    "FREQ=MINUTELY;INTERVAL=1441;BYMONTH=1,2,3,4,5,7,8,9,10,11,12;BYMINUTE=47,49,56;COUNT=1000000",
    "FREQ=MINUTELY;INTERVAL=59;BYDAY=TH,SA,SU,WE,FR,TU;BYHOUR=3,5;BYMINUTE=6,9,29;COUNT=864140",
    "FREQ=SECONDLY;INTERVAL=86388;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO;BYHOUR=23;BYMINUTE=5;BYSECOND=59",
    "FREQ=SECONDLY;INTERVAL=7919;BYDAY=MO,TU;COUNT=1000000",
    "FREQ=HOURLY;INTERVAL=7;BYDAY=FR,TH;BYHOUR=0,18;BYMINUTE=45",
    "FREQ=HOURLY;INTERVAL=86401;BYMONTH=1,3,4,5,6,7,8,9,10,11,12;BYSECOND=6,22;COUNT=1000",
    "FREQ=MONTHLY;INTERVAL=86388;BYMONTH=1;BYDAY=TH,FR;BYHOUR=6;COUNT=1000000",
    "FREQ=MONTHLY;INTERVAL=61;BYDAY=TU,FR,MO,TH,WE,SU,SA;BYHOUR=4,6;BYSECOND=19;COUNT=2147483647",
    "FREQ=DAILY;INTERVAL=11;BYMONTHDAY=-31;BYHOUR=0,2,3,4,5,7,8,9;BYMINUTE=34;BYSECOND=56;COUNT=1000000",
    "FREQ=WEEKLY;BYHOUR=1,2,3,4,5;BYSETPOS=-16;COUNT=630942",
)


def judged(rrule: str, run_at: str, timezone: str) -> Spec | None:
    try:
        return resolve(run_at=run_at, rrule=rrule, cron=None, every=None, timezone=timezone, stored_at=NOW)
    except Rejected:
        return None


def random_rule(source: random.Random) -> str:
    """Return a rule made of parts that are each awkward, and worse together."""

    def some(name: str, low: int, high: int, *, negative: bool = False) -> str:
        pool = [*range(low, high + 1), *(range(-high, -low + 1) if negative else ())]
        chosen = source.sample(pool, min(len(pool), source.choice((1, 1, 2, 3, 22, 30))))
        return f"{name}={','.join(map(str, sorted(chosen)))}"

    freq = source.choice(("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"))
    parts = {
        f"INTERVAL={source.choice((2, 7, 59, 61, 365, 1439, 1441, 3601, 86388, 86401, 99991, 2**31 - 1))}": 0.6,
        some("BYMONTH", 1, 12): 0.4,
        some("BYWEEKNO", 1, 53, negative=True): 0.4 * (freq == "YEARLY"),
        some("BYYEARDAY", 1, 366, negative=True): 0.3 * (freq not in ("DAILY", "WEEKLY", "MONTHLY")),
        some("BYMONTHDAY", 1, 31, negative=True): 0.4 * (freq != "WEEKLY"),
        f"BYDAY={','.join(source.sample(WEEKDAYS, source.choice((1, 2, 7))))}": 0.5,
        some("BYHOUR", 0, 23): 0.5,
        some("BYMINUTE", 0, 59): 0.5,
        some("BYSECOND", 0, 59): 0.5,
        some("BYSETPOS", 1, 366, negative=True): 0.3,
        f"COUNT={source.choice((16, 17, 1000, 10**6, 10**9, source.randrange(1, 10**6)))}": 0.5,
    }
    return ";".join([f"FREQ={freq}", *(part for part, odds in parts.items() if source.random() < odds)])


def test_validating_a_hostile_rule_takes_bounded_work():
    source = random.Random(20261118)
    rules = [*HOSTILE, *(random_rule(source) for _ in range(400))]
    worst = (0, "")
    for index, rule in enumerate(rules):
        for start in STARTS if index < len(HOSTILE) else (source.choice(STARTS),):
            timezone = source.choice(ZONES)
            with CallCount(builtins=True) as calls:
                judged(rule, start, timezone)
            worst = max(worst, (calls.count, f"{start} {timezone} {rule}"))
    assert worst[0] < MAX_CALLS, worst


@pytest.mark.parametrize("timezone", ["Europe/Berlin", "America/New_York", "Africa/Casablanca", "Pacific/Apia"])
def test_the_first_rule_of_a_zone_takes_bounded_work(timezone):
    clock_in.cache_clear()
    with CallCount(builtins=True) as calls:
        judged("FREQ=DAILY;COUNT=200000", "1850-01-01T00:00:00", timezone)
    assert calls.count < MAX_CALLS


@pytest.mark.parametrize("name", ["Europe/Berlin", "America/New_York", "Africa/Casablanca", "Asia/Gaza", "UTC"])
def test_the_clock_changes_that_a_file_lists_are_those_that_a_scan_finds(name):
    scanned = Clock(name, zone(name))
    for year in (*range(1840, 2110, 7), 2007, 2037, 2087, 2088, 2400, 9990):
        start, end = january_first(year) * DAY, january_first(year + 1) * DAY
        assert [*clock(name).shifts(start, end)] == [*scanned.shifts(start, end)]


@pytest.mark.parametrize("rule", HOSTILE)
def test_planning_a_hostile_rule_takes_bounded_work(rule):
    spec = judged(rule, "1900-02-28T23:59:59", "Europe/Berlin")
    if spec is None:
        return
    schedule = compile_schedule(spec)
    due = schedule.first()
    assert due is not None
    for on_missed in OnMissed:
        with CallCount(builtins=True) as calls:
            plan(schedule, due, NOW, on_missed, timedelta(days=1), one_shot=False)
        assert calls.count < MAX_CALLS_PLANNING, on_missed


@pytest.mark.parametrize(
    ("rule", "start", "first"),
    [
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO", "2049-01-01T09:00:00", "2072-02-29T09:00:00"),
        ("FREQ=WEEKLY;BYMONTH=2;BYDAY=MO,TU,WE,TH,FR,SA,SU;BYSETPOS=-7", "2026-12-01T09:00:00",
         "2027-02-01T09:00:00"),
        ("FREQ=MONTHLY;BYMONTH=2;BYDAY=SU;BYSETPOS=5", "2026-12-01T09:00:00", "2032-02-29T09:00:00"),
        ("FREQ=YEARLY;BYDAY=MO;BYMONTH=2;BYSETPOS=5", "2049-01-01T09:00:00", "2072-02-29T09:00:00"),
        ("FREQ=SECONDLY;INTERVAL=86401;BYHOUR=5", "2026-12-01T00:00:00", "2076-03-13T05:00:00"),
        ("FREQ=MONTHLY;INTERVAL=13;BYMONTHDAY=29;BYMONTH=2", "2026-12-29T09:00:00", "2068-02-29T09:00:00"),
    ],
)
def test_sparse_rules_fire(rule, start, first):
    spec = judged(rule, start, "UTC")
    assert spec is not None
    assert compile_schedule(spec).first() == datetime.fromisoformat(first).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=YEARLY;INTERVAL=7;COUNT=450", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;COUNT=400",
        "FREQ=WEEKLY;INTERVAL=61;BYDAY=SA,SU;COUNT=1000", "FREQ=MONTHLY;BYDAY=FR;BYSETPOS=-1;COUNT=999",
        "FREQ=WEEKLY;BYDAY=MO,WE;BYHOUR=1,2,3;BYSETPOS=2,-1,6;COUNT=777", "FREQ=DAILY;INTERVAL=97;COUNT=321",
        "FREQ=MINUTELY;INTERVAL=61;BYDAY=MO,WE;BYHOUR=1,2,3,4;COUNT=999",
        "FREQ=SECONDLY;INTERVAL=7919;BYDAY=TU;COUNT=500", "FREQ=HOURLY;INTERVAL=37;BYMONTH=2,3;COUNT=400",
    ],
)
@pytest.mark.parametrize("timezone", ["UTC", "Europe/Berlin"])
def test_the_last_run_by_count_is_exact(rule, timezone):
    spec = judged(rule, "2026-12-01T02:30:00", timezone)
    endless = judged(rule.partition(";COUNT=")[0], "2026-12-01T02:30:00", timezone)
    assert spec is not None
    assert endless is not None
    count = int(rule.partition(";COUNT=")[2])
    runs: list[datetime] = list(islice(_runs(compile_schedule(endless)), count))
    assert spec.ends_at == (runs[-1] if len(runs) == count else None)


def _runs(schedule: Schedule):
    return schedule.since(schedule.starts_at)


def test_the_newest_runs_are_those_that_stepping_finds():
    spec = judged("FREQ=HOURLY;INTERVAL=7;BYDAY=MO,TU,FR", "2001-01-01T00:00:00", "Europe/Berlin")
    assert spec is not None
    schedule = compile_schedule(spec)
    runs = [run for run in islice(_runs(schedule), 20_000) if run <= NOW]
    for limit in (1, 10, 200):
        assert schedule.newest_until(NOW, limit) == runs[-limit:]
