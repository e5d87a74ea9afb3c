"""`scheduler preview`: the table and the machine-readable lines."""

import argparse
import io
import json
import subprocess
import sys

import pytest
from recurrence_helpers import cases, utc

from scheduler.cli import preview

NEW_YORK = "America/New_York"


def run(*arguments):
    """Run the command in this process and return its exit code."""
    parser = argparse.ArgumentParser()
    preview.add_arguments(parser)
    return preview.run(parser.parse_args(arguments))


@pytest.fixture
def ask(monkeypatch, capsys):
    """Send objects or raw lines to `--jsonl` and return the answers."""

    def send(*lines):
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        monkeypatch.setattr(sys, "stdin", io.StringIO(text + "\n"))
        assert run("--jsonl") == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return send


def test_a_field_that_is_null_counts_as_left_out(ask):
    fields = ("run_at", "rrule", "cron", "every", "timezone", "after", "count")
    nothing = dict.fromkeys(fields)
    given = {"every": "PT1H", "run_at": "2026-12-01T09:00:00Z"}
    assert ask(nothing | given) == ask(given)


def test_shared_rules_through_the_lines(ask):
    chosen = [case for case in cases("cases.jsonl") if case["kind"] == "rrule" and case.get("expect_utc")]
    requests = [
        {"rrule": c["rrule"], "run_at": c["dtstart"], "timezone": c["tz"], "count": len(c["expect_utc"])}
        for c in chosen
    ]
    assert [answer["occurrences"] for answer in ask(*requests)] == [case["expect_utc"] for case in chosen]


def test_shared_cron_through_the_lines(ask):
    chosen = [case for case in cases("cases.jsonl") if case["kind"] == "cron"]
    requests = [
        {"cron": c["cron"], "after": c["after"], "timezone": c.get("tz", "UTC"), "count": len(c["expect"])}
        for c in chosen
    ]
    for answer, case in zip(ask(*requests), chosen, strict=True):
        assert [utc(text) for text in answer["occurrences"]] == [utc(text) for text in case["expect"]]


def test_invalid_lines_yield_errors_in_order(ask):
    answers = ask(
        "not json",
        "[1]",
        {"cron": "@daily", "rule": "FREQ=DAILY"},
        {"cron": 5, "count": 0, "every": True},
        {"cron": "@daily", "after": "yesterday", "timezone": "Mars"},
        {"cron": "@daily", "count": True},
        "[" * 100_000,
        {"every": "PT1M", "run_at": "2026-12-01T08:00:00Z", "count": 2},
    )
    fields = [[error["field"] for error in answer.get("errors", [])] for answer in answers]
    assert fields[:6] == [
        ["line"],
        ["line"],
        ["rule"],
        ["cron", "every", "count"],
        ["timezone", "after"],
        ["count"],
    ]
    assert fields[6] == ["line"]
    assert answers[7] == {"occurrences": ["2026-12-01T08:00:00Z", "2026-12-01T08:01:00Z"]}


def test_a_line_is_parsed_as_strictly_as_a_command(ask):
    answers = ask('{"every": 60, "every": 90}', {"every": 0.0999999}, {"every": "0.0999999"})
    assert [answer["errors"][0]["field"] for answer in answers] == ["line", "every", "every"]
    assert "twice" in answers[0]["errors"][0]["problem"]


@pytest.mark.parametrize("rule", [{"every": 86400}, {"rrule": "FREQ=DAILY"}, {"cron": "@daily"}])
def test_the_first_instant_of_the_calendar_is_an_occurrence(ask, rule):
    [answer] = ask(rule | {"run_at": "0001-01-01T00:00:00Z", "count": 2})
    assert answer == {"occurrences": ["0001-01-01T00:00:00Z", "0001-01-02T00:00:00Z"]}


