"""iCalendar files: which days their all-day events close, and which errors are found in which line."""

from datetime import date

import pytest

from scheduler.domain.icalendar import InvalidFile, read_icalendar


def calendar(*events, ending="\r\n"):
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0"]
    for event in events:
        lines += ["BEGIN:VEVENT", *event, "END:VEVENT"]
    return ending.join([*lines, "END:VCALENDAR", ""])


def read(*events, **options):
    return read_icalendar(calendar(*events, **options), 2026)


def days(*events):
    return {day.isoformat(): name for day, name in read(*events).days.items()}


def test_all_day_events_close_their_days():
    assert days(
        ["DTSTART;VALUE=DATE:20261225", "SUMMARY:Christmas\\, day\\none"],
        ["DTSTART;VALUE=DATE:20261228", "DTEND;VALUE=DATE:20261231", "SUMMARY:Inventory"],
        ["DTSTART;VALUE=DATE:20270201", "DURATION:P2D"],
        ["DTSTART;VALUE=DATE:20270301", "DURATION:P1W", "SUMMARY;LANGUAGE=en:Week"],
    ) == {
        "2026-12-25": "Christmas, day one", "2026-12-28": "Inventory", "2026-12-29": "Inventory",
        "2026-12-30": "Inventory", "2027-02-01": "", "2027-02-02": "",
    } | {f"2027-03-0{day}": "Week" for day in range(1, 8)}


def test_rules_dates_and_exceptions_apply():
    closed = days(
        ["UID:1", "DTSTART;VALUE=DATE:20260101", "RRULE:FREQ=YEARLY;COUNT=4", "EXDATE;VALUE=DATE:20270101",
         "RDATE;VALUE=DATE:20260704,20270704", "SUMMARY:A"],
        ["UID:1", "RECURRENCE-ID;VALUE=DATE:20280101", "DTSTART;VALUE=DATE:20280103", "SUMMARY:Moved"],
        ["UID:2", "DTSTART;VALUE=DATE:20260501", "RRULE:FREQ=YEARLY;UNTIL=20280501", "SUMMARY:B"],
        ["UID:2", "RECURRENCE-ID;VALUE=DATE:20270501", "DTSTART;VALUE=DATE:20270501", "STATUS:CANCELLED"],
    )
    assert closed == {"2026-01-01": "A", "2026-07-04": "A", "2027-07-04": "A", "2028-01-03": "Moved",
                      "2029-01-01": "A", "2026-05-01": "B", "2028-05-01": "B"}


def test_an_endless_rule_ends_with_the_fifth_year_from_this_one():
    found = read(["DTSTART;VALUE=DATE:20201225", "RRULE:FREQ=YEARLY", "SUMMARY:Christmas"]).days
    assert (min(found), max(found), len(found)) == (date(2020, 12, 25), date(2031, 12, 25), 12)


def test_the_first_day_counts_even_if_the_rule_does_not_match_it():
    assert list(days(["DTSTART;VALUE=DATE:20261223", "RRULE:FREQ=YEARLY;BYMONTHDAY=25;BYMONTH=12;COUNT=1"])) == [
        "2026-12-23", "2026-12-25"]


def test_events_with_a_time_and_cancelled_ones_are_counted():
    parsed = read(["DTSTART;VALUE=DATE:20261225"], ["DTSTART:20261224T180000Z"],
                 ["DTSTART;TZID=Europe/Berlin:20261224T180000"],
                 ["DTSTART;VALUE=DATE:20261226", "STATUS:CANCELLED"])
    assert (list(parsed.days), parsed.timed, parsed.cancelled) == ([date(2026, 12, 25)], 2, 1)


def test_folded_lines_other_components_and_line_ends_are_read():
    text = calendar(["SUMMARY:Christ", " mas", "DTSTART;VALUE=DATE:20261225", "BEGIN:VALARM", "TRIGGER:-PT15M",
                     "END:VALARM"], ending="\n")
    text = text.replace("BEGIN:VEVENT", "BEGIN:VTODO\nUID:x\nEND:VTODO\nBEGIN:VEVENT")
    assert read_icalendar("\ufeff" + text, 2026).days == {date(2026, 12, 25): "Christmas"}


@pytest.mark.parametrize(("text", "line", "problem"), [
    ("", 1, "BEGIN:VCALENDAR, is missing"),
    ("hello\n", 1, "is not NAME:VALUE"),
    ("DTSTART:20261225\n", 1, "begins with BEGIN:VCALENDAR"),
    (calendar(["DTSTART;VALUE=DATE:20260230"]), 4, "does not exist"),
    (calendar(["DTSTART;VALUE=DATE:2026-02-01"]), 4, "must be a date"),
    (calendar(["SUMMARY:x"]), 3, "no DTSTART"),
    (calendar(["DTSTART;VALUE=DATE:20260201"]).replace("END:VEVENT\r\n", ""), 5, "does not match"),
    ("BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:20260201\n", 3, "END:VEVENT is missing"),
    (calendar(["DTSTART;VALUE=DATE:20260201", "RRULE:FREQ=SOMETIMES"]), 5, "RRULE"),
    (calendar(["DTSTART;VALUE=DATE:20260201", "RRULE:FREQ=DAILY;INTERVAL=0"]), 5, "RRULE"),
    (calendar(["DTSTART;VALUE=DATE:20260201", "DTEND;VALUE=DATE:20260101"]), 5, "DTEND"),
    (calendar(["DTSTART;VALUE=DATE:20260201", "DURATION:PT5H"]), 5, "DURATION"),
    (calendar(["DTSTART;VALUE=DATE:00010101", "RRULE:FREQ=DAILY;UNTIL=99991231"]), 3, "more than 10,000 days"),
    (calendar(["DTSTART:20261224T180000Z"]), 1, "no all-day event"),
    (calendar(["DTSTART;VALUE=DATE:20260201", "DTSTART;VALUE=DATE:20260202"]), 5, "more than one DTSTART"),
    (calendar(["DTSTART;VALUE=DATE:20260201", "RECURRENCE-ID;RANGE=THISANDFUTURE:20260201"]), 5, "RANGE"),
])
def test_an_error_names_its_line(text, line, problem):
    with pytest.raises(InvalidFile, match=problem) as caught:
        read_icalendar(text, 2026)
    assert caught.value.line == line


def test_an_endless_rule_that_crosses_the_end_of_that_year_closes_no_day_after_it():
    found = read(["DTSTART;VALUE=DATE:20251230", "DTEND;VALUE=DATE:20260103", "RRULE:FREQ=YEARLY"]).days
    assert (max(found), len(found)) == (date(2031, 12, 31), 6 * 4 + 2)
    once = read(["DTSTART;VALUE=DATE:20311230", "DTEND;VALUE=DATE:20320103", "RRULE:FREQ=YEARLY;COUNT=1"]).days
    assert max(once) == date(2032, 1, 2)
