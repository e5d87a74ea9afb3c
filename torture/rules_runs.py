"""Rules about runs: attempts counted and never early, outcomes as reported, nothing executed side by side."""

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from torture import model
from torture.books import Job
from torture.checker import Case, Violation, rule
from torture.history import Record, seconds
from torture.rules_system import stall


@rule
def attempts_follow_the_policy(case: Case) -> Iterator[Violation]:
    finals: dict[tuple[str, int], Record] = {}
    reports = _reports(case)
    for report in case.history.of("report"):
        if report["status"] != "running" and "first" in report:
            finals.setdefault((report["event_id"], report["attempt"]), report)
    for job in case.books.jobs.values():
        request = job.request
        if request is None or request.get("unsure") or not request.get("behaviour") or "run" not in request["body"] or len(job.of("request")) > 1:
            continue
        attempts: dict[str, dict[int, Record]] = defaultdict(dict)
        for event in job.due:
            if event["run"]:
                attempts[event["event_id"]].setdefault(event["run"]["attempt"], event)
        for event_id, seen in attempts.items():
            timely = all(_in_time(reports[event_id, attempt], request["body"]["run"]) for attempt in seen)
            yield from _one_run(case, job, request, event_id, seen, finals, timely=timely)


def _one_run(case: Case, job: Job, request: Record, event_id: str, seen: dict[int, Record],
             finals: dict[tuple[str, int], Record], *, timely: bool) -> Iterator[Violation]:
    run, behaviour = request["body"]["run"], request["behaviour"]
    most = run.get("max_attempts", 3)
    status, deliveries = model.outcome(behaviour, most)
    if sorted(seen) != list(range(1, len(seen) + 1)):
        yield Violation("attempts", f"{event_id}: attempts {sorted(seen)[:20]}", [job.id])
    if len(seen) > deliveries and status != "open" and timely:
        yield Violation("attempts", f"{event_id}: {len(seen)} attempts, but it must end as {status} after {deliveries}", [job.id])
    counted = 0
    for attempt in sorted(seen):
        step = behaviour[min(attempt, len(behaviour)) - 1]
        counted += step["o"] != "snooze"
        report = finals.get((event_id, attempt))
        # An attempt whose worker reported too late is lost; the next one waits since then.
        if report and timely and attempt + 1 in seen and step["o"] in {"fail", "snooze"} and "again" not in step:
            wait = model.least_wait(run, max(1, counted), attempt, step)
            gap = seconds(seen[attempt + 1]["emitted_at"]) - report["first"]
            if gap < wait - 0.01:
                yield Violation("early", f"{event_id}: attempt {attempt + 1} came {gap:.3f} s after the report, {wait} are due", [job.id])
    ended = job.finished.get(event_id)
    if any("again" in step for step in behaviour) and seconds(seen[min(seen)]["due_at"]) > case.books.healed:
        return  # it may be retried after the end
    if ended and timely and not job.of("cancel") and ended[-1]["body"]["status"] != status:
        yield Violation("outcome", f"{event_id} ended as {ended[-1]['body']['status']}, its reports say {status}", [job.id])
    if ended:
        t = ended[0]["t"]
        late = [e for e in job.due if e["event_id"] == event_id and seconds(e["emitted_at"]) > t + 2]
        if late and not any("again" in step for step in behaviour) and ended[0]["body"]["status"] in {"succeeded", "dead"}:
            yield Violation("emitted again", f"{event_id}: attempt {late[0]['run']['attempt']} was emitted after its run had ended", [job.id])
        if status == "dead" and not job.of("cancel") and not any(
                d["body"].get("event_id") == event_id for d in job.dead) and not case.disturbed(t, case.end, 30):
            yield Violation("dead letter", f"{event_id} is dead, and no dead letter came", [job.id])


