"""Strips, timelines and calendars: what is drawn where."""

from datetime import UTC, date, datetime, timedelta

from scheduler.api.console import run_charts
from scheduler.api.console.year_calendar import CELL, WEEKS, build_year
from scheduler.api.console.year_plan import YearPlan
from scheduler.domain.recurrence import compile_schedule, resolve

NOW = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)


def run(status, minutes_ago, seconds=1.0, **more):
    due = NOW - timedelta(minutes=minutes_ago)
    return {"event_id": f"e{minutes_ago}", "status": status, "due_at": due.isoformat(), "attempt": 1,
            "started_at": due.isoformat(), "finished_at": (due + timedelta(seconds=seconds)).isoformat()} | more


def test_the_strip_has_the_oldest_first_and_the_longest_highest():
    bars = run_charts.run_bars([run("succeeded", 1, 10), run("dead", 2, 1, attempt=3), run("succeeded", 3, 0.01)],
                            "UTC")
    assert [bar.x for bar in bars] == [0, 12, 24]
    assert bars[0].height < bars[1].height < bars[2].height
    assert (bars[1].kind, bars[1].mark, bars[1].href) == ("dead", "■", "/runs/e2")
    assert bars[1].title == "dead: Tue 17 Nov 2026 11:58 UTC, took 1 s, attempt 3"
    assert all(bar.y + bar.height == run_charts.STRIP_HEIGHT for bar in bars)


def test_the_strip_shows_the_newest_fifty_and_bears_runs_that_have_not_begun():
    runs = [run("delivered", n, started_at=None, finished_at=None) for n in range(70)]
    bars = run_charts.run_bars(runs, "UTC")
    assert (len(bars), bars[-1].href) == (50, "/runs/e0")
    assert run_charts.run_bars([], "UTC") == []
    assert run_charts.lateness(runs) == []


def test_lateness_is_from_due_to_the_first_sign_of_work():
    late = run("succeeded", 1)
    late["started_at"] = (NOW - timedelta(minutes=1) + timedelta(seconds=2)).isoformat()
    assert run_charts.lateness([late]) == [(0, 16.0, "started 2 s after it was due")]


def test_a_timeline_has_every_attempt_and_the_one_to_come():
    attempts = [
        {"attempt": 1, "outcome": "failed", "started_at": (NOW - timedelta(seconds=60)).isoformat(),
         "finished_at": (NOW - timedelta(seconds=50)).isoformat()},
        {"attempt": 2, "outcome": "timed_out", "started_at": None,
         "finished_at": (NOW - timedelta(seconds=20)).isoformat()},
    ]
    waiting = run("waiting", 1, attempts=attempts, attempt=2, retry_at=(NOW + timedelta(seconds=40)).isoformat())
    pieces = run_charts.timeline(waiting, NOW)
    assert [(piece.kind, piece.label) for piece in pieces] == [
        ("failed", "1"),
        ("timed_out", "2"),
        ("planned", ""),
    ]
    assert pieces[0].x == 0
    assert pieces[0].width == 100.0  # 10 of 100 seconds
    assert pieces[1].x == 100.0  # it may have begun when the first had ended
    assert all(piece.x + piece.width <= run_charts.TIMELINE_WIDTH for piece in pieces)
    assert "timed out" in pieces[1].title


def test_a_short_last_attempt_is_seen_too():
    due = NOW - timedelta(seconds=60)
    attempts = [{"attempt": 1, "outcome": "succeeded", "started_at": NOW.isoformat(),
                 "finished_at": (NOW + timedelta(milliseconds=3)).isoformat()}]
    [piece] = run_charts.timeline({"due_at": due.isoformat(), "status": "succeeded", "attempts": attempts}, NOW)
    assert (piece.x + piece.width, piece.width) == (run_charts.TIMELINE_WIDTH, 8.0)


def test_a_running_attempt_extends_to_now():
    [piece] = run_charts.timeline(run("running", 1, attempts=[], finished_at=None), NOW)
    assert (piece.kind, piece.x, piece.width) == ("running", 0.0, 1000.0)


def test_a_year_shows_the_past_by_outcome_and_the_future_as_planned():
    spec = resolve(run_at=None, rrule="FREQ=WEEKLY;BYDAY=FR;BYHOUR=9;BYMINUTE=0;BYSECOND=0", cron=None, every=None,
                   timezone="Europe/Berlin", stored_at=NOW - timedelta(days=30))
    past = {date(2026, 11, 13): {"succeeded": 1}, date(2026, 11, 6): {"dead": 1}, date(2026, 10, 30): {
        "dead": 1, "succeeded": 2}, date(2026, 11, 17): {"running": 1}}
    shown = build_year(past, YearPlan(compile_schedule(spec)), "Europe/Berlin", NOW)
    days = {day.title.split(":")[0]: day for day in shown.days}
    assert len(shown.days) == WEEKS * 7
    assert days["Fri 13 Nov 2026"].kind == "good"
    assert days["Fri 6 Nov 2026"].kind == "bad"
    assert days["Fri 30 Oct 2026"].kind == "mixed"
    assert days["Tue 17 Nov 2026"].kind == "open"
    assert days["Tue 17 Nov 2026"].today
    assert days["Fri 20 Nov 2026"].title == "Fri 20 Nov 2026: 1 run planned"
    assert days["Fri 20 Nov 2026"].kind == "planned"
    assert days["Sat 21 Nov 2026"].title == "Sat 21 Nov 2026: nothing"
    assert [name for name, day in days.items() if day.clocks] == ["Sun 25 Oct 2026", "Sun 28 Mar 2027"]
    assert days["Fri 20 Nov 2026"].y == 4 * CELL
    assert len(shown.months) == 12


def test_a_year_bears_a_schedule_that_fires_every_second():
    spec = resolve(run_at=None, rrule="FREQ=SECONDLY", cron=None, every=None, timezone=None, stored_at=NOW)
    shown = build_year({}, YearPlan(compile_schedule(spec)), "UTC", NOW)
    assert shown.days[-1].title.endswith("86,400 runs planned")