def test_errors_are_the_words_of_a_rejected_command(ask):
    answers = ask({"rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "run_at": "2026-01-01T00:00:00Z"})
    assert answers == [{"errors": [{"field": "rrule", "problem": "never fires: February has no day 30"}]}]


def test_after_is_strict_and_local(ask):
    fields = {"rrule": "FREQ=DAILY", "run_at": "2026-12-01T09:00:00", "timezone": NEW_YORK, "count": 1}
    answers = ask(
        fields,
        fields | {"after": "2026-12-05T09:00:00"},
        fields | {"after": "2026-12-05T13:59:59.999999Z"},
        {
            "rrule": "DTSTART;TZID=Asia/Tokyo:20261201T090000\nRRULE:FREQ=DAILY",
            "after": "2026-12-05T09:00:00",
            "count": 1,
        },
        {"run_at": "2026-12-01T09:00:00.5Z"},
        {"run_at": "2026-12-01T09:00:00Z", "after": "2026-12-01T09:00:00Z"},
    )
    assert [answer["occurrences"] for answer in answers] == [
        ["2026-12-01T14:00:00Z"],
        ["2026-12-06T14:00:00Z"],
        ["2026-12-05T14:00:00Z"],
        ["2026-12-06T00:00:00Z"],
        ["2026-12-01T09:00:00.500000Z"],
        [],
    ]


def test_without_run_at_a_schedule_starts_after_after(ask):
    answers = ask(
        {"cron": "0 9 * * *", "after": "2026-12-01T09:00:00Z", "count": 1},
        {"every": "PT1H", "after": "2026-12-01T09:00:00Z", "count": 1},
        {"cron": "0 9 * * *", "count": 3},
    )
    assert answers[0]["occurrences"] == ["2026-12-02T09:00:00Z"]
    assert answers[1]["occurrences"] == ["2026-12-01T10:00:00Z"]
    assert len(answers[2]["occurrences"]) == 3


def table(capsys, *arguments):
    """Return the lines of the table below its head."""
    assert run(*arguments) == 0
    return capsys.readouterr().out.splitlines()[1:]


def test_occurrences_outside_the_zones_range_are_in_utc(capsys):
    assert table(capsys, "--run-at", "9999-12-31T23:00:00Z", "--timezone", "Asia/Tokyo") == [
        "Fri 9999-12-31 23:00:00 UTC  9999-12-31T23:00:00Z",
        "No further runs.",
    ]


def test_a_table_with_notes(capsys):
    lines = table(
        capsys, "--rrule", "FREQ=DAILY;COUNT=3", "--run-at", "2026-03-07T02:30:00", "--timezone", NEW_YORK
    )  # fmt: skip
    assert lines == [
        "Sat 2026-03-07 02:30:00 EST    2026-03-07T07:30:00Z",
        "Sun 2026-03-08 03:30:00 EDT    2026-03-08T07:30:00Z  02:30 does not exist on 8 March: runs at 03:30",
        "Mon 2026-03-09 02:30:00 EDT    2026-03-09T06:30:00Z",
        "No further runs.",
    ]


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        (
            ("--rrule", "FREQ=DAILY;BYHOUR=2,3;BYMINUTE=15", "--run-at", "2026-03-08T00:00:00"),
            "02:15 does not exist on 8 March: runs at 03:15, together with the run due then",
        ),
        (
            ("--rrule", "FREQ=DAILY", "--run-at", "2026-11-01T01:30:00"),
            "01:30 on 1 November happens twice: runs in the first pass only",
        ),
        (
            ("--cron", "30 2 * * *", "--after", "2026-03-08T00:00:00"),
            "02:30 does not exist on 8 March: runs at 03:00",
        ),
        (
            ("--cron", "30 1 * * *", "--after", "2026-11-01T00:00:00"),
            "01:30 on 1 November happens twice: runs in the first pass only",
        ),
        (
            ("--cron", "* 1 * * *", "--after", "2026-11-01T00:59:00-04:00"),
            "01:00 on 1 November happens twice: first pass",
        ),
        (
            ("--cron", "* 1 * * *", "--after", "2026-11-01T00:59:00-05:00"),
            "01:00 on 1 November happens twice: second pass",
        ),
        (("--cron", "* * * * *", "--after", "2026-03-08T03:10:00"), ""),
        (("--every", "PT1H", "--after", "2026-11-01T00:30:00"), ""),
    ],
)
def test_notes(capsys, arguments, note):
    line = table(capsys, *arguments, "--timezone", NEW_YORK, "--count", "1")[0]
    assert line.endswith(f"Z  {note}" if note else "Z")


