"""More themes: requests again, retention, handlers, outbox, delayed messages, workers, outages."""

import random

from torture.themes import CANARY, Plan, fault, group, interruptions, theme


@theme
def requests_again(rng: random.Random) -> Plan:
    """The same requests again after their occurrences were emitted; some with no retention at all."""
    env = {"SCHEDULER_RETENTION_DAYS": "0"} if rng.random() < 0.3 else {}
    return {"length": 40.0, "env": env, "groups": [CANARY, group("resend", 120), group("lives", 40)]}


@theme
def no_retention(_: random.Random) -> Plan:
    """SCHEDULER_RETENTION_DAYS=0 under every kind of work."""
    return {"length": 130.0, "env": {"SCHEDULER_RETENTION_DAYS": "0"}, "groups": [
        CANARY, group("tracked", 100, hold=[1, 50], beat=6, recur=0.05, overlap="allow"), group("lives", 60), group("oneshots", 100),
        group("overtaken", 40), group("foreign_commands", 30)]}


@theme
def handlers(rng: random.Random) -> Plan:
    """Handlers of the client library, some longer than the broker's consumer timeout."""
    timeout = rng.choice([4000, 6000, 1_800_000])
    return {"length": 45.0, "broker": {"consumer_timeout": timeout}, "fleet": {"consumer": 1, "producer": 1, rng.choice(["runner", "handlers"]): 1},
            "groups": [CANARY, group("handlers", 25, lasts=[6, 14], due=15)],
            "faults": interruptions(rng, ["consumer"], 1, 40) if rng.random() < 0.3 else []}


@theme
def outbox(rng: random.Random) -> Plan:
    """The relay of the host's outbox, with rows that no broker takes."""
    return {"length": 35.0, "fleet": {"consumer": 1, "producer": 1, "outbox": 1}, "groups": [
        CANARY, group("outbox", rng.choice([100, 400]), odd=rng.choice([0, 0.05, 0.05]), size=rng.choice([300, 200_000]))],
        "faults": rng.choice([[], [fault(8, "cut", link="outbox-*/*")], [fault(4, "slow", link="outbox-*/broker", delay=0.2, rate=1_000_000, **{"for": 25})]])}


@theme
def slow_outbox(rng: random.Random) -> Plan:
    """50 to 500 ms between the relay of the host's outbox and its servers."""
    slow = fault(3, "slow", link=rng.choice(["outbox-*/broker", "outbox-*/database", "outbox-*/*"]),
                 delay=round(rng.uniform(0.05, 0.5), 2), **{"for": 80})
    return {"length": 90.0, "fleet": {"consumer": 1, "producer": 1, "outbox": rng.choice([1, 2])}, "groups": [
        CANARY, group("outbox", rng.choice([50, 200, 600]), size=rng.choice([300, 20_000]), bursts=rng.choice([0, 1, 3]))],
        "faults": [slow, *interruptions(rng, ["outbox"], rng.choice([0, 0, 1]), 60)]}


@theme
def delayed(rng: random.Random) -> Plan:
    """Delayed messages: many, large, with large headers."""
    big = rng.random() < 0.5
    if rng.random() < 0.2:
        return {"length": 30.0, "fleet": {"consumer": 1, "producer": 1}, "groups": [CANARY, group("delayed_in_order", 2000)]}
    if rng.random() < 0.25:
        return {"length": 35.0, "groups": [CANARY, group("delayed", 16, size=30_000_000, due=24, until=14)]}
    return {"length": 30.0, "groups": [CANARY, group("delayed", 150 if big else 1500, size=3_000_000 if big else 2000, odd=0.0 if big else 0.01,
                                                     **({"due": 20, "until": 14} if big else {}))],
            "faults": interruptions(rng, ["producer", "consumer"], rng.choice([0, 1]), 25)}


@theme
def snoozes(rng: random.Random) -> Plan:
    """Runs that are snoozed by the thousand."""
    count, times = rng.choice([1, 3, 10]), rng.choice([500, 2000])
    return {"length": 40.0, "groups": [CANARY, group("snoozers", count, times=times), group("tracked", 40)],
            "settle": 200.0 + 0.2 * times}  # snoozes of a run come one after the other: 30 ms each on an idle machine


@theme
def outputs(rng: random.Random) -> Plan:
    """Results with large outputs, in numbers."""
    count, size = rng.choice([(800, [60_000, 64_000]), (300, [300_000, 1_000_000]), (60, [4_000_000, 9_000_000])])
    return {"length": 30.0, "groups": [CANARY, group("outputs", count, size=size)]}


@theme
def odd_results(rng: random.Random) -> Plan:
    """Results at and beyond every limit; everyone else's are recorded."""
    return {"length": 25.0, "groups": [CANARY, group("odd_results", rng.choice([6, 40])), group("tracked", 40, recur=0.1)]}


@theme
def users(_: random.Random) -> Plan:
    """SCHEDULER_TENANT_BY=user_id: tenants come from the broker's users, also for workers and handlers."""
    return {"length": 30.0, "user": "scheduler", "env": {"SCHEDULER_TENANT_BY": "user_id"}, "fleet": {"consumer": 1, "producer": 1, "worker": 1},
            "groups": [CANARY, group("owned", 60), group("webhooks", 20, how=["ok", "500"], plain=True), group("commands", 8)]}


