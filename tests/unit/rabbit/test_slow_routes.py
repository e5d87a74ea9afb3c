"""Events of slow routes, apart from all others; without a broker."""

from types import SimpleNamespace

import pytest

from scheduler.rabbit import event_publisher, slow_routes
from scheduler.rabbit.event_publisher import EventConfirms
from scheduler.rabbit.frames import DueMessage
from scheduler.rabbit.publisher import Confirms, Receipt
from scheduler.rabbit.route_window import MAX_REST_SECONDS, REST_SHARE
from scheduler.rabbit.slow_routes import (
    CONFIRM_TIMEOUT,
    MAX_SENT_PER_ROUTE,
    MAX_SEPARATE_SECONDS,
    SEPARATE_SECONDS,
    SlowRoutes,
)


def event(number, key="due.acme", emitted_at="08:00", attempt=1):
    body = f'{{"event_id":"{number}","emitted_at":"{emitted_at}","run":{{"attempt":{attempt}}}}}'
    return DueMessage(body.encode(), str(number), 0, routing_key=key)


def sent(*messages):
    confirms = Confirms(messages)
    confirms.first_tag = 1
    return confirms


def confirm(confirms, tag):
    confirms._settle_one(tag, Receipt.CONFIRMED)


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class FakeLink:
    closed = None
    opened = 0

    def open_another(self, _name):
        FakeLink.opened += 1
        return FakeLink()

    def close(self):
        self.closed = "closed"


class FakePublisher:
    def __init__(self, link):
        self.link = link
        self.batches = []

    def send(self, messages, then):
        batch = Confirms(messages, then)
        batch.first_tag = 1
        self.batches.append(batch)
        return batch


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def routes(clock, monkeypatch):
    monkeypatch.setattr(slow_routes, "Publisher", FakePublisher)
    FakeLink.opened = 0
    return SlowRoutes(clock)


def slow(routes, *names):
    """Set routes apart and wait until their connection is open."""
    routes.add(names, FakeLink())
    routes._connecting.join()
    return routes._publisher


def test_only_overtaken_events_with_a_route_are_set_aside():
    confirms = sent(event(0), event(1, "due"), event(2, "due.globex"), event(3), event(4))
    confirm(confirms, 4)
    assert confirms._set_aside(4) == {"acme", "globex"}
    assert not confirms.done
    assert confirms.wait(0) == [Receipt.SLOW, Receipt.UNKNOWN, Receipt.SLOW, Receipt.CONFIRMED, Receipt.UNKNOWN]
    # A late confirm changes nothing: the event is retried.
    confirms._settle_up_to(5, Receipt.CONFIRMED)
    assert confirms.done
    assert confirms.wait(0) == [
        Receipt.SLOW, Receipt.CONFIRMED, Receipt.SLOW, Receipt.CONFIRMED, Receipt.CONFIRMED]


def test_a_batch_is_done_when_the_rest_of_it_is_set_aside():
    confirms = sent(event(0), event(1, "due"))
    confirm(confirms, 2)
    assert confirms._set_aside(2) == {"acme"}
    assert confirms.done
    assert confirms._set_aside(2) == set()


class OneChannel:
    """Sets aside overtaken events, and counts the calls."""

    def __init__(self, last_confirmed):
        self.last_confirmed = last_confirmed
        self.slow_routes = SimpleNamespace(receipt=lambda _: Receipt.RETURNED)
        self.asked = 0

    def set_aside_slow(self, confirms):
        self.asked += 1
        return bool(confirms._set_aside(self.last_confirmed))


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(event_publisher, "STRAGGLER_SECONDS", 0.0)
    monkeypatch.setattr(event_publisher, "STUCK_SECONDS", 0.0)


@pytest.mark.usefixtures("impatient")
def test_without_any_confirm_nothing_is_set_aside():
    channel = OneChannel(last_confirmed=0)
    confirms = EventConfirms(channel, sent(event(0), event(1)), ())
    assert not confirms.settled()
    assert confirms.wait(0.0) == [Receipt.UNKNOWN] * 2
    assert not confirms.has_overtaken
    assert channel.asked


@pytest.mark.usefixtures("impatient")
def test_events_behind_a_slow_one_on_a_stuck_channel_are_given_up_soon():
    confirms = EventConfirms(OneChannel(last_confirmed=2), sent(event(0), event(1, "due"), event(2, "due")), ())
    confirm(confirms._confirms, 2)
    assert confirms.settled()
    assert confirms.wait(1e9) == [Receipt.SLOW, Receipt.CONFIRMED, Receipt.UNKNOWN]


def test_receipts_of_separate_events_are_put_in_their_places():
    confirms = sent(event(1, "due"), event(3, "due"))
    confirms._settle_up_to(2, Receipt.CONFIRMED)
    separate = [(0, event(0)), (2, event(2))]
    assert EventConfirms(OneChannel(2), confirms, separate).wait(0.0) == [
        Receipt.RETURNED, Receipt.CONFIRMED, Receipt.RETURNED, Receipt.CONFIRMED]


