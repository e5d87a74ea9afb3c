"""The form and its request, in both directions."""

import pytest

from scheduler.api.console.form import read_form, read_schedule
from scheduler.api.console.form_values import values_of

WEEKLY = {"when": "days", "days_unit": "week", "days_count": "1", "weekday_4": "on", "at": "09:00",
          "timezone": "Europe/Berlin"}


@pytest.mark.parametrize(("form", "fields"), [
    ({"when": "once", "run_at": "2026-11-20T09:00:00", "timezone": "Europe/Berlin"},
     {"run_at": "2026-11-20T09:00:00", "timezone": "Europe/Berlin"}),
    ({"when": "every", "every_count": "15", "every_unit": "minute"}, {"every": "PT15M"}),
    ({"when": "every", "every_count": "2", "every_unit": "week", "starts": "2026-11-20T09:00:00"},
     {"every": "P2W", "run_at": "2026-11-20T09:00:00"}),
    (WEEKLY, {"rrule": "FREQ=WEEKLY;BYDAY=FR;BYHOUR=9;BYMINUTE=0;BYSECOND=0", "timezone": "Europe/Berlin"}),
    (WEEKLY | {f"weekday_{day}": "on" for day in range(5)},
     {"rrule": "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=9;BYMINUTE=0;BYSECOND=0", "timezone": "Europe/Berlin"}),
    ({"when": "days", "days_unit": "month", "place": "-1", "place_of": "FR", "at": "17:30"},
     {"rrule": "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17;BYMINUTE=30;BYSECOND=0"}),
    ({"when": "days", "days_unit": "month", "days_count": "3", "place": "-1", "place_of": "weekday", "at": "8:00"},
     {"rrule": "FREQ=MONTHLY;INTERVAL=3;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;BYHOUR=8;BYMINUTE=0;BYSECOND=0"}),
    ({"when": "days", "days_unit": "year", "month": "12", "place": "24", "place_of": "day", "at": "08:00:30"},
     {"rrule": "FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=24;BYHOUR=8;BYMINUTE=0;BYSECOND=30"}),
    ({"when": "rule", "rule_kind": "cron", "rule": "0 9 * * 1-5"}, {"cron": "0 9 * * 1-5"}),
    ({"when": "rule", "rule_kind": "rrule", "rule": "RRULE:FREQ=DAILY\r\nEXDATE:20261225T000000Z"},
     {"rrule": "RRULE:FREQ=DAILY\nEXDATE:20261225T000000Z"}),
    ({"when": "rule", "rule_kind": "cron", "rule": "@daily", "calendar": "de", "on_closed": "next",
      "jitter": "90.5"}, {"cron": "@daily", "calendar": "de", "on_closed": "next", "jitter": 90.5}),
    ({"when": "every", "every_count": "15", "every_unit": "minute", "windowed": "on", "window_from": "09:00",
      "window_to": "17:00"} | {f"window_day_{day}": "on" for day in range(5)},
     {"every": "PT15M", "window": {"from": "09:00", "to": "17:00", "days": ["MO", "TU", "WE", "TH", "FR"]}}),
    ({"when": "every", "every_count": "1", "every_unit": "hour", "windowed": "on", "window_from": "22:00",
      "window_to": "06:00"} | {f"window_day_{day}": "on" for day in range(7)},
     {"every": "PT1H", "window": {"from": "22:00", "to": "06:00"}}),
])
def test_a_form_becomes_the_schedule_fields_and_back(form, fields):
    read = read_schedule(form)
    assert (read.fields, read.problems) == (fields, {})
    assert read_schedule(values_of(fields)).fields == fields


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=DAILY;COUNT=3;BYHOUR=9;BYMINUTE=0;BYSECOND=0",
        "FREQ=HOURLY",
        "FREQ=WEEKLY;BYDAY=FR",
        "FREQ=MONTHLY;BYDAY=1MO,3MO;BYHOUR=9;BYMINUTE=0;BYSECOND=0",
        "FREQ=DAILY;BYHOUR=9,17;BYMINUTE=0;BYSECOND=0",
        "FREQ=WEEKLY;WKST=SU;BYHOUR=9;BYMINUTE=0;BYSECOND=0",
        "FREQ=YEARLY;BYMONTHDAY=1;BYHOUR=9;BYMINUTE=0;BYSECOND=0",
        "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=1;BYHOUR=9;BYMINUTE=0;BYSECOND=0",
        "FREQ=NONSENSE",
    ],
)
def test_an_inexpressible_rule_is_shown_as_text(rule):
    values = values_of({"rrule": rule})
    assert (values["when"], values["rule_kind"], values["rule"]) == ("rule", "rrule", rule)
    assert read_schedule(values).fields == {"rrule": rule}


