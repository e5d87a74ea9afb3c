"""Families of tracked jobs: attempts, overlaps, snoozes, triggers, retries, timeouts, large outputs."""

from collections.abc import Iterator

from torture.families import tenancy
from torture.generator import Draw, Step, at, behaviour, command, dress, family, properties, request


@family
def tracked(draw: Draw) -> Iterator[Step]:
    """Runs that fail, snooze and succeed, by one-shots and by schedules, with every policy."""
    beat = draw.get("beat")
    for n in range(draw.count):
        attempts = draw.pick(1, 2, 3, 5)
        run = {"max_attempts": attempts, "timeout": draw.get("timeout", 120), "overlap": draw.get("overlap") or draw.pick(
            "allow", "skip", "wait")}
        run["backoff"] = draw.pick([0.2], [0, 0.5, 1], "fixed", "linear", "exponential")
        if not isinstance(run["backoff"], list):
            run |= {"delay": draw.pick(0, 0.3, 1), "max_delay": draw.pick(1, 5)}
        do = behaviour(draw, attempts, beat=beat)
        if hold := draw.get("hold"):
            do[-1] = {"o": "ok", "hold": round(draw.rng.uniform(*hold), 2), "beat": beat or 2}
        body = dress(draw, {"payload": {"n": n, "do": do}, "run": run, "run_at": at(draw.when(1, draw.length * 0.7))})
        if draw.chance(draw.get("recur", 0.3)):
            body |= {"every": draw.pick(1, 2, 5), "on_missed": draw.pick("latest", "all", "skip"), "run_at": at(draw.when(1, 5))}
        yield request(draw.when(0, 1), draw.id(n), body, **properties(draw))
        if draw.chance(0.05):
            yield command(draw.when(5, draw.length), "cancel", draw.id(n), tenancy(body))


@family
def holds(draw: Draw) -> Iterator[Step]:
    """Many jobs every second that wait for (or skip over) their open run; the host answers at once."""
    for n in range(draw.count):
        hold = draw.pick(*draw.get("hold", [0, 0, 0, 1.5]))
        run = {"overlap": draw.get("overlap", "wait"), "max_attempts": 2, "backoff": [0.5], "timeout": 300}
        yield request(draw.when(0, 4), draw.id(n), {
            "every": 1, "run_at": at(draw.when(1, 6)), "on_missed": draw.pick("latest", "latest", "all", "skip"),
            "run": run, "payload": {"n": n, "do": [{"o": "ok", **({"hold": hold} if hold else {})}]}}, quiet=True)


@family
def snoozers(draw: Draw) -> Iterator[Step]:
    """Runs that are snoozed repeatedly without a delay."""
    for n in range(draw.count):
        times = draw.get("times", 1000)
        yield request(draw.when(0, 1), draw.id(n), {
            "run_at": at(1), "run": {"max_attempts": 1, "timeout": 600},
            "payload": {"n": n, "do": [*[{"o": "snooze", "in": 0}] * times, {"o": "ok"}]}})


@family
def triggers(draw: Draw) -> Iterator[Step]:
    """Thousands of triggers of a few jobs."""
    for n in range(draw.get("jobs", 3)):
        body = {"run_at": at(draw.length + 3600), "payload": {"n": n, "do": [{"o": "ok"}]}}
        if draw.chance(0.6):
            body["run"] = {"overlap": draw.pick("allow", "wait"), "max_attempts": 1}
        yield request(0, draw.id(n), body)
        for _ in range(draw.count):
            yield command(draw.when(2, 12), "trigger", draw.id(n), quiet=True)


