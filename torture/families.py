"""Families of jobs whose events the host receives: schedules, lives of commands, tenants."""

from collections.abc import Iterator

from torture.generator import LIMIT, Draw, Step, at, command, dress, family, filler, properties, request


@family
def canary(draw: Draw) -> Iterator[Step]:
    """Small steady work in every pipeline; the checker measures its gaps."""
    for n in range(5):
        yield request(0, draw.id(n, "emit"), {"job_type": "canary.emit", "every": 1, "run_at": at(1 + n / 5)})
    for n in range(2):
        yield request(0, draw.id(n, "run"), {
            "job_type": "canary.run", "every": 1, "run_at": at(1.3 + n / 2), "payload": {"do": [{"o": "ok"}]},
            "run": {"max_attempts": 3, "backoff": [1], "timeout": 60}})
    for n in range(int(draw.length)):
        yield request(n + 0.5, draw.id(n, "ask"), {"job_type": "canary.ask", "run_at": at(n + 1.5)})


@family
def oneshots(draw: Draw) -> Iterator[Step]:
    for n in range(draw.count):
        due = draw.when(-5, draw.length)
        sent = draw.when(0, max(0.1, min(due, draw.length * 0.8)))
        body = dress(draw, {"run_at": at(due), "payload": {"n": n}})
        if draw.chance(0.15):
            body["max_lateness"] = draw.pick(0, 2, 60)
        if draw.chance(0.1):
            body["on_missed"] = draw.pick("skip", "all", "latest")
        yield request(sent, draw.id(n), body, **properties(draw))
        if draw.chance(0.1):
            yield command(draw.when(sent, draw.length), "cancel", draw.id(n), tenancy(body))


@family
def recurring(draw: Draw) -> Iterator[Step]:
    for n in range(draw.count):
        start = draw.when(-3, 6)
        body = dress(draw, {"payload": {"n": n}, "on_missed": draw.get("on_missed") or draw.pick("latest", "all", "skip")})
        match draw.pick(*draw.get("kinds", ["every", "every", "rrule", "rdate", "cron"])):
            case "every":
                body |= {"every": draw.pick(1, 1, 2, "PT3S", 0.5 if draw.get("fractions") else 2), "run_at": at(start)}
            case "rrule":
                body |= {"rrule": f"FREQ=SECONDLY;INTERVAL={draw.pick(1, 2, 3)};COUNT={draw.pick(5, 20, 300)}",
                         "run_at": at(float(int(start)))}
            case "rdate":
                body |= {"rrule": "FREQ=SECONDLY;INTERVAL=5;COUNT=8", "run_at": at(float(int(start)))}
            case "cron":
                body |= {"cron": "* * * * *"}
        if past := draw.get("past"):
            body["run_at"] = at(-draw.rng.uniform(0, past))
        yield request(draw.when(0, 3), draw.id(n), body, **properties(draw))


@family
def resend(draw: Draw) -> Iterator[Step]:
    """The same request again after its occurrences were emitted or have ended: unchanged, or with another name."""
    for n in range(draw.count):
        tracked, due = draw.chance(0.5), draw.when(1, 4)
        body = dress(draw, {"run_at": at(due), "payload": {"n": n, "do": [{"o": "ok"}]}})
        if tracked:
            body["run"] = {"max_attempts": 2, "backoff": [0.5]}
        if draw.chance(0.4):
            body |= {"rrule": "FREQ=SECONDLY;COUNT=3", "run_at": at(float(int(due)))}
        yield request(0.2, draw.id(n), {**body, "issued_at": at(0)})
        for k in range(draw.pick(1, 2, 3)):
            late = draw.when(12, draw.length)
            match draw.pick("same", "name", "payload", "later"):
                case "same":
                    again = {**body, "issued_at": at(0)}
                case "name":
                    again = {**body, "name": f"renamed {k}", "issued_at": at(late)}
                case "payload":
                    again = {**body, "payload": {**body["payload"], "k": k}, "issued_at": at(late)}
                case _:
                    again = {**body, "issued_at": at(late)}
            yield request(late, draw.id(n), again, settled=True)


@family
def lives(draw: Draw) -> Iterator[Step]:
    """Commands for one id with `issued_at`, repeated and out of order; and some without."""
    for n in range(draw.count):
        job, tenant = draw.id(n), tenancy(dress(draw, {}))
        commands = []
        for k in range(draw.rng.randint(2, 6)):
            issued = round(draw.length * 0.1 * (k + 1) + draw.rng.random(), 3)
            kind = draw.pick("request", "request", "cancel", "pause", "resume", "trigger") if k else "request"
            body = {**tenant, "issued_at": at(issued)}
            if kind == "request":
                body |= {"job_type": "torture", "run_at": at(issued + draw.rng.uniform(2, 8)), "payload": {"n": n, "k": k}}
                if draw.chance(0.4):
                    body["every"] = draw.pick(1, 2)
            elif kind == "trigger":
                body.pop("issued_at")
            commands.append((issued, kind, body))
        late = draw.chance(0.5)
        for issued, kind, body in commands:
            moved = issued + (draw.rng.uniform(0, 6) if late else 0)
            for _ in range(1 if kind == "trigger" or draw.chance(0.8) else 2):
                yield {"at": moved, "do": kind, "job": job, "body": {"id": job, **body}, "lane": draw.rng.randrange(3)}
                moved += draw.rng.uniform(0, 4)


