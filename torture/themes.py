"""Themes: each combines a family of work with a family of faults, drawn anew for every seed."""

import random
from collections.abc import Callable
from typing import Any

Plan = dict[str, Any]
THEMES: dict[str, Callable[[random.Random], Plan]] = {}
FLEET = {"consumer": 1, "producer": 2}
CANARY = {"family": "canary"}


def theme(function: Callable[[random.Random], Plan]) -> Callable[[random.Random], Plan]:
    THEMES[function.__name__.replace("_", "-")] = function
    return function


def group(family: str, count: int = 1, **params: Any) -> Plan:
    return {"family": family, "count": count, **({"with": params} if params else {})}


def fault(at: float, kind: str, **more: Any) -> Plan:
    return {"at": round(at, 1), "kind": kind, **more}


def draw(name: str, seed: int) -> Plan:
    """Draw a plan of this theme."""
    plan = THEMES[name](random.Random(f"{name}/{seed}"))
    plan = {"theme": name, "seed": seed, "length": 30.0, "fleet": FLEET, "groups": [], "faults": [], **plan}
    for number, each in enumerate(plan["groups"]):
        each.setdefault("seed", number)  # a smaller plan still draws the same jobs
    return plan


def interruptions(rng: random.Random, roles: list[str], count: int, length: float) -> list[Plan]:
    """Draw kills, freezes, cuts and partitions of single members."""
    drawn = []
    for _ in range(count):
        at, who = rng.uniform(3, length * 0.7), f"{rng.choice(roles)}-1"
        match rng.choice(["kill", "freeze", "cut", "partition", "stop"]):
            case "kill":
                drawn.append(fault(at, "kill", who=who))
            case "freeze":
                drawn.append(fault(at, "freeze", who=who, **{"for": round(rng.uniform(3, 25), 1)}))
            case "cut":
                drawn.append(fault(at, "cut", link=f"{who}/*"))
            case "partition":
                drawn.append(fault(at, "partition", link=f"{who}/{rng.choice(['broker', 'database'])}", **{"for": round(rng.uniform(3, 25), 1)}))
            case _:
                drawn.append(fault(at, "stop_gently", who=who))
    return drawn


@theme
def calm(_: random.Random) -> Plan:
    """Everything that the host receives, without a fault."""
    return {"length": 25.0, "groups": [CANARY, group("oneshots", 150), group("recurring", 30), group("tracked", 60),
                                       group("lives", 40), group("tenants", 20), group("routes", 20),
                                       group("timeouts", 12), group("retries", 12), group("stolen_results", 8)]}


@theme
def broken_parts(rng: random.Random) -> Plan:
    """The same while single processes die, freeze and lose their connections."""
    return {"length": 40.0, "groups": [CANARY, group("oneshots", 150), group("recurring", 20, kinds=["every"]), group("tracked", 60),
                                       group("lives", 30)],
            "fleet": {"consumer": 2, "producer": 2}, "faults": interruptions(rng, ["producer", "consumer"], 3, 40)}


@theme
def heavy_payloads(rng: random.Random) -> Plan:
    """Payloads at the limit, due together, over a broker link of some megabytes a second."""
    rate = rng.choice([0, 3_000_000, 8_000_000])
    slow = [fault(14, "slow", link="producer-*/broker", rate=rate, **{"for": 60})] if rate else []
    return {"length": 30.0, "groups": [CANARY, group("heavy", rng.choice([400, 800, 1200]), due=16.0, run=rng.random() < 0.3)],
            "fleet": {"consumer": 1, "producer": rng.choice([1, 2])}, "faults": slow, "settle": 240.0}


@theme
def hostile_messages(_: random.Random) -> Plan:
    """Messages with headers of any size and type, odd content, odd rules; the others go on."""
    return {"length": 25.0, "groups": [CANARY, group("hostile", 40), group("odd_times", 8),
                                       group("oneshots", 40)]}


@theme
def large_headers(rng: random.Random) -> Plan:
    """Headers that fill a frame, on requests, on runs that become dead or on delayed messages."""
    work = rng.choice([group("hostile", 10, kinds=["trace"]), group("hostile", 10, kinds=["state", "table"]),
                       group("failing_dead", 10), group("delayed", 30, odd=0.5)])
    return {"length": 25.0, "groups": [CANARY, work, group("oneshots", 40)]}


@theme
def holds(rng: random.Random) -> Plan:
    """Thousands of jobs every second that wait for their open run; hosts answer at once."""
    overlap = rng.choice(["wait", "wait", "skip"])
    some = interruptions(rng, ["producer", "consumer"], rng.choice([0, 1]), 40)
    return {"length": 40.0, "groups": [CANARY, group("holds", rng.choice([400, 1000, 2000]), overlap=overlap)], "faults": some, "settle": 200.0}


@theme
def results_backlog(rng: random.Random) -> Plan:
    """Consumers freeze while workers report in time; nobody healthy is lost."""
    how = rng.choice([fault(8, "freeze", who="consumer-1", **{"for": rng.choice([15, 30, 45])}),
                      fault(8, "kill", who="consumer-1", **{"for": rng.choice([15, 30])}),
                      fault(6, "slow", link="consumer-*/database", delay=rng.choice([0.2, 0.5]), **{"for": 40})])
    return {"length": 50.0, "groups": [CANARY, group("tracked", 150, beat=rng.choice([3, 6]), hold=[8, 30], recur=0.1)], "faults": [how]}


@theme
def slow_database(rng: random.Random) -> Plan:
    """50 to 500 ms to the database, for producers, consumers or both."""
    link = rng.choice(["producer-*/database", "consumer-*/database", "*/database"])
    return {"length": 45.0, "groups": [CANARY, group("oneshots", 400), group("recurring", 60, kinds=["every"]), group("tracked", 150, beat=5)],
            "faults": [fault(4, "slow", link=link, delay=rng.choice([0.05, 0.2, 0.5]), **{"for": 38})]}


@theme
def slow_broker(rng: random.Random) -> Plan:
    """50 to 500 ms, or little bandwidth, to the broker."""
    link = rng.choice(["producer-*/broker", "consumer-*/broker", "*/broker"])
    return {"length": 45.0, "groups": [CANARY, group("oneshots", 400), group("recurring", 60, kinds=["every"]), group("tracked", 150, beat=5)],
            "faults": [fault(4, "slow", link=link, delay=rng.choice([0.05, 0.2, 0.5]), rate=rng.choice([0, 300_000]), **{"for": 38})]}


@theme
def locks(rng: random.Random) -> Plan:
    """A session of an operator holds rows locked, or reads for long, while commands and results for them come."""
    table = rng.choice(["jobs", "runs", "jobs"])
    return {"length": 45.0, "broker": {"consumer_timeout": rng.choice([6000, 1_800_000])}, "groups": [CANARY, group("poked", 12), group("oneshots", 100), group("tracked", 60, beat=5)],
            "faults": [fault(5, "lock", table=table, rows=rng.choice([1, 5]), **{"for": 30}), fault(3, "snapshot", **{"for": 40})]}


@theme
def full_queue(rng: random.Random) -> Plan:
    """`mainapp_due` refuses what is above its length; missed occurrences are still counted once."""
    arguments = {"x-max-length": rng.choice([3, 10, 40]), "x-overflow": "reject-publish"}
    return {"length": 45.0, "broker": {"due_arguments": arguments}, "groups": [
        CANARY, group("recurring", 25, kinds=["every"], on_missed=rng.choice([None, "latest"])), group("oneshots", 60), group("tracked", 20)],
        "faults": [fault(5, "full", **{"for": rng.choice([12, 25])})]}