@pytest.mark.parametrize(("form", "field"), [
    ({"when": "days", "at": "25:00"}, "rrule"), ({"when": "every", "every_count": "x"}, "every"),
    ({"payload": "{"}, "payload"), ({"max_lateness": "soon"}, "max_lateness"),
    ({"then": "webhook", "headers": "no colon"}, "target.webhook.headers"),
    ({"tracked": "on", "max_attempts": "many"}, "run.max_attempts"),
])
def test_parse_errors_are_shown_by_field(form, field):
    assert field in read_form(form).problems


def test_a_whole_form_becomes_a_request_and_back():
    form = WEEKLY | {
        "job_type": "report.weekly",
        "name": "Weekly report",
        "tenant": "acme",
        "priority": "high",
        "payload": '{"a": 1}',
        "on_missed": "skip",
        "max_lateness": "600",
        "then": "webhook",
        "url": "https://example.org/hook",
        "method": "PUT",
        "headers": "X-One: 1\nAuthorization: {{secret.token}}",
        "secret": "main",
        "hook_timeout": "10",
        "body": '{"due": "{{due_at}}"}',
        "max_attempts": "5",
        "delay": "0.5",
        "backoff": "linear",
        "run_timeout": "60",
        "overlap": "skip",
    }
    read = read_form(form)
    assert read.problems == {}
    assert read.fields == {
        "job_type": "report.weekly",
        "name": "Weekly report",
        "tenant": "acme",
        "priority": "high",
        "payload": {"a": 1},
        "rrule": "FREQ=WEEKLY;BYDAY=FR;BYHOUR=9;BYMINUTE=0;BYSECOND=0",
        "timezone": "Europe/Berlin",
        "on_missed": "skip",
        "max_lateness": 600,
        "target": {
            "webhook": {
                "url": "https://example.org/hook",
                "method": "PUT",
                "headers": {"X-One": "1", "Authorization": "{{secret.token}}"},
                "secret": "main",
                "timeout": 10,
                "body": {"due": "{{due_at}}"},
            }
        },
        "run": {"max_attempts": 5, "delay": 0.5, "timeout": 60, "backoff": "linear", "overlap": "skip"},
    }
    assert read_form(values_of(read.fields), read.fields).fields == read.fields


def test_what_the_form_does_not_show_of_a_job_is_kept():
    job = {
        "job_type": "a",
        "every": "PT1H",
        "payload": {},
        "run": {"start_timeout": 5, "backoff": [1, 2], "delay": 3},
        "target": {"webhook": {"url": "http://x", "query": {"a": "b"}, "body": "42"}},
    }
    assert read_form(values_of(job), job).fields == job


@pytest.mark.parametrize("hidden", [
    {"windowed": "", "window_from": "09:00", "window_to": "17:00", "window_day_0": "on"}, {"on_closed": "next"},
    {"jitter": "0"}, {"when": "manual", "calendar": "de", "jitter": "5", "windowed": "on"},
])
def test_inputs_that_do_not_apply_are_left_out(hidden):
    fields = read_schedule({"when": "every", "every_count": "15", "every_unit": "minute"} | hidden).fields
    assert not {"calendar", "on_closed", "window", "jitter"} & fields.keys()


def test_numbers_are_shown_with_all_their_digits():
    job = {"job_type": "a", "every": "PT1H", "payload": {}, "max_lateness": 1_234_567, "jitter": 12345.678,
           "run": {"timeout": 604_799.5, "delay": 0.000001}}
    assert read_form(values_of(job), job).fields == job


def test_an_edit_keeps_fields_that_the_form_does_not_show():
    job = {"job_type": "a", "every": "PT1H", "payload": {}, "unshown": {"a": 1},
           "target": {"command": {"name": "nightly", "unshown": True}}, "run": {}}
    form = values_of(job)
    assert read_form(form | {"name": "new"}, job).fields == job | {"name": "new"}
    assert "unshown" not in read_form(form).fields


def test_a_command_takes_one_argument_a_line():
    form = {"then": "command", "command": "nightly", "arguments": "--day\r\n{{due_at}}\r\n", "when": "rule",
            "rule_kind": "cron", "rule": "@daily", "job_type": "x"}
    read = read_form(form)
    assert read.fields["target"] == {"command": {"name": "nightly", "arguments": ["--day", "{{due_at}}"]}}
    assert read_form(values_of(read.fields), read.fields).fields == read.fields