@rule
def only_the_owner_cancels(case: Case) -> Iterator[Violation]:
    """A run is cancelled only by a cancel from its job's tenant."""
    for job in case.books.jobs.values():
        if any(r["do"] == "cancel" and r["expect"] not in {"reject", "foreign"} for r in job.sent):
            continue
        for event_id, ended in job.finished.items():
            if any(record["body"]["status"] == "cancelled" for record in ended):
                yield Violation("tenancy", f"{event_id} was cancelled, but its tenant sent no cancel", [job.id])


@rule
def reported_in_time_is_not_lost(case: Case) -> Iterator[Violation]:
    """An attempt is not `lost` or `timed_out` if its worker's reports reached the broker in time."""
    reports = _reports(case)
    for run in case.history.of("exported"):
        for attempt in run["attempts"]:
            made = reports[run["event_id"], attempt["attempt"]]
            job = case.books.jobs.get(run["job"])
            policy = job.request["body"]["run"] if job and job.request else {}
            if attempt["outcome"] in {"lost", "timed_out"} and _in_time(made, policy):
                gap = max((b["confirmed"] - a["confirmed"] for a, b in pairwise(made)), default=0.0)
                yield Violation("healthy lost", f"{run['event_id']}: attempt {attempt['attempt']} is {attempt['outcome']}, but its worker "
                                f"reported every {gap:.1f} s and {made[-1]['status']} in the end", [run["job"]])


def _reports(case: Case) -> dict[tuple[str, int], list[Record]]:
    """Return the reports that the broker confirmed, by event and attempt, in the order of their confirms."""
    found: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for report in sorted((r for r in case.history.of("report") if "confirmed" in r), key=lambda r: r["confirmed"]):
        found[report["event_id"], report["attempt"]].append(report)
    return found


def _in_time(made: list[Record], policy: dict[str, Any]) -> bool:
    """Whether an attempt's reports came to its end, each within the heartbeat and all within the timeout."""
    if not made or made[-1]["status"] == "running":
        return False
    beats = [report["confirmed"] for report in made]
    promised = next((report["heartbeat"] for report in made if report.get("heartbeat")), float("inf"))
    longest = max((after - before for before, after in pairwise(beats)), default=0.0)
    delivered = made[0]["t"]  # when the host planned the report: it had the event then
    return (longest < promised - 1 and beats[-1] - beats[0] < policy.get("timeout", 300) - 5
            and beats[0] - delivered < policy.get("start_timeout", 3600) - 1)


@rule
def waiting_jobs_go_on(case: Case) -> Iterator[Violation]:
    """A job with `overlap: wait` is emitted again soon after its run has ended and its next occurrence is due."""
    if not case.history.host_reads or any(f["kind"] == "full" or f.get("rate") for f in case.faults):
        return
    for job in case.books.jobs.values():
        request = job.request
        if request is None or not job.simple or job.of("cancel") or len(job.of("request")) > 1 or "every" not in request["body"]:
            continue
        again = any("again" in step for step in request.get("behaviour") or ())
        if request["body"].get("run", {}).get("overlap") != "wait" or again:
            continue
        step = model.interval(request["body"]["every"])
        events = sorted(job.emitted.values(), key=lambda event: event["t"])
        for before, after in pairwise([*events, None]):
            ended = job.finished.get(before["event_id"])
            begin = max(ended[0]["t"], seconds(before["due_at"])) + step if ended else math.inf
            for late in stall(case, "runs", begin, after["t"] if after else case.end):
                yield Violation("held", f"a job with `overlap: wait` after its run had ended: {late.text}", [job.id])


