"""Expensive rules delay no other job for long, and do not make the consumer look stuck."""

from uuid import uuid4

from support import iso, until, utc

HOURS = "1,2,3,4,5,6,7,8,9,10,11,12,13,15,16,17,18,19,20,21,22,23"
SECONDS = "3,5,6,7,9,12,14,18,20,21,22,24,26,28,29,30,32,33,35,36,37,39,42,43,45,46,50,54,55,57"


def hostile(index: int) -> str:
    """Return an expensive rule; each one is different, so that no cache helps."""
    return (
        f"FREQ=WEEKLY;BYSETPOS={21 + index % 340};BYDAY=MO;BYHOUR={index % 24}",
        f"FREQ=WEEKLY;BYHOUR=5;BYMINUTE={index % 60};BYSECOND={SECONDS};BYSETPOS=-{101 + index % 265}",
        f"FREQ=MINUTELY;INTERVAL=61;BYHOUR={HOURS};BYSECOND={index % 60};BYDAY=MO,TU,WE,TH;COUNT={10**6 + index}",
    )[index % 3]


def test_a_command_behind_hostile_rules_is_stored_while_the_consumer_lives(sidecar, host):
    consumer = sidecar.start("consumer").ready()
    for index in range(500):
        host.request(id=str(uuid4()), tenant="acme", rrule=hostile(index), timezone="Europe/Berlin",
                     run_at="1900-02-28T23:59:59" if index % 2 else "0001-01-02T00:00:00")
    good = host.request(run_at=iso(utc(hours=1)), tenant="globex")
    seen = []

    def stored():
        seen.append(consumer.http("/livez")[0])
        return sidecar.job(good)

    until(stored, "the command behind the hostile ones is stored")
    assert set(seen) == {200}
    assert consumer.metric("scheduler_commands_rejected_total") > 0
