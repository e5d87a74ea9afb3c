"""Commands for calendars: the newest one wins, in any order of arrival."""

from datetime import UTC, date, datetime, timedelta
from itertools import permutations
from json import dumps

import pytest

from scheduler.commands.apply_calendars import _audited
from scheduler.domain.calendars import delete_calendar, store_calendar, valid_until
from scheduler.domain.errors import Rejected
from scheduler.domain.message_parser import parse_command
from scheduler.domain.messages import ScheduleCalendar
from scheduler.domain.recurrence.business_calendar import BusinessCalendar
from tests.call_count import CallCount

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def command(second=None, **fields):
    issued = {} if second is None else {"issued_at": NOW + timedelta(seconds=second)}
    return ScheduleCalendar.model_validate({"name": "de"} | issued | fields)


def store(stored, incoming, now=NOW):
    return store_calendar(stored, incoming, "default", now)


def test_the_newest_command_wins_in_any_order():
    commands = [command(1, weekend=["SA"]), command(3, weekend=["SU"]), command(2), command(3, weekend=["MO"])]
    contents = set()
    for order in permutations(commands):
        stored = None
        for incoming in order:
            stored = store(stored, incoming).calendar
        contents.add((stored.content, stored.issued_at))
    assert len(contents) == 1
    assert NOW + timedelta(seconds=3) in {issued for _, issued in contents}


def test_the_status_tells_a_change_from_a_repetition():
    first = store(None, command(1, closed={"2026-12-25": "X"}))
    assert (first.status, first.calendar.version) == ("stored", 1)
    assert store(first.calendar, command(1, closed={"2026-12-25": "X"})).status == "unchanged"
    again = store(first.calendar, command(5, closed={"2026-12-25": "X"}))
    assert (again.status, again.calendar.version) == ("unchanged", 1)
    assert store(again.calendar, command(3)).status == "superseded"
    changed = store(again.calendar, command(closed={}))
    assert (changed.status, changed.calendar.version) == ("stored", 2)


def test_the_spelling_of_the_content_does_not_matter():
    first = store(None, command(closed={"2026-12-26": "", "2026-12-25": ""}, weekend=["SU", "SA"]))
    other = command(closed={"2026-12-25": "", "2026-12-26": ""}, weekend=["SA", "SU"], open={})
    second = store(first.calendar, other)
    assert second.status == "unchanged"


def test_a_deleted_calendar_supersedes_older_commands():
    stored = store(None, command(1)).calendar
    deleted = delete_calendar(stored, NOW + timedelta(seconds=9))
    assert store(deleted, command(2)).status == "superseded"
    restored = store(deleted, command(10), NOW + timedelta(seconds=10))
    assert (restored.status, restored.calendar.version) == ("stored", 3)


@pytest.mark.parametrize("fields", [
    {"closed": {"2026-02-30": "x"}}, {"valid_until": "tomorrow"}, {"open": {"25.12.2026": "x"}},
    {"closed": {f"{year:04}-01-01": "" for year in range(1, 5002)},
     "open": {f"{year:04}-01-02": "" for year in range(1, 5001)}},
])
def test_an_impossible_content_is_rejected(fields):
    with pytest.raises(Rejected):
        store(None, command(**fields))


@pytest.mark.parametrize("name", ["", 'a "valid_until":\\'])
@pytest.mark.parametrize("last", [None, date(2030, 12, 31)])
def test_the_last_day_of_a_stored_calendar(name, last):
    stored = store(None, command(closed={"2026-12-25": name}, valid_until=last and last.isoformat())).calendar
    assert valid_until(stored.content) == last


def test_many_dates_are_read_and_compared_without_a_call_for_each():
    first = date(2026, 1, 1)
    dates = {(first + timedelta(days=number)).isoformat(): "closed" for number in range(10_000)}
    before = store(None, command(1, closed=dates | {"2026-01-01": "New Year"})).calendar
    body = dumps({"name": "de", "closed": dates, "valid_until": "2060-01-01"}).encode()
    with CallCount() as calls:
        incoming = parse_command("calendar", body, max_payload_bytes=262_144)
        outcome = store(before, incoming.command)
        assert valid_until(outcome.calendar.content) == date(2060, 1, 1)
        after, audited = _audited(outcome.calendar, before)
    assert calls.count < 500
    assert outcome.status == "stored"
    assert '{"2026-01-01": "closed"}' in after
    assert '{"2026-01-01": "New Year"}' in audited


def test_a_rejection_names_the_first_of_many_wrong_dates_and_reads_no_others():
    body = dumps({"name": "de", "closed": {f"2026-1-{number}": "" for number in range(10_000)}}).encode()
    with CallCount() as calls, pytest.raises(Rejected, match=r"; body: and more$") as rejected:
        parse_command("calendar", body, max_payload_bytes=262_144)
    assert calls.count < 500
    assert rejected.value.problems[0].problem == "takes dates such as 2026-12-25, not '2026-1-0'"


def test_a_command_from_a_broken_clock_is_rejected():
    with pytest.raises(Rejected, match="issued_at"):
        store(None, command(100_000))


@pytest.mark.parametrize(("weekend", "closed", "weekdays", "sure"), [
    ([], 26, range(7), True), ([], 27, range(7), False), ([5, 6], 18, range(7), True),
    ([5, 6], 19, range(7), False), ([], 2, [0], True), ([], 3, [0], False),
    ([5, 6], 0, [5], False), (range(7), 0, range(7), False),
])
def test_with_few_closed_dates_every_month_has_an_open_day(weekend, closed, weekdays, sure):
    first = date(2026, 12, 1).toordinal()
    dates = dict.fromkeys([*range(first, first + closed), first + 400], "")
    calendar = BusinessCalendar(frozenset(weekend), dates, {})
    assert calendar.opens_every_month(frozenset(weekdays)) is sure
