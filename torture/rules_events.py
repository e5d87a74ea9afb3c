"""Rules about events: never early, none lost, none unexpected, missed ones counted, cancelled ones withheld."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from torture import model
from torture.books import Job
from torture.checker import Case, Violation, rule
from torture.history import seconds

MICRO = 0.000_002


@rule
def never_early(case: Case) -> Iterator[Violation]:
    for job in case.books.jobs.values():
        for event in job.due:
            if seconds(event["emitted_at"]) < seconds(event["due_at"]) or event["t"] < seconds(event["due_at"]):
                yield Violation("early", f"{event['event_id']} due {event['due_at']} emitted {event['emitted_at']}", [job.id])


@rule
def none_lost(case: Case) -> Iterator[Violation]:
    """All owed events have arrived by the end of the settling time."""
    journal = [{**r, "what": r["did"]} for r in case.history.of("did")]
    owed = case.books.outstanding(journal)
    by_problem: dict[str, list[str]] = defaultdict(list)
    for job, problem in owed.items():
        by_problem[f"{case.books.jobs[job].family}: {problem}"].append(job)
    for problem, jobs in by_problem.items():
        yield Violation("lost", f"{len(jobs)} times {problem}", jobs[:50])


@rule
def one_id_for_one_occurrence(case: Case) -> Iterator[Violation]:
    for job in case.books.jobs.values():
        ids: dict[float, set[str]] = defaultdict(set)
        for event in job.due:
            ids[seconds(event["due_at"])].add(event["event_id"])
            if event["message_id"] != event["event_id"] or event["type"] != "ScheduleDue" or event["app_id"] != "scheduler":
                yield Violation("properties", f"message_id, type or app_id of {event['event_id']}", [job.id])
        for at, several in ids.items():
            if len(several) > 1:
                yield Violation("event_id", f"{several} for the same instant {at}", [job.id])


@rule
def nothing_unexpected(case: Case) -> Iterator[Violation]:
    """No event without an accepted request, without a bound queue, or for a rejected request."""
    for job in case.books.jobs.values():
        requests = [r for r in job.of("request") if "body" in r]
        if any("cron" in r["body"] or r["expect"] == "any" for r in requests) or job.of("trigger") or not requests:
            continue
        if any("every" in r["body"] and "run_at" not in r["body"] for r in requests):
            continue
        known = [at for r in requests for at in model.instants(r["body"], r["first"], case.last + 5)]
        for event in job.due:
            at = seconds(event["due_at"])
            if not any(abs(at - one) < MICRO for one in known):
                yield Violation("unexpected", f"nobody asked for {event['due_at']}", [job.id])
            if all(r.get("reaches") is False for r in requests):
                yield Violation("unexpected", "an event without a queue for it was received", [job.id])


@rule
def content_is_kept(case: Case) -> Iterator[Violation]:
    for job in case.books.jobs.values():
        requests = job.of("request")
        payloads = {r["payload"] for r in requests}
        for event in job.due:
            if requests and event["payload"] not in payloads:
                yield Violation("payload", f"payload of {event['event_id']} is not as requested", [job.id])
        if len(requests) != 1 or requests[0]["publishes"] > 1:
            continue
        body, request = requests[0]["body"], requests[0]
        wanted = {"correlation_id": None if request.get("via") in {"api", "cli"} else request["cid"], "job_type": body["job_type"],
                  "priority": {"high": 9, "normal": 5, "low": 1, None: None}[body.get("priority")],
                  "tenant": case.plan.get("user") or (None if body.get("tenant", "default") == "default" else body["tenant"])}
        if request["expect"] == "ok" and "traceparent" in request:
            wanted["traceparent"] = request["traceparent"]
        for event in job.due:
            for name, value in wanted.items():
                if event[name] != value:
                    yield Violation("properties", f"{name} is {event[name]!r} instead of {value!r}", [job.id])


@rule
def cancelled_stays_cancelled(case: Case) -> Iterator[Violation]:
    """After a cancel was answered nothing is emitted; a cancel with a later `issued_at` wins in any order."""
    for job in case.books.jobs.values():
        requests, cancels = job.of("request"), job.of("cancel")
        if not cancels or not requests:
            continue
        winner = cancels[-1]
        if model.issued(winner) <= max(model.issued(r) for r in requests) or job.of("trigger"):
            continue
        effective = max([winner.get("answered", float("inf"))] + [
            0.0 if model.issued(r) < model.issued(winner) and "issued_at" in r["body"] and "issued_at" in winner["body"]
            else r.get("answered", float("inf")) for r in requests])
        for event in job.due:
            if seconds(event["emitted_at"]) > effective + 0.5:
                yield Violation("after cancel", f"{event['event_id']} was emitted "
                                f"{seconds(event['emitted_at']) - effective:.1f} s after the cancel was answered", [job.id])


@rule
def paused_stays_paused(case: Case) -> Iterator[Violation]:
    for job in case.books.jobs.values():
        pauses, resumes = job.of("pause"), job.of("resume")
        if not pauses or resumes or job.of("trigger") or len(job.of("request")) != 1:
            continue
        if model.issued(pauses[-1]) <= model.issued(job.request):
            continue
        effective = pauses[-1].get("answered", float("inf"))
        for event in job.due:
            first = not event["run"] or event["run"]["attempt"] == 1
            if first and seconds(event["emitted_at"]) > effective + 0.5:
                yield Violation("after pause", f"{event['event_id']} was emitted after the pause was answered", [job.id])


@rule
def missed_are_counted(case: Case) -> Iterator[Violation]:
    """Each passed-over instant is reported once; none is both emitted and reported; `missed` counts the folded ones."""
    for job in case.books.jobs.values() if case.exactly_once else ():
        request = job.request
        if request is None or not job.simple or not model.recurs(request["body"]) or job.of("cancel") or len(job.of("request")) > 1:
            continue
        if request["publishes"] > 1 or "cron" in request["body"] or request["expect"] == "any":
            continue
        yield from _reported_once(job)
        body = request["body"]
        if body.get("on_missed", "latest") == "latest" and body.get("run", {}).get("overlap") != "skip" and "max_lateness" not in body:
            yield from _folded(job, model.instants(body, request["first"], case.last))


def _reported_once(job: Job) -> Iterator[Violation]:
    messages = {(r["body"].get("id") or str(r["body"])): r for r in job.missed}
    reported: dict[float, int] = defaultdict(int)
    for record in messages.values():
        for at in record["body"]["missed"]:
            reported[seconds(at)] += 1
    both = sorted(set(reported) & set(job.emitted))
    if both:
        yield Violation("missed", f"{len(both)} instants were both emitted and reported as missed", [job.id])
    twice = [at for at, times in reported.items() if times > 1]
    if twice:
        yield Violation("missed", f"{len(twice)} instants were reported as missed by several messages, up to "
                        f"{max(reported.values())} times", [job.id])


def _folded(job: Job, planned: list[float]) -> Iterator[Violation]:
    before = planned[0] - 1 if planned else 0.0
    for at, event in sorted(job.emitted.items()):
        between = sum(1 for one in planned if before + MICRO < one < at - MICRO)
        if event["missed"] != between:
            yield Violation("missed", f"{event['event_id']} says missed {event['missed']}, but {between} instants lie "
                            "between it and the one before", [job.id])
            return
        before = at


@rule
def in_order(case: Case) -> Iterator[Violation]:
    """`occurrence` counts emitted occurrences from 1, in the order of their instants."""
    for job in case.books.jobs.values() if case.exactly_once else ():
        if not job.simple or job.of("cancel") or len(job.of("request")) != 1 or job.request["publishes"] > 1:
            continue
        numbers = [event["occurrence"] for _, event in sorted(job.emitted.items())]
        if numbers != list(range(1, len(numbers) + 1)):
            yield Violation("order", f"occurrences are numbered {numbers[:12]}…", [job.id])
        emitted = [seconds(event["emitted_at"]) for _, event in sorted(job.emitted.items())]
        if any(after < before - 0.25 for before, after in pairwise(emitted)):  # each process has its own idea of the database's clock
            yield Violation("order", "occurrences were not emitted in the order of their instants", [job.id])


@rule
def not_emitted_again(case: Case) -> Iterator[Violation]:
    """A request with the same schedule emits nothing again that was settled long before."""
    for job in case.books.jobs.values():
        again = [r for r in job.sent if r.get("settled") and "first" in r]
        if not again:
            continue
        first: dict[tuple[str, int], float] = {}
        for event in job.due:
            key = (event["event_id"], event["run"]["attempt"] if event["run"] else 0)
            emitted = seconds(event["emitted_at"])
            known = first.setdefault(key, emitted)
            cause = [r for r in again if known + 5 < r["first"] < emitted]
            if cause and not case.disturbed(known, cause[0]["first"], 0):
                yield Violation("emitted again", f"{event['event_id']} was emitted again {emitted - known:.1f} s later, after a "
                                "request with the same schedule", [job.id])
                break


@rule
def no_class_starves(case: Case) -> Iterator[Violation]:
    """Each class with due events gets a tenth of every thousand emitted; checked by 2,000, since batches interleave."""
    events = sorted((e for job in case.books.jobs.values() if job.family == "classes" for e in list(job.emitted.values())),
                    key=lambda event: event["emitted_at"])
    for begin in range(0, len(events) - 2000, 500):
        window = events[begin:begin + 2000]
        for priority in (9, 5, 1):
            remaining = sum(1 for event in events[begin:] if event["priority"] == priority)
            got = sum(1 for event in window if event["priority"] == priority)
            if remaining > 1000 and got < 100:
                yield Violation("starved", f"priority {priority} got {got} of 2,000 events while {remaining} were due")
                return