def test_a_whole_day_that_was_skipped(capsys):
    lines = table(capsys, "--rrule", "FREQ=DAILY", "--run-at", "2011-12-29T09:00:00", "--timezone", "Pacific/Apia",
                  "--count", "2")  # fmt: skip
    assert lines[1].endswith(
        "does not exist on 30 December: runs at 09:00 on 31 December, together with the run due then"
    )


def test_a_week_without_a_weekday_has_one_run(capsys):
    """The week's Friday was skipped: its run is Saturday's only, which the rule alone would not give."""
    lines = table(capsys, "--rrule", "FREQ=YEARLY;BYWEEKNO=52;COUNT=2", "--run-at", "2011-09-02T09:00:00",
                  "--timezone", "Pacific/Apia")  # fmt: skip
    note = "09:00 does not exist on 30 December: runs at 09:00 on 31 December"
    assert lines == [
        f"Sat 2011-12-31 09:00:00 +14  2011-12-30T19:00:00Z  {note}",
        "Fri 2012-12-28 09:00:00 +14  2012-12-27T19:00:00Z",
        "No further runs.",
    ]


def test_faults_go_to_standard_error(capsys):
    assert run("--rrule", "FREQ=DAILY;INTERVAL=0", "--timezone", "Europe/Berln") != 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "rrule: INTERVAL must be at least 1" in shown.err
    assert "did you mean Europe/Berlin?" in shown.err
    assert run() != 0


def test_colours_only_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    run("--cron", "@daily", "--count", "1")
    assert "\x1b[" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    run("--cron", "@daily", "--count", "1")
    assert "\x1b[" not in capsys.readouterr().out


def test_in_a_process_of_its_own():
    lines = b'{"cron": "0 9 * * *", "after": "2026-12-01T00:00:00Z", "count": 1}\nbad \xff\n\n{}\n'
    command = [sys.executable, "-m", "scheduler", "preview", "--jsonl"]
    done = subprocess.run(command, input=lines, capture_output=True, check=True, timeout=300)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers[0] == {"occurrences": ["2026-12-01T09:00:00Z"]}
    assert [answer["errors"][0]["field"] for answer in answers[1:]] == ["line", "run_at"]
    assert done.stderr == b""


CHRISTMAS = {"weekend": ["SA", "SU"], "closed": {"2026-12-25": "Christmas Day"}}
DAILY = {"rrule": "FREQ=DAILY", "run_at": "2026-12-24T09:00:00", "timezone": "Europe/Berlin"}
MONDAY = "Monday 28 December"
JOB = "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11"


def test_a_schedule_with_a_calendar_also_has_items_and_what_is_skipped(ask):
    (answer,) = ask(DAILY | {"calendar": CHRISTMAS, "on_closed": "next", "count": 2})
    assert answer == {
        "occurrences": ["2026-12-24T08:00:00Z", "2026-12-28T08:00:00Z"],
        "items": [
            {"local": "2026-12-24T09:00:00+01:00", "utc": "2026-12-24T08:00:00Z", "note": ""},
            {"local": "2026-12-28T09:00:00+01:00", "utc": "2026-12-28T08:00:00Z",
             "note": "one event for 4 occurrences"},
        ],
        "skipped": [
            {"nominal_at": f"2026-12-{day}T08:00:00Z", "reason": "merged",
             "note": f"{name}: moved to {MONDAY}; merged into the occurrence of {MONDAY} 09:00"}
            for day, name in ((25, "Friday 25 December is closed (Christmas Day)"),
                              (26, "Saturday 26 December is closed (weekend)"),
                              (27, "Sunday 27 December is closed (weekend)"))
        ],
    }


