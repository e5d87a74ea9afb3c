"""Files of `calendar import`: JSON and iCalendar, with the line of an error."""

import pytest

from scheduler.domain.calendar_file import read_file
from scheduler.domain.icalendar import InvalidFile

EVENT = b"BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:20271225\nSUMMARY:X\nEND:VEVENT\nEND:VCALENDAR\n"


def test_json_has_the_fields_of_put_or_those_of_show():
    body = b'{"name": "de", "tenant": "t", "version": 3, "closed": {"2026-12-25": "X"}, "valid_until": null}'
    assert read_file(body, 2026).fields == {"closed": {"2026-12-25": "X"}, "valid_until": None}


def test_icalendar_is_valid_until_the_end_of_its_last_year():
    read = read_file(EVENT, 2026)
    assert (read.fields, read.is_icalendar) == (
        {"closed": {"2027-12-25": "X"}, "valid_until": "2027-12-31"}, True)


@pytest.mark.parametrize(("body", "line"), [
    (b'{\n "closed": {\n  "2026-02-30": "x"\n }\n}', 3),
    (b'{\n "weekend": ["XX"]\n}', 2),
    (b'{\n "weekend": [],\n "holidays": {}\n}', 3),
    (b'{\n "closed": {"2026-12-25": "x"\n "2026-12-26": "y"}\n}', 3),
    (b'{\n "valid_until": "2026"\n}', 2),
    (b'{"closed": {\n"2026-12-25": "x",\n"2026-12-25": "y"}}', 1),
    (b"BEGIN:VCALENDAR\n\xff", 2),
])
def test_an_error_names_its_line(body, line):
    with pytest.raises(InvalidFile) as caught:
        read_file(body, 2026)
    assert caught.value.line == line