def test_a_route_stays_separate_twice_as_long_each_time(routes, clock):
    assert not routes.any
    assert FakeLink.opened == 0
    for seconds in (SEPARATE_SECONDS, 2 * SEPARATE_SECONDS, 4 * SEPARATE_SECONDS):
        slow(routes, "acme")
        assert routes.contains("acme")
        assert not routes.contains("globex")
        assert not routes.contains(None)
        clock.now += seconds
        assert not routes.contains("acme")
    clock.now += 3 * MAX_SEPARATE_SECONDS
    assert not routes.any


def test_an_event_is_sent_once_and_its_late_confirm_counts(routes):
    publisher = slow(routes, "acme")
    for emitted_at in ("08:00", "08:01"):
        routes.send("acme", event(0, emitted_at=emitted_at), FakeLink())
        assert routes.receipt(event(0, emitted_at=emitted_at)) is Receipt.SLOW
    [batch] = publisher.batches
    confirm(batch, 1)
    routes.send("acme", event(0, emitted_at="08:02"), FakeLink())
    assert len(publisher.batches) == 1
    assert routes.receipt(event(0, emitted_at="08:02")) is Receipt.CONFIRMED
    # It counts once, and not for another attempt.
    routes.send("acme", event(0, attempt=2), FakeLink())
    assert len(publisher.batches) == 2
    assert routes.receipt(event(0, attempt=2)) is Receipt.SLOW


def test_late_confirms_keep_a_route_separate(routes, clock):
    slow(routes, "acme")
    routes.send("acme", event(0), FakeLink())
    clock.now += SEPARATE_SECONDS / 2
    assert routes.receipt(event(0)) is Receipt.SLOW
    clock.now += SEPARATE_SECONDS - 1
    assert routes.contains("acme")


def send_all(routes, publisher, route, numbers):
    """Send events while there is room; return how many were sent."""
    before = len(publisher.batches)
    for number in numbers:
        routes.send(route, event(number, f"due.{route}"), FakeLink())
    return len(publisher.batches) - before


def test_a_slow_route_has_one_unconfirmed_event_and_more_with_each_fast_confirm(routes):
    publisher = slow(routes, "acme", "globex")
    assert send_all(routes, publisher, "globex", range(10)) == 1  # each route has its own window
    for most in (1, 2, 4):
        numbers = range(most * 100, most * 100 + 10)
        assert send_all(routes, publisher, "acme", numbers) == most
        assert routes.receipt(event(numbers[-1])) is Receipt.SLOW
        for batch in publisher.batches[-most:]:
            confirm(batch, 1)


def test_a_route_whose_confirms_take_long_rests(routes, clock):
    publisher = slow(routes, "acme")
    assert send_all(routes, publisher, "acme", [0]) == 1
    clock.now += 2
    confirm(publisher.batches[0], 1)
    assert routes.receipt(event(0)) is Receipt.CONFIRMED
    clock.now += 2 * REST_SHARE - 0.1
    assert send_all(routes, publisher, "acme", [1]) == 0
    clock.now += 0.2
    assert send_all(routes, publisher, "acme", [1, 2]) == 1
    clock.now += 60
    confirm(publisher.batches[-1], 1)
    clock.now += MAX_REST_SECONDS + 1
    assert send_all(routes, publisher, "acme", [3]) == 1


def test_the_events_of_a_route_without_a_taken_receipt_are_limited(routes):
    publisher = slow(routes, "acme", "globex")
    for number in range(MAX_SENT_PER_ROUTE + 10):
        routes.send("acme", event(number), FakeLink())
        confirm(publisher.batches[-1], 1)
    assert len(publisher.batches) == MAX_SENT_PER_ROUTE
    routes.send("globex", event(0, "due.globex"), FakeLink())
    assert len(publisher.batches) == MAX_SENT_PER_ROUTE + 1


def test_an_event_that_stays_unconfirmed_is_sent_again_on_a_new_connection(routes, clock):
    first = slow(routes, "acme")
    routes.send("acme", event(0), FakeLink())
    clock.now += CONFIRM_TIMEOUT + 1
    routes.send("acme", event(0), FakeLink())
    routes._connecting.join()
    assert routes._publisher is not first
    routes.send("acme", event(0), FakeLink())
    assert len(routes._publisher.batches) == 1
    assert FakeLink.opened == 2


def test_an_event_whose_connection_was_lost_is_sent_again(routes):
    publisher = slow(routes, "acme")
    routes.send("acme", event(0), FakeLink())
    publisher.batches[0]._lose("gone")
    assert routes.receipt(event(0)) is Receipt.SLOW
    routes.send("acme", event(0), FakeLink())
    assert len(publisher.batches) == 2
