"""Draws jobs and commands. A plan holds groups; a group expands to timed steps, the same ones for the same seed."""

import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

Step = dict[str, Any]
Group = dict[str, Any]
SPACE = uuid.UUID("6a8e6dd1-7d7c-4c55-a3f0-2b2a6a1f3c11")
LIMIT = 262_144
FAMILIES: dict[str, Callable[["Draw"], Iterator[Step]]] = {}


class Draw:
    """The input of a family: its parameters, and a separate random source."""

    def __init__(self, plan: dict[str, Any], number: int) -> None:
        group = plan["groups"][number]
        self.key = group.get("seed", number)
        self.family: str = group["family"]
        self.count: int = group.get("count", 1)
        self.length: float = plan["length"]
        self.params: dict[str, Any] = group.get("with", {})
        self.rng = random.Random(f"{plan['seed']}/{self.key}/{self.family}")

    def get(self, name: str, default: Any = None) -> Any:
        return self.params.get(name, default)

    def id(self, n: int, kind: str = "job") -> str:
        return str(uuid.uuid5(SPACE, f"{self.key}/{self.family}/{kind}/{n}"))

    def when(self, begin: float = 0.0, end: float | None = None) -> float:
        return round(self.rng.uniform(begin, self.length if end is None else end), 3)

    def pick(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def chance(self, part: float) -> bool:
        return self.rng.random() < part


def family(function: Callable[[Draw], Iterator[Step]]) -> Callable[[Draw], Iterator[Step]]:
    FAMILIES[function.__name__] = function
    return function


def steps(plan: dict[str, Any]) -> list[Step]:
    """Expand all groups of a plan, in the order of time."""
    drawn = []
    for number, group in enumerate(plan["groups"]):
        drawn += [{"group": number, "family": group["family"], **step} for step in FAMILIES[group["family"]](Draw(plan, number))]
    return sorted(drawn, key=lambda step: step["at"])


def at(offset: float) -> dict[str, float]:
    """An instant relative to the begin of the run; resolved when it is sent."""
    return {"$at": round(offset, 6)}


def request(when: float, job: str, body: dict[str, Any], **more: Any) -> Step:
    return {"at": when, "do": "request", "job": job, "body": {"id": job, "job_type": "torture", **body}, **more}


def command(when: float, kind: str, job: str, body: dict[str, Any] | None = None, **more: Any) -> Step:
    return {"at": when, "do": kind, "job": job, "body": {"id": job, **(body or {})}, **more}


def filler(draw: Draw, low: int, high: int) -> dict[str, Any]:
    return {"fill": {"$fill": draw.rng.randint(low, high)}}


def dress(draw: Draw, body: dict[str, Any]) -> dict[str, Any]:
    """Add optional fields at random: every field of the contract that changes nothing about when a job fires."""
    rng = draw.rng
    if rng.random() < 0.3:
        body["name"] = "n" * rng.choice([1, 40, 200])
    if rng.random() < 0.3:
        body["priority"] = rng.choice(["high", "normal", "low"])
    if rng.random() < 0.2 and not draw.get("plain"):
        body["tenant"] = rng.choice(["acme", "x" * 100, "A.b_c-9"])
    if rng.random() < 0.2:
        body["job_type"] = rng.choice(["j", "t" * 200, "übung"])
    if rng.random() < 0.3:
        body["payload"] = {**body.get("payload", {}), "more": rng.choice(
            [0, -1.5, 10**15, "ümläut", "", None, [[]], {"a": {"b": []}}, "\u2028", True])}
    return body


def properties(draw: Draw) -> dict[str, Any]:
    """Draw AMQP properties of a request."""
    given: dict[str, Any] = {}
    if draw.chance(0.3):
        given["pad"] = draw.pick(1, 60, 150)  # of the correlation_id
    if draw.chance(0.3):
        given["traceparent"] = draw.pick("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "", "x" * 3000)
    if draw.chance(0.1):
        given["headers"] = {"tracestate": "k=v," * draw.pick(1, 100), "n": 5, "deep": {"a": [1, {"b": None}]}}
    return given


def behaviour(draw: Draw, attempts: int, *, beat: float | None = None) -> list[dict[str, Any]]:
    """Draw what the host does at each attempt; the last entry repeats."""
    plan = []
    for _ in range(draw.rng.randint(0, attempts)):
        step: dict[str, Any] = {"o": draw.pick("fail", "fail", "snooze", "ok")}
        if step["o"] == "snooze" or draw.chance(0.3):
            step["in"] = draw.pick(0, 0.2, 1)
        plan.append(step)
    plan.append({"o": draw.pick("ok", "ok", "ok", "fail", "giveup")})
    for step in plan:
        if step["o"] == "ok":
            step.pop("in", None)
        if step["o"] != "snooze" and draw.chance(0.4):
            step["hold"] = round(draw.rng.uniform(0, 3), 2)
            if beat or draw.chance(0.5):
                step["beat"] = beat or draw.pick(2, 5)
        if draw.chance(0.15):
            step["times"] = 2
    return plan
