"""Output of `make chaos`: one complete run, a line on each of the last three, the last long soak."""

from datetime import UTC, datetime

import pytest

from chaos import report
from chaos.account import HostRecords, Result, lateness
from chaos.load import Event, RequestedJob

FAULTS = ("kill", "soak")


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(f"# Before\n\n{report.BEGIN}\n\nold\n\n{report.END}\n\nAfter.\n", encoding="utf-8")
    return path


def run(command="make chaos", hour=1):
    return report.Run(command, f"2026-11-16T0{hour}:00+00:00", 1200.0, f"abc{hour}", "2 cores")


def results(*failures, seconds=60.0):
    fault_results = [Result(name, "a title", expected=10, received=10, seconds=seconds, notes=["+0.01 MiB/min"])
                     for name in FAULTS]
    fault_results[0].failures += failures
    return fault_results


def test_a_whole_run_is_written_into_the_page_and_three_are_remembered(tmp_path, page):
    for hour in range(1, 6):
        broken = ["broken"] if hour == 4 else []
        report.write(run(hour=hour), results(*broken), whole=True, folder=tmp_path, page=page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Before\n")
    assert text.endswith("After.\n")
    assert "old" not in text
    assert "started 2026-11-16 05:00 UTC, 20 minutes, commit abc5; 2 cores" in text
    lines = [line for line in text.splitlines() if line.startswith("- 2026")]
    assert [line.split(", commit ")[1][:4] for line in lines] == ["abc3", "abc4", "abc5"]
    assert "all 2 faults passed; 20 events expected, 0 lost, 0 early" in lines[0]
    assert "FAILED: kill" in lines[1]
    assert "| kill | 0 | 10 | 10 | 0 | 0 |" in text
    assert "FAILED: broken" not in text


def test_a_run_of_some_faults_changes_neither_the_page_nor_the_whole_run(tmp_path, page):
    report.write(run(), results(), whole=True, folder=tmp_path, page=page)
    before = page.read_text(encoding="utf-8"), report.load(tmp_path)
    report.write(run("make chaos FAULT=kill"), results("broken"), whole=False, folder=tmp_path, page=page)
    assert (page.read_text(encoding="utf-8"), report.load(tmp_path)) == before


def test_a_long_soak_stays_next_to_the_complete_runs(tmp_path, page):
    soak = [results(seconds=700.0)[1]]
    report.write(run("SOAK_SECONDS=600 make chaos FAULT=soak"), soak, whole=False, folder=tmp_path, page=page)
    report.write(run(hour=2), results(), whole=True, folder=tmp_path, page=page)
    text = page.read_text(encoding="utf-8")
    assert "`SOAK_SECONDS=600 make chaos FAULT=soak`, started 2026-11-16 01:00 UTC, commit abc1" in text
    assert "  - +0.01 MiB/min" in text


def test_the_page_in_docs_matches_the_stored_results():
    stored = report.load()
    assert report.block(stored) in report.PAGE.read_text(encoding="utf-8")


def test_an_event_is_not_late_before_its_request_was_sent():
    """A host that was behind with its requests looked like a late sidecar."""
    due = datetime(2026, 11, 16, 12, tzinfo=UTC)
    at = due.timestamp()
    records = HostRecords()
    for name, sent in (("in time", at - 3), ("behind", at + 12)):
        records.jobs[name] = RequestedJob(name, [due], confirmed=True, requested_at=at - 4, sent_at=sent)
        received = datetime.fromtimestamp(max(at, sent) + 0.5, UTC)
        records.events.append(Event(name, name, due, received, received))
    assert lateness(records) == pytest.approx([0.5, 0.5])
    assert lateness(records, {"in time": at + 0.4}) == pytest.approx([0.1, 0.5])
