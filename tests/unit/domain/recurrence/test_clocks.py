"""A zone's offsets do not depend on which instants were looked up before."""

import random
from datetime import datetime, timedelta

import pytest

from scheduler.domain.recurrence.day_masks import DAY, LAST_YEAR, january_first
from scheduler.domain.recurrence.zones import Clock, clock, zone

ORIGIN = datetime(1, 1, 1)  # noqa: DTZ001 - the origin of wall time
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia")


def fresh(name):
    return Clock(name, zone(name), clock(name)._changes)


def wall_offset(name, wall):
    offset = (ORIGIN + timedelta(seconds=wall - DAY)).replace(tzinfo=zone(name)).utcoffset()
    return offset.days * DAY + offset.seconds


@pytest.mark.parametrize("name", ZONES)
def test_the_last_year_does_not_change_other_years(name):
    clocks = fresh(name)
    clocks.offset((january_first(LAST_YEAR) + 200) * DAY)
    for year in range(1990, 2100):
        july = (january_first(year) + 190) * DAY
        assert clocks.to_utc(july) == july - wall_offset(name, july), f"July {year}"


@pytest.mark.parametrize("name", ZONES)
def test_offsets_are_those_of_zoneinfo_in_any_order(name):
    for seed in range(40):
        draw = random.Random(seed)
        clocks = fresh(name)
        for _ in range(30):
            year = draw.choice((draw.randint(2, LAST_YEAR), draw.randint(1970, 2110), LAST_YEAR))
            wall = january_first(year) * DAY + draw.randrange(360 * DAY)
            assert clocks.to_utc(wall) == wall - wall_offset(name, wall), f"seed {seed}, {year}"
