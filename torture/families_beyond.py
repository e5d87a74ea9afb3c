"""Families that reach beyond `mainapp_due`: routes, hostile messages, workers, handlers, outbox, delayed messages."""

from collections.abc import Iterator
from typing import Any

from torture.generator import LIMIT, Draw, Step, at, command, dress, family, filler, request

FRAME = 131_072  # RabbitMQ's default frame_max: a table in a header cannot be larger


@family
def routes(draw: Draw) -> Iterator[Step]:
    """Routes with a queue, and routes without one: events of the latter stay due and delay no others."""
    for n in range(draw.count):
        route = draw.pick(*draw.get("routes", ["fast", "slow.a", "nowhere", "no.one.listens"]))
        body = dress(draw, {"run_at": at(draw.when(1, draw.length * 0.7)), "route": route, "payload": {"n": n}})
        yield request(draw.when(0, 1), draw.id(n), body, reaches=not route.startswith("no"))


def _frames(draw: Draw) -> dict[str, Any]:
    """Draw headers up to the size of a frame."""
    brim = {"$frame": draw.pick(0, 1, 4, 20, 60, 100, 150, 200, 300, 500)}  # bytes short of a full frame
    return {"trace": {"traceparent": brim}, "state": {"headers": {draw.pick("tracestate", "other"): brim}},
            "table": {"headers": {f"h{k}": {"$fill": 1000} for k in range((FRAME - draw.pick(3000, 30_000)) // 1010)}},
            "types": {"headers": {"traceparent": draw.pick(7, None, True, [1], {"a": 1}, -2**40)}}}


def _raw(draw: Draw, job: str) -> dict[str, Any]:
    """Draw bodies that are not JSON, not a request, or not storable."""
    begin = f'{{"id": "{job}", "job_type": "x", "run_at": "2026-01-01T00:00:00Z", '
    odd = ['"payload": {"a": "\\u0000"}', '"payload": {"\\ud800": 1}', '"name": "\\u0000"', '"payload": {"a": 1e999}',
           '"payload": {"a": 1' + "0" * 5000 + "}", '"max_lateness": 1e300', '"payload": {"a": NaN}']
    return {"junk": {"raw": draw.pick("{", "[]", "nope", '{"id": 5}', "\u0000", *(begin + text + "}" for text in odd))},
            "deep": {"raw": begin + f'"payload": {{"a": {"[" * 9000}{"]" * 9000}}}}}'}}


def _schedules(draw: Draw) -> dict[str, Any]:
    """Draw rules that are impossible or began long ago."""
    return {"rule": {"rrule": draw.pick(
                "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30;BYHOUR=3",
                "FREQ=MINUTELY;BYSETPOS=-1;BYDAY=SU;BYMONTHDAY=29;BYMONTH=2", "FREQ=SECONDLY;COUNT=999999999")},
            "ancient": {"run_at": f"{draw.pick(1, 1970, 2000, 2020):04}-01-01T00:00:00Z", "on_missed": draw.pick("latest", "all", "skip"),
                        **draw.pick({"rrule": "FREQ=SECONDLY"}, {"rrule": "FREQ=SECONDLY;BYSECOND=0,30"}, {"every": 1},
                                    {"cron": "* * * * *"}, {"rrule": "FREQ=MINUTELY;BYHOUR=3"})}}


def _contents(draw: Draw) -> dict[str, Any]:
    """Draw fields of great size."""
    return {"keys": {"payload": {f"k{k}": k for k in range(draw.pick(10, 20_000))}},
            "backoff": {"run": {"backoff": [0.5] * draw.pick(10, 20_000), "max_attempts": 100}, "payload": {"do": [{"o": "ok"}]}},
            "target": {"run": {"max_attempts": 1}, "target": {"webhook": {
                "url": "http://127.0.0.1:9/" + "u" * 1900, "body": {"$fill": draw.pick(1, 250_000)}}}},
            "wide": {"payload": filler(draw, LIMIT - 50, LIMIT + 20)}}


@family
def hostile(draw: Draw) -> Iterator[Step]:
    """Messages that the broker accepts and that are hard to handle; each must be accepted or rejected, alone."""
    kinds = draw.get("kinds", ["table", "types", "junk", "deep", "keys", "rule", "ancient", "backoff", "target", "wide"])
    for n in range(draw.count):
        kind = draw.pick(*kinds)
        body = {"run_at": at(draw.when(3, draw.length * 0.6)), "payload": {"n": n}}
        body |= {**_schedules(draw), **_contents(draw)}.get(kind, {})
        more = {**_frames(draw), **_raw(draw, draw.id(n))}.get(kind, {})
        if kind == "target":
            more["reaches"] = False  # without a worker it stays due
        yield request(draw.when(0, 2), draw.id(n), body, expect="any", **more)


@family
def failing_dead(draw: Draw) -> Iterator[Step]:
    """Runs that become dead, with large trace headers and payloads: their dead letters must get out."""
    for n in range(draw.count):
        size = draw.pick({"$fill": 3000}, {"$frame": draw.pick(0, 50, 100, 200, 300, 500, 1000)})
        yield request(draw.when(0, 2), draw.id(n), {
            "run_at": at(draw.when(3, 10)), "run": {"max_attempts": draw.pick(1, 2), "backoff": [0.2]},
            "payload": {"do": [{"o": draw.pick("fail", "giveup")}]}}, traceparent=size, expect="any")


@family
def webhooks(draw: Draw) -> Iterator[Step]:
    """Webhooks to a local endpoint: fast, slow, failing, silent."""
    for n in range(draw.count):
        how = draw.pick(*draw.get("how", ["ok", "ok", "ok", "slow", "500", "429", "410", "hang"]))
        body = dress(draw, {"payload": {"n": n}, "run_at": at(draw.when(1, draw.length * 0.6)), "run": {
            "max_attempts": draw.pick(1, 2, 3), "backoff": [0.5], "timeout": 60}})
        webhook: dict[str, Any] = {"url": {"$url": f"/{how}/{n}"}, "timeout": draw.get("timeout", 8)}
        if draw.chance(0.3):
            webhook["body"] = {"at": "{{due_at}}", "n": "{{payload.n}}", "id": "{{event_id}}", "attempt": "{{attempt}}"}
        if draw.chance(draw.get("recur", 0.2)):
            body |= {"every": draw.pick(1, 2)}
        more = {"reaches": False} if how == "hang" else {}  # calls to such an endpoint are postponed by an unknown time
        yield request(draw.when(0, 1), draw.id(n), body | {"target": {"webhook": webhook}}, **more)


@family
def commands(draw: Draw) -> Iterator[Step]:
    """Commands of a worker, each writing a journal of when it began and ended."""
    for n in range(draw.count):
        seconds = round(draw.rng.uniform(*draw.get("lasts", [0, 3])), 2)
        body = {"payload": {"n": n}, "run_at": at(draw.when(1, draw.get("due", draw.length * 0.5))), "run": {
            "max_attempts": draw.pick(2, 3), "backoff": [0.5], "timeout": 200}}
        arguments = [str(seconds), str(draw.pick(0, 0, 0, 1) if draw.get("fail") else 0)]
        yield request(draw.when(0, 1), draw.id(n), body | {
            "target": {"command": {"name": "torture", "arguments": arguments}}}, lasts=seconds)


@family
def handlers(draw: Draw) -> Iterator[Step]:
    """Jobs for handlers of the client library's Runner: synchronous, `async def`, longer than limits."""
    for n in range(draw.count):
        how = draw.pick(*draw.get("how", ["sync", "sync", "coroutine", "long"]))
        seconds = 0.1 if how != "long" else round(draw.rng.uniform(*draw.get("lasts", [6, 12])), 2)
        body: dict[str, Any] = {"job_type": f"handle.{'coroutine' if how == 'coroutine' else 'sync'}",
                                "payload": {"n": n, "seconds": seconds, "how": how},
                                "run_at": at(draw.when(1, draw.get("due", draw.length * 0.5)))}
        if draw.chance(draw.get("run", 0.6)):
            body["run"] = {"max_attempts": 2, "backoff": [0.5], "timeout": 120}
        yield request(draw.when(0, 1), draw.id(n), body, lasts=seconds)


@family
def outbox(draw: Draw) -> Iterator[Step]:
    """Commands through the host's outbox, written singly or in bursts, some of which no broker takes."""
    bursts = [draw.when(0, draw.length * 0.5) for _ in range(draw.get("bursts", 0))]
    for n in range(draw.count):
        body = {"run_at": at(draw.when(4, draw.length)), "payload": filler(draw, 0, draw.get("size", 300))}
        more: dict[str, Any] = {"via": "outbox"}
        if draw.chance(draw.get("odd", 0.0)):
            more |= {"expect": "any"} | draw.pick(
                {"pad": 400}, {"headers": {"big": {"$fill": 200_000}}}, {"headers": {"n": 2**70}},
                {"headers": {"k" * 300: 1}}, {"headers": {"": None, "f": 1.5, "l": [1, None, {"a": 1}]}})
        yield request(draw.pick(*bursts) if bursts else draw.when(0, draw.length * 0.7), draw.id(n), body, **more)


@family
def delayed(draw: Draw) -> Iterator[Step]:
    """Delayed messages of any size, kind of delay and headers."""
    for n in range(draw.count):
        wait = draw.rng.randint(0, draw.get("wait", 8000))
        size = draw.rng.randint(0, draw.get("size", 2000))
        headers: dict[str, Any] = {"x-delay": draw.pick(wait, str(wait), wait + 0.5)}
        if draw.get("due"):
            headers = {"x-opt-delivery-time": {"$ms": draw.get("due")}}
        if draw.chance(draw.get("odd", 0.0)):
            headers = {"x-delay": 100, "big": {"$frame": draw.pick(0, 1, 2, 3, 8, 20, 100)}}
        yield {"at": draw.when(0, draw.get("until", draw.length * 0.7)), "do": "delay", "job": draw.id(n),
               "exchange": "schedule.delay", "key": f"out.{n % 7}", "body": {"$bytes": size}, "headers": headers,
               "message_id": draw.id(n), "expect": "any" if "big" in headers else "ok", "quiet": True}
        if draw.chance(0.05):
            yield command(draw.when(0, draw.length), "cancel", draw.id(n), expect="any")


@family
def noise(draw: Draw) -> Iterator[Step]:
    """Results of unknown events, malformed results and worker messages, in numbers."""
    for n in range(draw.count):
        raw = draw.pick(
            f'{{"event_id": "{draw.id(n)}", "attempt": 1, "status": "succeeded"}}', f'{{"event_id": "{draw.id(n)}", "attempt": 1, "status": "running", "heartbeat": 1}}',
            '{"event_id": 7}', "{", f'{{"event_id": "{draw.id(n)}", "attempt": {10**30}, "status": "failed"}}', f'{{"event_id": "{draw.id(n)}", "attempt": 1, "status": "failed", "error": "\\u0000"}}')
        yield {"at": draw.when(1, draw.length * 0.6), "do": draw.pick("result", "result", "result", "worker"), "job": draw.id(n), "body": {},
               "raw": raw, "expect": "any", "quiet": True}


@family
def classes(draw: Draw) -> Iterator[Step]:
    """Three priority classes, all due at the same instant."""
    for n in range(draw.count):
        body = {"run_at": at(draw.get("due", 15.0)), "priority": ("high", "normal", "low")[n % 3]}
        yield request(draw.when(0, 8), draw.id(n), body, quiet=True)


@family
def people(draw: Draw) -> Iterator[Step]:
    """Jobs made, changed and stopped over the REST API and the command line, also by those whose jobs they are not."""
    for n in range(draw.count):
        owner = draw.pick("default", "acme")
        body = dress(draw, {"run_at": at(draw.when(6, draw.length)), "payload": {"n": n}}) | {"tenant": owner}
        yield request(draw.when(0, 2), draw.id(n), body, via="api", **({"as": owner} if draw.chance(0.5) else {}))
        when = draw.when(4, draw.length)
        match draw.pick("nothing", "steal", "stop", "cli", "again"):
            case "steal":
                kind = draw.pick("cancel", "pause", "trigger", "resume", "request")
                yield {**command(when, kind, draw.id(n), {"run_at": at(draw.length + 900), "job_type": "x"}), "via": "api", "as": "evil", "expect": "reject"}
            case "stop":
                yield command(when, draw.pick("cancel", "pause"), draw.id(n), via="api")
            case "cli" if draw.chance(0.3):
                yield command(when, draw.pick("cancel", "pause"), draw.id(n), via="cli", expect="any")
            case "again":
                yield request(when, draw.id(n), {**body, "name": "again"}, via="api", settled=True)


@family
def delayed_in_order(draw: Draw) -> Iterator[Step]:
    """Messages due at the same instant, published one after the other on one connection."""
    for n in range(draw.count):
        yield {"at": 1.0 + n * 0.002, "do": "delay", "job": draw.id(n), "exchange": "schedule.delay", "key": "out.order", "lane": 0,
               "body": {"$bytes": draw.rng.randint(0, 300)}, "headers": {"x-opt-delivery-time": {"$ms": draw.get("due", 15)}},
               "message_id": draw.id(n), "quiet": True}