@family
def poked(draw: Draw) -> Iterator[Step]:
    """Jobs that get commands all the time, some with open runs; the nemesis locks their rows."""
    for n in range(draw.count):
        body = {"run_at": at(1.0), "every": 2, "payload": {"n": n, "do": [{"o": "ok", "hold": 4.0, "beat": 4}]},
                "run": {"overlap": "allow", "max_attempts": 2, "backoff": [0.5], "timeout": 120}}
        yield request(0.1, draw.id(n), {**body, "issued_at": at(0)})
        for k in range(1, int(draw.length // 4)):
            yield request(4.0 * k + draw.rng.random(), draw.id(n), {**body, "name": f"poke {k}", "issued_at": at(4.0 * k)})


@family
def outputs(draw: Draw) -> Iterator[Step]:
    """Runs whose results carry large outputs."""
    for n in range(draw.count):
        yield request(draw.when(0, 1), draw.id(n), {
            "run_at": at(draw.when(2, 4)), "run": {"max_attempts": 1},
            "payload": {"do": [{"o": "ok", "size": draw.rng.randint(*draw.get("size", [60_000, 400_000]))}]}}, quiet=True)


@family
def timeouts(draw: Draw) -> Iterator[Step]:
    """Workers that stop reporting: before they start, between heartbeats, or until the time limit."""
    for n in range(draw.count):
        run = {"max_attempts": draw.pick(1, 2), "backoff": [0.2], "timeout": draw.pick(1, 3), "start_timeout": draw.pick(1, 4)}
        do = [{"o": "silent", **draw.pick({}, {"hold": 0.1, "beat": 1}, {"hold": 20, "beat": 2})}, {"o": draw.pick("silent", "ok")}]
        yield request(draw.when(0, 1), draw.id(n), {
            "run_at": at(draw.when(2, draw.length * 0.6)), "run": run, "payload": {"n": n, "do": do}})


@family
def retries(draw: Draw) -> Iterator[Step]:
    """Dead runs that are retried, some with jobs held by their open run."""
    for n in range(draw.count):
        do = [{"o": "fail"}, {"o": draw.pick("fail", "giveup"), "again": draw.pick(0.2, 2)}, {"o": "ok"}]
        body = {"run_at": at(draw.when(2, 8)), "payload": {"n": n, "do": do}, "run": {
            "max_attempts": 2, "backoff": [0.2], "overlap": draw.pick("allow", "wait", "skip")}}
        if draw.chance(0.6):
            body["every"] = draw.pick(1, 2)
        yield request(draw.when(0, 1), draw.id(n), body)


@family
def stolen_results(draw: Draw) -> Iterator[Step]:
    """Another tenant reports success for runs that fail: it changes nothing."""
    for n in range(draw.count):
        do = [{"o": "fail", "hold": 1.0, "evil": draw.pick("evil", "default", "acme2")}]
        yield request(draw.when(0, 1), draw.id(n), {
            "tenant": "acme", "run_at": at(draw.when(2, draw.length * 0.6)), "payload": {"n": n, "do": do},
            "run": {"max_attempts": 1}})


@family
def held_lives(draw: Draw) -> Iterator[Step]:
    """Jobs held by their open run while they are replaced, triggered, paused and resumed."""
    for n in range(draw.count):
        body = {"run_at": at(2.0), "every": 1, "payload": {"n": n, "do": [{"o": "ok", "hold": draw.pick(0, 1.5, 4), "beat": 5}]},
                "run": {"overlap": "wait", "max_attempts": 2, "backoff": [0.3]}, "on_missed": draw.pick("latest", "skip")}
        yield request(0.5, draw.id(n), {**body, "issued_at": at(0)})
        for k in range(draw.rng.randint(1, 4)):
            when = draw.when(4, draw.length - 5)
            match draw.pick("name", "trigger", "pause"):
                case "name":
                    yield request(when, draw.id(n), {**body, "name": f"n{k}", "issued_at": at(when)})
                case "trigger":
                    yield command(when, "trigger", draw.id(n))
                case _:
                    yield command(when, "pause", draw.id(n), {"issued_at": at(when)})
                    yield command(when + 2, "resume", draw.id(n), {"issued_at": at(when + 2)})


@family
def odd_results(draw: Draw) -> Iterator[Step]:
    """Results at and beyond every limit: each is recorded or rejected, alone."""
    deep: list[object] = []
    for _ in range(200):
        deep = [deep]
    odd = [{"retry_in": 1e300}, {"retry_in": 3e11}, {"retry_in": 2.6e11}, {"retry_in": -5}, {"output": "\u0000"}, {"output": {"\ud800": 1}}, {"output": 10**400},
           {"output": deep}, {"error": "\u0000"}, {"error": "e" * 100_000}, {"worker": "\u0000"}, {"started_at": "0001-01-01T00:00:00Z"},
           {"started_at": "9999-12-31T23:59:59.999999Z", "finished_at": "0001-01-01T00:00:00Z"}, {"attempt": 2**31}, {"attempt": 2**63}, {"attempt": 10**30},
           {"status": "running", "heartbeat": 1e300}, {"status": "running", "heartbeat": 3e11}, {"status": "running", "progress": 7}, {"status": "done"}]
    for n in range(draw.count):
        do = [{"o": draw.pick("fail", "snooze", "ok"), "in": 0.5, "extra": draw.pick(*odd)}, {"o": "ok"}]
        if do[0]["o"] == "ok":
            del do[0]["in"]
        yield request(draw.when(0, 1), draw.id(n), {
            "run_at": at(draw.when(2, draw.length * 0.6)), "run": {"max_attempts": 2, "backoff": [0.5]}, "payload": {"n": n, "do": do}},
            expect="any", unsure=True)
