"""Rules about the system: it makes progress while servers respond, fits its memory, and does not crash."""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from torture.checker import Case, Violation, concerns, rule, victim
from torture.history import Record, seconds

CALM_GAP = 8.0  # counted seconds without progress; the promise is 5
TAKEOVER = 35.0  # a replica that dies, freezes or is cut off delays its rows by at most 30 s
LIMITS = {"producer": 256, "consumer": 384, "worker": 512, "api": 384, "outbox": 256, "handlers": 512}
BROKER_CONNECTS, DATABASE_CONNECTS, WINDOW = 6, 25, 20.0


PIPELINES = {"emission": {"producer"}, "commands": {"consumer"}, "runs": {"producer", "consumer"},
             "webhooks": {"producer", "consumer", "worker"}, "outbox": {"outbox"}}
# A command waits for the batch before its own. A batch with commands of every kind, of which one waits in vain for a
# row that a producer has locked, takes 18 round trips to the database; without that it takes 13.
ROUND_TRIPS = {"commands": 36}
AWAY = {"kill", "freeze", "partition", "broker", "database"}


def _allowed(case: Case, pipeline: str, begin: float, end: float) -> float:
    """Return the longest acceptable pause of a pipeline in this time."""
    near = [f for f in case.faults_in(begin - TAKEOVER, end) if concerns(f, PIPELINES[pipeline])]
    if any(f["kind"] in AWAY | {"cut", "stop_gently"} for f in near):
        longest = max((min(f.get("ended", end), end) - max(f["t"], begin) for f in near
                       if f["kind"] in AWAY and _whole(case, f)), default=0.0)
        return TAKEOVER + max(0.0, longest)
    slow = [f for f in near if f["kind"] == "slow"]
    round_trip = 2 * max((f.get("delay", 0.0) for f in slow), default=0.0)
    return CALM_GAP + ROUND_TRIPS.get(pipeline, 15) * round_trip + (10 if slow else 0)


def _whole(case: Case, fault: Record) -> bool:
    """Whether a fault stops all members of a role, so that the role cannot continue."""
    who = victim(fault)
    return "-" not in who or case.plan["fleet"].get(who.split("-")[0], 0) < 2


@rule
def emission_goes_on(case: Case) -> Iterator[Violation]:
    """The canaries come without long gaps: emission and the ends of runs."""
    asked = [r for r in case.history.of("sent") if r["family"] == "canary" and "every" in r.get("body", {})]
    if not asked or not case.history.host_reads or any(f["kind"] == "full" for f in case.faults):
        return
    if not all("answered" in r for r in asked):
        return
    begin = max(r["answered"] for r in asked) + 2
    narrow = any(f.get("rate") for f in case.faults)  # large events may keep small ones waiting there
    times = {"emission": [e["t"] for e in case.history.of("due") if narrow or e["job_type"] == "canary.emit"],
             "runs": [e["t"] for e in case.history.of("finished", *(["due"] if narrow else []))
                      if narrow or e["body"]["job_type"] == "canary.run"]}
    for pipeline, seen in times.items():
        for before, after in pairwise([begin, *(t for t in sorted(seen) if begin < t < case.end), case.end]):
            yield from stall(case, pipeline, before, after)


@rule
def commands_are_stored(case: Case) -> Iterator[Violation]:
    """Each canary's request is answered soon after the broker has it."""
    for record in case.history.of("sent"):
        if record["family"] == "canary" and "confirmed" in record:
            found = list(stall(case, "commands", record["confirmed"], record.get("answered", case.end)))
            if found and not case.disturbed(record["confirmed"], case.end, 0, {"broker"}):
                yield from found


def stall(case: Case, pipeline: str, before: float, after: float) -> Iterator[Violation]:
    """Yield a violation if a pipeline made no progress between two times for longer than it may."""
    counted = case.counted(before, after)
    if counted > (allowed := _allowed(case, pipeline, before, after)):
        yield Violation("stall", f"{pipeline}: nothing for {after - before:.1f} s (of which {counted:.1f} count, {allowed:.0f} "
                        f"are allowed), {before - case.history.began:.1f} s after the begin")


@rule
def webhooks_are_not_delayed(case: Case) -> Iterator[Violation]:
    """A slow or dead endpoint never delays others: calls that answer at once come soon."""
    for job in case.books.jobs.values():
        request = job.request
        if request is None or job.family != "webhooks" or "every" in request["body"]:
            continue
        for records in job.finished.values():
            took = records[0]["t"] - max(request["first"], seconds(request["body"]["run_at"]))
            counted = case.counted(records[0]["t"] - took, records[0]["t"])
            if records[0]["body"]["status"] == "succeeded" and counted > 20 + _allowed(case, "webhooks", records[0]["t"] - took, records[0]["t"]):
                yield Violation("stall", f"a webhook took {took:.1f} s from due to finished", [job.id])


@rule
def memory_fits(case: Case) -> Iterator[Violation]:
    """Each process stays below the limit of its Kubernetes manifest."""
    peaks: dict[str, int] = defaultdict(int)
    for sample in case.history.of("rss"):
        peaks[sample["member"]] = max(peaks[sample["member"]], sample["bytes"])
    for member, peak in peaks.items():
        limit = _limit(case, member.partition("-")[0])
        if limit and peak > limit * 2**20:
            yield Violation("memory", f"{member} used {peak / 2**20:.0f} MiB, its limit is {limit} MiB")


def _first_connections(case: Case) -> dict[str, list[float]]:
    """Return when members connected first after each start; on a busy machine that may take half a minute."""
    first: dict[str, list[float]] = defaultdict(list)
    starting: set[str] = set()
    for record in case.history.of("started", "accept"):
        member = record.get("member") or record["link"].partition("/")[0]
        if record["what"] == "started":
            starting.add(member)
        elif member in starting:
            starting.remove(member)
            first[member].append(record["t"])
    return first


def _limit(case: Case, role: str) -> int | None:
    manifest = case.code / "deploy" / "kubernetes" / "base" / f"{role}.yaml"
    if manifest.exists() and (found := re.search(r"limits: \{[^}]*memory: (\d+)Mi", manifest.read_text(encoding="utf-8"))):
        return int(found[1])
    return LIMITS.get(role)


@rule
def connections_last(case: Case) -> Iterator[Violation]:
    """No process reconnects repeatedly while the servers respond."""
    starts = _first_connections(case)
    times: dict[str, list[float]] = defaultdict(list)
    excuse = {"cut", "partition", "broker", "database", "freeze"}
    for record in case.history.of("accept"):
        t, member = record["t"], record["link"].partition("/")[0]
        young = t < case.history.began or any(0 <= t - at < 15 for at in starts[member])
        if not young and not case.disturbed(t, t, 20, excuse):
            times[record["link"]].append(t)
    for link, made in times.items():
        most = BROKER_CONNECTS if link.endswith("broker") else DATABASE_CONNECTS
        worst = max((sum(1 for other in made if at <= other < at + WINDOW) for at in made), default=0)
        if worst > most and not link.startswith("api"):
            yield Violation("connection loop", f"{link}: {worst} connections within {WINDOW:.0f} s, {len(made)} in all")


@rule
def nobody_crashes(case: Case) -> Iterator[Violation]:
    for record in case.history.of("ended"):
        if not record["ordered"]:
            yield Violation("crash", f"{record['member']} ended by itself with code {record['code']}")
    for record in case.history.of("stopped"):
        if record["code"] not in {0, None}:
            yield Violation("crash", f"{record['member']} did not stop in order: code {record['code']}")