@family
def overtaken(draw: Draw) -> Iterator[Step]:
    """Requests that arrive after a newer cancel, up to minutes later: for the first time, or redelivered."""
    for n in range(draw.count):
        tenant = draw.pick({}, {"tenant": "acme"})
        cancelled = draw.when(2, draw.length * 0.2)
        arrives = draw.when(cancelled, draw.length * 0.9)
        body = {**tenant, "run_at": at(arrives + draw.rng.uniform(-5, 5)), "payload": {"n": n},
                "issued_at": at(cancelled - draw.pick(0.001, 1, 60))}
        if draw.chance(0.3):
            body["every"] = draw.pick(1, 2)
        if draw.chance(0.5):
            yield request(0.5, draw.id(n), body)
        yield command(cancelled, "cancel", draw.id(n), {**tenant, "issued_at": at(cancelled)})
        yield request(arrives, draw.id(n), body)


@family
def odd_times(draw: Draw) -> Iterator[Step]:
    """Very old and far-future `issued_at`; beyond a day ahead a command may be rejected."""
    early, ahead, late = "0001-01-01T00:00:00Z", at(80_000), "9999-12-31T23:59:59Z"
    for n in range(draw.count):
        body = {"run_at": at(draw.when(5, draw.length)), "payload": {"n": n}}
        first, second = draw.pick(
            (early, None), (ahead, None), (late, None), (early, ahead), (ahead, early), (early, late), (late, early),
        )
        yield request(0.5, draw.id(n), body | {"issued_at": first}, expect="any" if first == late else "ok")
        more = {"issued_at": second} if second else {}
        unsure = late in (first, second)
        yield command(draw.when(1, 4), draw.pick("cancel", "pause"), draw.id(n), more, expect="any" if unsure else "ok")


@family
def heavy(draw: Draw) -> Iterator[Step]:
    """Payloads up to the limit, all due within a moment."""
    due = draw.get("due", 20.0)
    for n in range(draw.count):
        body = {"run_at": at(due + draw.rng.random()), "payload": filler(draw, draw.get("low", 200_000), LIMIT - 20)}
        if draw.get("run"):
            body |= {"run": {}, "payload": {**filler(draw, 200_000, LIMIT - 100), "do": [{"o": "ok"}]}}
        yield request(draw.when(0, due * 0.6), draw.id(n), body, quiet=True)


@family
def tenants(draw: Draw) -> Iterator[Step]:
    """Commands of other tenants for jobs that they do not own: each is rejected and changes nothing."""
    for n in range(draw.count):
        owner, other = draw.pick(("acme", "evil"), ("acme", "default"), ("default", "evil"))
        body = {"tenant": owner, "payload": {"n": n, "do": [{"o": "fail"}, {"o": "ok"}]}, "run_at": at(draw.when(6, draw.length))}
        if draw.chance(0.5):
            body["run"] = {"backoff": [3], "max_attempts": 3}
        yield request(0.5, draw.id(n), body | {"issued_at": at(0)})
        kind = draw.pick("cancel", "pause", "trigger", "request", "resume")
        stolen = {"tenant": other} if other != "default" or draw.chance(0.5) else {}
        if kind == "request":
            stolen |= {"run_at": at(draw.length + 900)}
            yield request(draw.when(3, draw.length), draw.id(n), stolen, expect="reject")
        else:
            yield command(draw.when(3, draw.length), kind, draw.id(n), stolen, expect="reject")


@family
def foreign_commands(draw: Draw) -> Iterator[Step]:
    """Commands from other tenants for one-shot jobs whose run stays open for long after its event was emitted."""
    for n in range(draw.count):
        owner, other = draw.pick(("acme", "evil"), ("acme", "default"), ("default", "evil"))
        due, hold = draw.when(1, 8), draw.when(2, draw.length * 0.8)
        do = [{"o": draw.pick("ok", "ok", "fail"), "hold": hold, "beat": 6}, {"o": "ok"}]
        yield request(0.5, draw.id(n), {"tenant": owner, "run_at": at(due), "payload": {"n": n, "do": do}, "issued_at": at(0),
                                        "run": {"max_attempts": 3, "backoff": [1], "timeout": 600}})
        for _ in range(draw.pick(1, 2)):
            yield command(draw.when(due + 1, due + hold), draw.pick("cancel", "cancel", "pause", "resume", "trigger"), draw.id(n),
                          {"tenant": other}, expect="foreign")


@family
def owned(draw: Draw) -> Iterator[Step]:
    """Requests of the broker's user; those without a user, or with another tenant, are rejected."""
    for n in range(draw.count):
        body = {"run_at": at(draw.when(3, draw.length)), "payload": {"n": n, "do": [{"o": "ok"}]}}
        if draw.chance(0.5):
            body["run"] = {"max_attempts": 2, "backoff": [0.5]}
        how = draw.pick("own", "own", "nobody", "other")
        more = {"own": {}, "nobody": {"user": None, "expect": "reject"}, "other": {"expect": "reject"}}[how]
        yield request(draw.when(0, 2), draw.id(n), body | ({"tenant": "other"} if how == "other" else {}), **more)


def tenancy(body: dict[str, object]) -> dict[str, object]:
    return {"tenant": body["tenant"]} if "tenant" in body else {}
