"""Cases from RFC 5545 and public suites, and rules that must be rejected."""

from datetime import UTC, datetime

import pytest
from recurrence_helpers import cases, schedule_of, spec_of, take, utc, wall_to_utc

from scheduler.domain.errors import Rejected


def _ids(case):
    return case["id"]


@pytest.mark.parametrize("case", [c for c in cases("cases.jsonl") if c["kind"] == "rrule"], ids=_ids)
def test_rule(case):
    fields = {"rrule": case["rrule"], "run_at": case["dtstart"], "timezone": case.get("tz")}
    zone = case.get("tz") or "UTC"
    expected = [utc(text) for text in case.get("expect_utc", [])]
    expected = expected or [wall_to_utc(datetime.fromisoformat(text), zone) for text in case["expect"]]
    if not expected:
        with pytest.raises(Rejected, match="never fires"):
            spec_of(**fields)
        return
    taken = take(schedule_of(**fields), len(expected) + case["complete"])
    assert taken == expected


@pytest.mark.parametrize("case", [c for c in cases("cases.jsonl") if c["kind"] == "cron"], ids=_ids)
def test_cron(case):
    zone = case.get("tz") or "UTC"
    after = datetime.fromisoformat(case["after"])
    after = wall_to_utc(after, zone) if after.tzinfo is None else after.astimezone(UTC)
    schedule = schedule_of(cron=case["cron"], timezone=zone, stored_at=after)
    assert take(schedule, len(case["expect"]), after) == [utc(text) for text in case["expect"]]


@pytest.mark.parametrize("case", cases("bad.jsonl"), ids=_ids)
def test_bad_text_is_refused(case):
    """Every rule is rejected, also at level "may": see docs/decisions/0001-recurrence-engine.md."""
    fields = {case["kind"]: case["text"], "timezone": case["tz"]}
    if case["kind"] == "rrule":
        fields["run_at"] = case["dtstart"]
    with pytest.raises(Rejected) as verdict:
        spec_of(**fields)
    assert {problem.field for problem in verdict.value.problems} == {case["kind"]}
    for problem in verdict.value.problems:
        assert problem.problem.isprintable()
        assert len(problem.problem) < 300