@rule
def snoozed_runs_go_on(case: Case) -> Iterator[Violation]:
    """A snoozed run is emitted again soon after the report and the end of the snooze, at every repetition."""
    if not case.history.host_reads or any(f["kind"] == "full" or f.get("rate") for f in case.faults):
        return
    reports = _reports(case)
    for job in case.books.jobs.values():
        request = job.request
        if request is None or not job.simple or job.of("cancel") or len(job.of("request")) > 1 or "run" not in request["body"]:
            continue
        came = {(e["event_id"], e["run"]["attempt"]): e["t"] for e in reversed(job.due) if e["run"]}
        for event_id, attempt in came:
            step, made = _step(request, attempt), reports[event_id, attempt]
            if step.get("o") != "snooze" or "extra" in step or not _in_time(made, request["body"]["run"]):
                continue
            begin = made[-1]["confirmed"] + step.get("in", 0)
            end = min([came.get((event_id, attempt + 1), case.end), *(r["t"] for r in job.finished.get(event_id, ()))])
            for late in stall(case, "runs", begin, end):
                yield Violation("stall", f"{event_id} was snoozed at attempt {attempt}: {late.text}", [job.id])


def _step(request: Record, attempt: int) -> dict[str, Any]:
    """Return the host's action at an attempt, or nothing if none was drawn."""
    behaviour = request.get("behaviour") or [{}]
    return behaviour[min(attempt, len(behaviour)) - 1]


@rule
def no_execution_side_by_side(case: Case) -> Iterator[Violation]:
    """Handlers and commands of one event never overlap, unless their own worker was frozen or cut off."""
    spans: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for key, entries in _executions(case).items():
        spans[key[0]] += [(b, e, key[1]) for b, e in entries]
    excuses = {"freeze", "partition", "kill", "slow"}
    for event_id, made in spans.items():
        made.sort()
        for (_, end, one), (begin, _, two) in pairwise(made):
            if begin < end - 0.05 and not case.disturbed(begin, end, 40, excuses):
                yield Violation("side by side", f"{event_id}: attempt {two} began {end - begin:.1f} s before attempt {one} ended",
                                [case.books.by_event.get(event_id, event_id)])
                break


@rule
def handlers_end(case: Case) -> Iterator[Violation]:
    """A handler that returned is not called again indefinitely."""
    by_event: dict[str, list[tuple[float, float]]] = defaultdict(list)
    owners = {}
    for (event_id, _), entries in _executions(case).items():
        by_event[event_id] += entries
    for entry in case.history.of("did"):
        owners[entry["event_id"]] = entry["job"]
    faults = sum(1 for f in case.faults if f["kind"] in {"kill", "cut", "broker", "freeze", "partition", "stop_gently", "slow"})
    for event_id, made in by_event.items():
        job = case.books.jobs.get(owners[event_id])
        run = job.request["body"].get("run") if job and job.request else None
        allowed = 1 + 2 * faults
        if len(made) > allowed and not (job and job.family == "commands"):
            yield Violation("repeats", f"{event_id}: its {'tracked' if run else 'untracked'} handler ran to its end {len(made)} times",
                            [owners[event_id]])


@rule
def coroutines_run(case: Case) -> Iterator[Violation]:
    ran = {entry["job"] for entry in case.history.of("did") if entry["did"] == "end"}
    others = [job for job in case.books.jobs.values() if job.family == "handlers" and "sync" in str(job.request and job.request["body"]["job_type"])]
    sound = all(job.id in ran for job in others)  # nothing else kept the queue from being worked off
    for job in case.books.jobs.values():
        if job.family == "handlers" and job.request and "coroutine" in job.request["body"]["job_type"] and job.id not in ran:
            told = [r for several in job.finished.values() for r in several]
            if told or ("run" not in job.request["body"] and sound):
                yield Violation("handler not run", f"an `async def` handler never ran; its run: {[r['body']['status'] for r in told]}", [job.id])


def _executions(case: Case) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """Return the finished executions by event and attempt."""
    begun: dict[tuple[str, int], list[float]] = defaultdict(list)
    done: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for entry in sorted(case.history.of("did"), key=lambda e: e["t"]):
        key = (entry["event_id"], entry["attempt"])
        if entry["did"] == "begin":
            begun[key].append(entry["t"])
        elif begun[key]:
            done[key].append((begun[key].pop(0), entry["t"]))
    return done