@pytest.mark.parametrize(
    ("fields", "item"),
    [
        (
            {"run_at": "2026-12-25T09:00:00", "calendar": CHRISTMAS, "on_closed": "next"},
            {"utc": "2026-12-28T09:00:00Z", "nominal_at": "2026-12-25T09:00:00Z", "moved": ["calendar"],
             "note": "Friday 25 December is closed (Christmas Day): moved to Monday 28 December"},
        ),
        (
            {"run_at": "2026-12-25T20:30:00", "calendar": CHRISTMAS, "on_closed": "previous",
             "window": {"from": "09:00", "to": "18:00"}},
            {"utc": "2026-12-28T09:00:00Z", "nominal_at": "2026-12-25T20:30:00Z", "moved": ["calendar", "window"],
             "note": "Friday 25 December is closed (Christmas Day): moved to Thursday 24 December; "
             "20:30 is outside the window 09:00-18:00: moved to its next opening, Monday 28 December 09:00"},
        ),
        (
            {"run_at": "2026-03-07T02:30:00", "timezone": NEW_YORK, "calendar": CHRISTMAS | {"weekend": ["SA"]},
             "on_closed": "next"},
            {"utc": "2026-03-08T07:30:00Z", "nominal_at": "2026-03-07T07:30:00Z", "moved": ["calendar"],
             "note": "Saturday 7 March is closed (weekend): moved to Sunday 8 March, where 02:30 does not exist: "
             "runs at 03:30"},
        ),
        (
            {"run_at": "2026-12-01T09:00:00Z", "jitter": 300},
            {"utc": "2026-12-01T09:00:00Z", "note": "delayed by up to 5 min (jitter)"},
        ),
        (
            {"run_at": "2026-03-08T02:30:00", "timezone": NEW_YORK, "rrule": "FREQ=DAILY", "jitter": 0},
            {"utc": "2026-03-08T07:30:00Z", "note": "02:30 does not exist on 8 March: runs at 03:30"},
        ),
    ],
)
def test_notes_say_what_moved_an_occurrence(ask, fields, item):
    (answer,) = ask(fields | {"count": 1})
    (found,) = answer["items"]
    found.pop("local")
    assert found == item


@pytest.mark.parametrize(
    ("fields", "skipped"),
    [
        ({"calendar": CHRISTMAS}, ("calendar", "Friday 25 December is closed (Christmas Day)")),
        (
            {"calendar": {"closed": {f"2026-12-{day:02d}": "" for day in range(1, 32)}}, "rrule": "FREQ=MONTHLY",
             "run_at": "2026-12-24T09:00:00", "on_closed": "next_in_month"},
            ("calendar", "Thursday 24 December is closed, and so is the rest of the month"),
        ),
        (
            {"calendar": {"closed": {f"2027-01-{day:02d}": "" for day in range(1, 32)}}, "rrule": "FREQ=MONTHLY",
             "run_at": "2026-12-31T20:00:00", "window": {"from": "10:00", "to": "11:00"}},
            ("calendar",
             "20:00 is outside the window 10:00-11:00, which does not open on an open day within 31 days"),
        ),
        (
            {"rrule": "FREQ=HOURLY", "run_at": "2026-12-24T08:30:00", "window": {"from": "10:00", "to": "11:00"}},
            ("merged",
             "09:30 is outside the window 10:00-11:00; merged into the occurrence of Thursday 24 December 08:30"),
        ),
    ],
)
def test_what_is_skipped_is_explained(ask, fields, skipped):
    (answer,) = ask({"run_at": "2026-12-24T09:00:00", "rrule": "FREQ=DAILY", "count": 2} | fields)
    assert (answer["skipped"][0]["reason"], answer["skipped"][0]["note"]) == skipped


def test_after_and_count_are_about_the_moved_occurrences(ask):
    previous = {"rrule": "FREQ=WEEKLY;BYDAY=SA", "run_at": "2026-12-01T09:00:00Z", "calendar": CHRISTMAS,
                "on_closed": "previous"}  # fmt: skip
    answers = ask(
        previous | {"count": 2},
        previous | {"count": 1, "after": "2026-12-04T08:59:59Z"},
        previous | {"count": 1, "after": "2026-12-04T09:00:00Z"},
        previous | {"count": 1, "after": "2026-12-20T00:00:00Z"},
    )
    assert [answer["occurrences"] for answer in answers] == [
        ["2026-12-04T09:00:00Z", "2026-12-11T09:00:00Z"],
        ["2026-12-04T09:00:00Z"],
        ["2026-12-11T09:00:00Z"],
        ["2026-12-24T09:00:00Z"],
    ]


