"""Sorts a history by job: what was asked, what came, and what is still outstanding."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from torture import model
from torture.history import History, Record, seconds

Group = dict[str, Any]


class Job:
    """Everything about one id."""

    def __init__(self, job: str) -> None:
        self.id = job
        self.sent: list[Record] = []
        self.due: list[Record] = []
        self.missed: list[Record] = []
        self.finished: dict[str, list[Record]] = defaultdict(list)
        self.dead: list[Record] = []

    @property
    def family(self) -> str:
        return self.sent[0]["family"]

    def of(self, kind: str) -> list[Record]:
        """Commands of a kind that were sent and not rejected, by their `issued_at`."""
        taken = [r for r in self.sent if r["do"] == kind and "first" in r and "gave_up" not in r and not r.get("rejected")
                 and r["expect"] not in {"reject", "foreign"} and "body" in r]
        return sorted(taken, key=model.issued)

    @property
    def request(self) -> Record | None:
        """The request that wins, if any was accepted."""
        requests = self.of("request")
        return requests[-1] if requests else None

    @property
    def simple(self) -> bool:
        """One schedule for life: every request has the same schedule, and nothing paused or triggered the job."""
        schedules = {tuple(str(r["body"].get(name)) for name in model.SCHEDULE) for r in self.of("request")}
        return len(schedules) == 1 and not any(self.of(kind) for kind in ("pause", "resume", "trigger"))

    @property
    def stopped(self) -> bool:
        """Whether the job is, or may be, cancelled or paused in the end, by the order of `issued_at`."""
        cancels, pauses, resumes = self.of("cancel"), self.of("pause"), self.of("resume")
        if not cancels and not pauses:
            return False
        if any("issued_at" not in r["body"] for r in [*cancels, *pauses, *resumes, *self.of("request")]):
            return True
        newest = {kind: max(map(model.issued, found), default=float("-inf")) for kind, found in (
            ("cancel", cancels), ("pause", pauses), ("resume", resumes), ("request", self.of("request")))}
        return newest["cancel"] >= newest["request"] or (bool(pauses) and newest["pause"] >= newest["resume"])

    @property
    def emitted(self) -> dict[float, Record]:
        """First deliveries of each instant, by instant."""
        found: dict[float, Record] = {}
        for event in self.due:
            if not event["run"] or event["run"]["attempt"] == 1:
                found.setdefault(seconds(event["due_at"]), event)
        return found

    @property
    def passed(self) -> set[float]:
        return {seconds(at) for record in self.missed for at in record["body"]["missed"]}

    def accounted(self) -> set[float]:
        known = set(self.emitted) | self.passed
        return known | {seconds(r["body"]["due_at"]) for records in self.finished.values() for r in records}


class Books:
    def __init__(self, history: History) -> None:
        self.history = history
        self.jobs: dict[str, Job] = {}
        self.by_event: dict[str, str] = {}
        replies: dict[str, list[Record]] = defaultdict(list)
        self.delayed: dict[str, list[Record]] = defaultdict(list)
        self.healed: float | None = None
        for record in history.of("reply", "healed", "delayed"):
            if record["what"] == "reply":
                replies[record["to"]].append(record)
            elif record["what"] == "healed":
                self.healed = record["t"]
            else:
                self.delayed[record["message_id"]].append(record)
        for record in history.of("sent"):
            if record.get("via") in {"api", "cli"}:
                pass  # answered where it was sent
            elif answers := replies.get(record["cid"]):
                record["answered"], record["reply"] = answers[0]["t"], answers[0]
                record["rejected"] = answers[0]["type"] == "ScheduleRejected"
            self.jobs.setdefault(record["job"], Job(record["job"])).sent.append(record)
        for record in history.of("rejected"):
            if (job := self.jobs.get(str(record["body"].get("id")))) and len(job.sent) == 1:
                job.sent[0]["rejected"] = True
        for record in history.of("due", "missed", "finished", "dead"):
            self._file(record)

    def _file(self, record: Record) -> None:
        body = record if record["what"] == "due" else record["body"]
        job = self.jobs.get(str(body.get("job_id")))
        if job is None:
            return
        match record["what"]:
            case "due":
                job.due.append(record)
                self.by_event[record["event_id"]] = job.id
            case "missed":
                job.missed.append(record)
            case "finished":
                job.finished[body["event_id"]].append(record)
                self.by_event[body["event_id"]] = job.id
            case "dead":
                job.dead.append(record)

    def outstanding(self, journal: list[dict[str, Any]]) -> dict[str, str]:
        """Return the jobs that still owe something, with what it is; for the time after everything was healed."""
        owed: dict[str, str] = {}
        done = {entry["job"] for entry in journal if entry["what"] == "end"}
        for job in self.jobs.values():
            if problem := self._owes(job, done):
                owed[job.id] = problem
        return owed

    def attempts(self, owed: Iterable[str]) -> int:
        """Count the attempts of these jobs' open runs: a run with thousands of snoozes goes on without ending."""
        jobs = [self.jobs[job] for job in owed]
        return len({(event["event_id"], event["run"]["attempt"]) for job in jobs for event in job.due
                    if event["run"] and event["event_id"] not in job.finished})

    def _owes(self, job: Job, done: set[str]) -> str | None:
        first, request = job.sent[0], job.request
        if first["do"] == "delay":
            bad = first.get("gave_up") or first["expect"] == "any" or len(job.sent) > 1 or "first" not in first
            return None if bad or self.delayed[job.id] else "a delayed message did not come out"
        if request is None or job.stopped or request.get("unsure") or request.get("reaches") is False or "confirmed" not in request:
            return None
        if request["family"] == "handlers":
            ran = job.id in done and ("run" not in request["body"] or job.finished)
            return None if ran or "coroutine" in request["body"]["job_type"] else "its handler did not run to a known end"
        unsure = request["expect"] == "any" and "answered" not in request and request.get("via") not in {"api", "cli"}
        if unsure or not self.history.host_reads:
            return None
        return self._owes_events(job, request) or self._owes_ends(job, request)

    def _owes_events(self, job: Job, request: Record) -> str | None:
        body, known = request["body"], job.accounted()
        planned = model.instants(body, request.get("answered", request["confirmed"]), self.healed)
        if not planned:
            return None
        if body.get("run", {}).get("overlap") == "wait" and not model.ends(body):
            return self._owes_held(job)
        if not model.ends(body):
            return None if max(known, default=0) >= planned[-1] else "newest occurrence neither emitted nor missed"
        left = [at for at in planned if at not in known] if job.simple and request["expect"] != "any" else []
        if left and not self._counted(job, left):
            return f"{len(left)} of {len(planned)} occurrences neither emitted nor missed"
        if not model.recurs(body) and request["expect"] != "any" and planned[0] not in known:
            return "the newest request's occurrence neither emitted nor missed"
        return None if known else "not emitted"

    def _owes_held(self, job: Job) -> str | None:
        """A job that waits for its runs goes on when they end, one run at a time, however far behind it is."""
        newest = max((event["t"] for event in [*job.due, *job.missed]), default=0.0)
        passed = job.passed
        is_open = any(not job.finished.get(event["event_id"]) for event in job.due if seconds(event["due_at"]) not in passed)
        return None if is_open or newest >= self.healed else "held, though no run is open"

    def _owes_ends(self, job: Job, request: Record) -> str | None:
        if "run" not in request["body"] and not request.get("target"):
            return None
        passed = job.passed  # published, not settled, and passed over in the end: no run of it is left
        begun = {r["event_id"] for r in job.due if r["t"] <= self.healed and seconds(r["due_at"]) not in passed}
        again = any("again" in step for step in request.get("behaviour") or ())
        if left := [event for event in begun if not job.finished.get(event) or (
                again and job.finished[event][-1]["body"]["status"] == "dead")]:
            return f"{len(left)} runs are open"
        return "no run has ended" if request.get("target") and not job.finished else None

    @staticmethod
    def _counted(job: Job, left: list[float]) -> bool:
        """Whether the counts of ScheduleMissed cover what their lists had no room for."""
        return len(left) <= sum(r["body"]["missed_count"] - len(r["body"]["missed"]) for r in job.missed)
