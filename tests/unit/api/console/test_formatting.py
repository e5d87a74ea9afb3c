"""Formatted times, spans and numbers."""

from datetime import UTC, datetime, timedelta

import pytest

from scheduler.api.console import formatting

NOW = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(("seconds", "said"), [
    (0.2, "now"), (12, "in 12 s"), (750, "in 12 min"), (-7200, "2 h ago"), (3 * 86400 + 5, "in 3 days"),
    (-86400, "1 day ago"), (-800 * 86400, "2 years ago"),
])
def test_relative_times_use_the_largest_unit(seconds, said):
    assert formatting.relative(NOW + timedelta(seconds=seconds), NOW) == said
    assert formatting.relative((NOW + timedelta(seconds=seconds)).isoformat(), NOW) == said


def test_no_moment_is_never():
    assert formatting.relative(None, NOW) == "never"


@pytest.mark.parametrize(("seconds", "said"), [
    (None, formatting.NOTHING), (0.003, "3.0 ms"), (0.0424, "42 ms"), (1.25, "1.2 s"), (5, "5 s"),
    (125, "2 min 5 s"),
    (3 * 3600 + 4 * 60, "3 h 4 min"), (2 * 86400, "2 days"), (86400, "1 day"), (0, "0 ms"),
])
def test_a_span_has_as_many_digits_as_matter(seconds, said):
    assert formatting.span(seconds) == said


@pytest.mark.parametrize(("share", "said"), [
    (None, formatting.NOTHING), (1, "100 %"), (0, "0 %"), (0.9998, "99.98 %"), (0.99999, "99.99 %"),
    (0.981, "98.1 %"),
])
def test_only_all_is_a_hundred_percent(share, said):
    assert formatting.percent(share) == said


def test_a_moment_in_full_names_its_zone():
    assert formatting.local("2026-11-20T08:00:00Z", "Europe/Berlin") == "Fri 20 Nov 2026 09:00 CET"
    assert formatting.local("2026-11-20T08:00:01Z") == "Fri 20 Nov 2026 08:00:01 UTC"
    assert formatting.exactly("2026-11-20T08:00:00.1234Z") == "2026-11-20 08:00:00.123 UTC"


def test_times_outside_a_zones_range_are_shown_in_utc():
    assert formatting.local("9999-12-31T23:00:00Z", "Asia/Tokyo") == "Fri 31 Dec 9999 23:00 UTC"
    first = formatting.local("0001-01-01T00:00:00Z", "America/New_York")
    assert first in {"Mon 1 Jan 1 00:00 UTC", "Mon 1 Jan 0001 00:00 UTC"}  # the second since Python 3.14


@pytest.mark.parametrize(
    ("value", "said"), [(None, formatting.NOTHING), (1204, "1,204"), (3.25, "3.2"), (412.4, "412"), (7, "7")]
)
def test_numbers(value, said):
    assert formatting.number(value) == said


def test_counts_are_pluralized():
    assert (formatting.count(1, "job"), formatting.count(1214, "job")) == ("1 job", "1,214 jobs")
    assert formatting.count(2, "reply", "replies") == "2 replies"


@pytest.mark.parametrize(("value", "said"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (11, "11th"), (22, "22nd"),
                                             (-1, "last"), (-2, "2nd to last")])
def test_places(value, said):
    assert formatting.ordinal(value) == said


def test_a_run_lasts_as_long_as_it_says_or_from_start_to_end():
    assert formatting.duration_of({"duration_ms": 1500}) == 1.5
    assert formatting.duration_of({"started_at": NOW.isoformat(), "finished_at": NOW + timedelta(seconds=2)}) == 2
    assert formatting.duration_of({"started_at": None, "finished_at": NOW}) is None