def test_skipped_ends_with_the_last_item_and_at_a_hundred(ask):
    answers = ask(
        DAILY | {"calendar": CHRISTMAS, "count": 1},
        DAILY | {"calendar": CHRISTMAS, "count": 1, "after": "2026-12-25T10:00:00Z"},
        DAILY | {"calendar": CHRISTMAS, "rrule": "FREQ=DAILY;COUNT=5"},
        DAILY | {"calendar": CHRISTMAS, "rrule": "FREQ=HOURLY;COUNT=500", "count": 1000},
    )
    days = [[each["nominal_at"][8:10] for each in answer["skipped"]] for answer in answers]
    assert days[:3] == [[], ["26", "27"], ["25", "26", "27"]]
    assert len(days[3]) == 100


def test_the_jitter_of_a_job(ask):
    jobs = (JOB, JOB, JOB[:-1] + "2")
    one, again, other = (ask(DAILY | {"jitter": 600, "id": job, "count": 3})[0] for job in jobs)
    assert one == again
    assert one["occurrences"] != other["occurrences"]
    for item in one["items"]:
        assert item["moved"] == ["jitter"]
        assert item["nominal_at"] < item["utc"] < item["nominal_at"].replace("08:00:00", "08:10:00")
        assert item["note"].startswith("delayed by ")


def test_fields_of_a_calendar_that_are_wrong(ask):
    answers = ask(
        DAILY | {"calendar": "no spaces"},
        DAILY | {"calendar": {"weekend": ["XX"]}, "window": {"from": "9"}, "jitter": "x", "timezone": "Mars"},
        DAILY | {"on_closed": "next"},
        DAILY | {"id": "x", "tenant": "no spaces"},
        DAILY | {"calendar": {"weekend": ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]}},
        DAILY | {"id": JOB, "tenant": "acme", "count": 1},
    )
    assert [[error["field"] for error in answer.get("errors", [])] for answer in answers] == [
        ["calendar"],
        ["timezone", "calendar.weekend", "window.from", "window.to", "jitter"],
        ["on_closed"],
        ["tenant", "id"],
        ["calendar"],
        [],
    ]
    assert answers[5] == {"occurrences": ["2026-12-24T08:00:00Z"]}


def test_a_table_with_a_calendar_from_a_file(capsys, tmp_path):
    file = tmp_path / "calendar.json"
    file.write_text(json.dumps(CHRISTMAS | {"name": "de", "tenant": "default", "version": 3, "jobs": 7}))
    arguments = ("--rrule", "FREQ=DAILY", "--run-at", "2026-12-24T20:30:00", "--calendar", f"@{file}")
    lines = table(capsys, *arguments, "--window", "09:00-18:00,MO,FR", "--jitter", "90", "--count", "1")
    moved = "20:30 is outside the window 09:00-18:00: moved to its next opening, Monday 28 December 09:00"
    assert lines == [
        f"Mon 2026-12-28 09:00:00 UTC  2026-12-28T09:00:00Z  {moved}; delayed by up to 1 min 30 s (jitter)",
        "Not emitted: 2026-12-25T20:30:00Z  Friday 25 December is closed (Christmas Day)",
        "Not emitted: 2026-12-26T20:30:00Z  Saturday 26 December is closed (weekend)",
        "Not emitted: 2026-12-27T20:30:00Z  Sunday 27 December is closed (weekend)",
    ]
    for wrong in ("no spaces", f"@{tmp_path}/none", f"@{tmp_path}"):
        assert run(*arguments[:-1], wrong) == 65
        assert capsys.readouterr().err.startswith("calendar: ")
    file.write_text("[1]")
    assert run(*arguments) == 65
    file.write_text("BEGIN:VCALENDAR")
    assert run(*arguments) == 65
