"""Descriptions of schedules in the console."""

import pytest

from scheduler.api.console.schedule_description import describe_schedule

AT9 = "BYHOUR=9;BYMINUTE=0;BYSECOND=0"


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (
            {"rrule": f"FREQ=WEEKLY;BYDAY=FR;{AT9}", "timezone": "Europe/Berlin"},
            "Fridays at 09:00 in Europe/Berlin",
        ),
        ({"rrule": f"RRULE:FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;{AT9}"}, "Weekdays at 09:00 in UTC"),
        ({"rrule": f"FREQ=DAILY;{AT9}"}, "Every day at 09:00 in UTC"),
        ({"rrule": f"FREQ=DAILY;INTERVAL=3;{AT9}"}, "Every 3 days at 09:00 in UTC"),
        (
            {"rrule": f"FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,TH;{AT9}"},
            "Every 2 weeks on Mondays and Thursdays at 09:00 in UTC",
        ),
        ({"rrule": f"FREQ=MONTHLY;BYDAY=-1FR;{AT9}"}, "The last Friday of every month at 09:00 in UTC"),
        (
            {"rrule": f"FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;{AT9}"},
            "The last weekday of every month at 09:00 in UTC",
        ),
        ({"rrule": f"FREQ=MONTHLY;BYMONTHDAY=1,15;{AT9}"}, "The 1st and 15th of every month at 09:00 in UTC"),
        ({"rrule": f"FREQ=MONTHLY;BYMONTHDAY=-1;{AT9}"}, "The last day of every month at 09:00 in UTC"),
        (
            {"rrule": f"FREQ=MONTHLY;INTERVAL=3;BYDAY=1MO,3MO;{AT9}"},
            "The 1st and 3rd Monday of every 3 months at 09:00 in UTC",
        ),
        (
            {"rrule": f"FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=24;{AT9}"},
            "Every year on the 24th of December at 09:00 in UTC",
        ),
        (
            {"rrule": "FREQ=YEARLY", "run_at": "2026-07-04T08:30:00", "timezone": "America/New_York"},
            "Every year on 4 July at 08:30 in America/New_York",
        ),
        (
            {"rrule": "FREQ=WEEKLY", "run_at": "2026-11-20T08:00:00Z", "timezone": "Europe/Berlin"},
            "Fridays at 09:00 in Europe/Berlin",
        ),
        ({"rrule": "FREQ=HOURLY;INTERVAL=6"}, "Every 6 hours in UTC"),
        ({"rrule": "FREQ=HOURLY;BYMINUTE=5,35;BYDAY=SA,SU"}, "Every hour at minute 05 and 35 on weekends in UTC"),
        ({"rrule": f"FREQ=DAILY;COUNT=10;{AT9}"}, "Every day at 09:00 in UTC, 10 times"),
        ({"rrule": f"FREQ=DAILY;UNTIL=20261231;{AT9}"}, "Every day at 09:00 in UTC, until 31 December 2026"),
        (
            {
                "rrule": "DTSTART;TZID=Europe/Paris:20261201T090000\nRRULE:FREQ=DAILY\n"
                "EXDATE;TZID=Europe/Paris:20261225T090000"
            },
            "Every day at 09:00 in Europe/Paris, 1 date left out",
        ),
        (
            {"rrule": "FREQ=DAILY;BYHOUR=0,1,2,3,4,5,6,7;BYMINUTE=0;BYSECOND=0"},
            "Every day at 8 times a day in UTC",
        ),
        ({"cron": "0 9 * * 1-5", "timezone": "America/New_York"}, "Weekdays at 09:00 in America/New_York"),
        ({"cron": "*/15 * * * *"}, "Every 15 minutes in UTC"),
        ({"cron": "0 */2 * * *"}, "Every 2 hours in UTC"),
        ({"cron": "@daily"}, "Every day at 00:00 in UTC"),
        ({"cron": "30 8 1,15 * *"}, "The 1st and 15th of the month at 08:30 in UTC"),
        ({"cron": "0 9 * * 5L"}, "The last Friday of the month at 09:00 in UTC"),
        ({"cron": "0 12 * 12 *"}, "Every day in December at 12:00 in UTC"),
        ({"cron": "0 9 1 * 1"}, "The 1st of the month and Mondays at 09:00 in UTC"),
        ({"every": "PT15M"}, "Every 15 minutes"),
        ({"every": 86400}, "Every day"),
        ({"every": "PT0.5S"}, "Every 0.5 seconds"),
        ({"run_at": "2026-11-20T08:00:00Z", "timezone": "Europe/Berlin"}, "Once, Fri 20 Nov 2026 09:00 CET"),
        (
            {"run_at": "2026-11-20T09:00:00", "timezone": "Europe/Berlin"},
            "Once, Fri 20 Nov 2026 09:00 in Europe/Berlin",
        ),
        ({"rrule": "FREQ=NEVER"}, "a rule that cannot be read"),
        ({}, "Once"),
    ],
)
def test_schedules_are_described_in_plain_english(job, words):
    assert describe_schedule(job) == words