@theme
def triggers(rng: random.Random) -> Plan:
    """Thousands of triggers of the same jobs."""
    return {"length": 30.0, "groups": [CANARY, group("triggers", rng.choice([300, 1500]), jobs=3), group("oneshots", 60)], "settle": 200.0}


@theme
def webhooks(rng: random.Random) -> Plan:
    """Webhooks of fast, slow, failing and silent endpoints; short consumer timeouts; broken workers."""
    return {"length": 40.0, "fleet": {"consumer": 1, "producer": 1, "worker": 1}, "broker": {"consumer_timeout": rng.choice([4000, 1_800_000])},
            "groups": [CANARY, group("webhooks", 120, timeout=rng.choice([3, 12]))],
            "faults": interruptions(rng, ["worker", "consumer"], rng.choice([0, 1, 2]), 35)}


@theme
def commands(rng: random.Random) -> Plan:
    """Commands of workers: broken workers, restarted brokers, frozen consumers."""
    faults = rng.choice([interruptions(rng, ["worker", "consumer"], 2, 35), [fault(10, "broker", **{"for": rng.choice([5, 50])})],
                         [fault(8, "freeze", who="consumer-1", **{"for": 40})]])
    return {"length": 60.0, "fleet": {"consumer": 1, "producer": 1, "worker": 2}, "groups": [
        CANARY, group("commands", 40, lasts=rng.choice([[0, 4], [20, 60]]), due=8)], "faults": faults, "settle": 240.0}


@theme
def outage(rng: random.Random) -> Plan:
    """A broker that is away for up to 50 s, or a database, under every kind of work."""
    away = fault(6, rng.choice(["broker", "database"]), how=rng.choice(["fast", "immediate"]), **{"for": rng.choice([5, 20, 45])})
    return {"length": 70.0, "groups": [CANARY, group("oneshots", 200), group("recurring", 40, kinds=["every"]), group("lives", 20),
                                       group("tracked", 80, beat=rng.choice([2, 15]), hold=[1, 40])], "faults": [away], "settle": 240.0}


@theme
def past(rng: random.Random) -> Plan:
    """Schedules that begin in the past, with every policy for missed occurrences."""
    return {"length": 25.0, "groups": [CANARY, group("recurring", 80, kinds=["every"], past=rng.choice([20, 90, 600]))],
            "faults": interruptions(rng, ["producer"], rng.choice([0, 1]), 20)}


@theme
def everything(rng: random.Random) -> Plan:
    """A bit of all families with several faults at once."""
    length = 50.0
    return {"length": length, "fleet": {"consumer": 2, "producer": 2, "worker": 1}, "groups": [
        CANARY, group("oneshots", 100), group("recurring", 20, kinds=["every"]), group("tracked", 50), group("lives", 20), group("webhooks", 30),
        group("commands", 8), group("delayed", 40), group("tenants", 10), group("hostile", 10), group("holds", 100)],
        "faults": [*interruptions(rng, ["producer", "consumer", "worker"], 2, length),
                   fault(rng.uniform(3, 20), "slow", link=rng.choice(["*/database", "*/broker"]), delay=rng.choice([0.05, 0.2]), **{"for": 15})],
        "settle": 240.0}


@theme
def retries(rng: random.Random) -> Plan:
    """Dead runs retried, silent workers, held jobs that are changed meanwhile, other tenants' results."""
    return {"length": 40.0, "groups": [CANARY, group("retries", 60), group("timeouts", 40), group("held_lives", 60), group("stolen_results", 20)],
            "faults": interruptions(rng, ["producer", "consumer"], rng.choice([0, 0, 1]), 35)}


@theme
def overlaps(_: random.Random) -> Plan:
    """Schedules whose runs last longer than their interval, with every overlap, policy and class."""
    return {"length": 45.0, "groups": [CANARY, group("tracked", 200, recur=0.9, hold=[0.5, 8], beat=4), group("held_lives", 40)]}


@theme
def slow_overlaps(rng: random.Random) -> Plan:
    """Schedules whose runs end about when the next occurrence is due, over slow links."""
    link = rng.choice(["producer-*", "consumer-*", "*"]) + rng.choice(["/broker", "/database"])
    return {"length": 60.0, "groups": [CANARY, group("tracked", rng.choice([50, 200]), recur=0.9, hold=[0, 3], beat=4)],
            "faults": [fault(4, "slow", link=link, delay=round(rng.uniform(0.05, 0.5), 2), **{"for": 50})]}


@theme
def crowd(rng: random.Random) -> Plan:
    """Thousands due together: by class, or for a route without a queue."""
    work = rng.choice([group("classes", 4500), group("routes", 3000, routes=["nowhere"]), group("noise", 3000)])
    return {"length": 30.0, "groups": [CANARY, work, group("oneshots", 60)]}


@theme
def ancient(rng: random.Random) -> Plan:
    """Rules that began long ago, and other hostile schedules; the others go on."""
    return {"length": 25.0, "groups": [CANARY, group("hostile", rng.choice([3, 20]), kinds=["ancient", "rule"]), group("oneshots", 40)]}


@theme
def people(rng: random.Random) -> Plan:
    """The REST API and the command line, also with tokens of other tenants, beside commands over AMQP."""
    return {"length": 30.0, "fleet": {"consumer": 1, "producer": 2, "api": 1}, "groups": [CANARY, group("people", 80), group("oneshots", 60), group("tenants", 30)],
            "faults": interruptions(rng, ["producer", "consumer"], rng.choice([0, 1]), 25)}
