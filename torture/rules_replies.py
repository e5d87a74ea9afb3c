"""Rules about replies to commands: the owner's are accepted, other tenants' rejected, hostile ones isolated."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from torture import model
from torture.checker import Case, Violation, concerns, rule
from torture.rules_system import stall


@rule
def replies_as_predicted(case: Case) -> Iterator[Violation]:
    for record in case.history.of("sent"):
        if record.get("quiet") or record.get("via") == "outbox" or "confirmed" not in record or record["do"] == "delay":
            continue
        reply = record.get("reply")
        if reply is None:
            if not case.disturbed(record["first"], case.end, 0, {"broker"}):
                yield Violation("no reply", f"{record['family']}: {record['do']} was never answered", [record["job"]])
        elif record["expect"] == "ok" and record.get("rejected"):
            yield Violation("rejected", f"{record['family']}: {record['do']} was rejected: {reply['body'].get('errors')}", [record["job"]])
        elif record["expect"] == "reject" and not record.get("rejected"):
            yield Violation("tenancy", f"{record['do']} of another tenant was answered {reply['body']}", [record["job"]])


@rule
def older_requests_lose(case: Case) -> Iterator[Violation]:
    """A request older than a cancel that was answered before is not answered `scheduled`."""
    for job in case.books.jobs.values():
        for request in job.of("request"):
            reply = request.get("reply")
            if reply is None or not isinstance(reply["body"], dict) or "issued_at" not in request["body"]:
                continue
            newer = [r for r in job.of("cancel") if "issued_at" in r["body"] and r.get("answered", float("inf")) < request["first"]
                     and model.issued(r) > model.issued(request)]
            if newer and reply["body"].get("status") == "scheduled":
                yield Violation("after cancel", f"{job.family}: a request was answered `scheduled` {request['first'] - newer[-1]['answered']:.0f} s "
                                "after a newer cancel", [job.id])


@rule
def outbox_drains(case: Case) -> Iterator[Violation]:
    odd = {r["job"] for r in case.history.of("sent") if r["expect"] == "any"}
    stuck = [r for r in case.history.of("unsent") if r["job"] not in odd]
    if stuck:
        yield Violation("outbox", f"{len(stuck)} good rows are left in the outbox; one of them: {stuck[0]['problem']}",
                        [r["job"] for r in stuck[:20]])


@rule
def outbox_goes_on(case: Case) -> Iterator[Violation]:
    """While commands wait in the outbox, the relay publishes one that it has not published before."""
    written = {r["cid"]: r["first"] for r in case.history.of("sent") if r.get("via") == "outbox" and r["expect"] == "ok" and "first" in r}
    relayed: dict[str, float] = {}
    for record in case.history.of("relayed"):
        if record["cid"] in written:
            relayed.setdefault(record["cid"], record["t"])
    moments = sorted([*((t, 1) for t in written.values()), *((t, -1) for t in relayed.values()), (case.end, 0)])
    waiting, since = 0, 0.0
    for at, change in moments:
        if waiting > 0 and change <= 0:
            yield from stall(case, "outbox", since, at)
        if waiting <= 0 or change < 0:
            since = at
        waiting += change


@rule
def outbox_sends_once(case: Case) -> Iterator[Violation]:
    """A command is published once; again only if its relay was interrupted, and at most once more if it was slow."""
    near = [f for f in case.faults if concerns(f, {"outbox"})]
    most = 1 + sum(1 for f in near if f["kind"] != "slow") + any(f["kind"] == "slow" for f in near)
    written = {r["cid"]: r["job"] for r in case.history.of("sent") if r.get("via") == "outbox"}
    times = Counter(r["cid"] for r in case.history.of("relayed") if r["cid"] in written)
    if again := [cid for cid, count in times.items() if count > most]:
        yield Violation("outbox", f"{len(again)} commands were published more than {most} times, one of them {max(times.values())} times",
                        [written[cid] for cid in again[:20]])


@rule
def delayed_not_early(case: Case) -> Iterator[Violation]:
    for job in case.books.jobs.values():
        sent = job.sent[0]
        if sent["do"] != "delay" or "first" not in sent or "headers" not in sent:
            continue
        headers = sent["headers"]
        due = (headers["x-opt-delivery-time"] / 1000 if "x-opt-delivery-time" in headers
               else sent["first"] + int(float(headers["x-delay"])) / 1000)
        for out in case.books.delayed[job.id]:
            if out["t"] < due - 0.002:
                yield Violation("early", f"delayed message {job.id} came {due - out['t']:.3f} s early", [job.id])


@rule
def delayed_in_order(case: Case) -> Iterator[Violation]:
    """If one producer sends both, the first stored of two messages due at the same instant is sent first."""
    if case.plan["fleet"]["producer"] > 1 or not case.exactly_once:
        return
    sent = [job.sent[0] for job in case.books.jobs.values() if job.family == "delayed_in_order"]
    if any(record.get("publishes") != 1 for record in sent):
        return
    order = {record["job"]: n for n, record in enumerate(sorted(sent, key=lambda record: record["planned"]))}
    out = [order[r["message_id"]] for r in case.history.of("delayed") if r["message_id"] in order and not r["again"]]
    wrong = sum(1 for before, after in pairwise(out) if after < before)
    if wrong:
        yield Violation("order", f"{wrong} of {len(out)} delayed messages of the same instant came before one that was stored earlier")
