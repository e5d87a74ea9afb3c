"""SetAside keeps the order of messages per id and alternates between ids."""

from types import SimpleNamespace

from scheduler.commands.batch_transaction import without_locked
from scheduler.commands.decide_commands import LOCKED
from scheduler.commands.set_aside import SetAside


def messages(*abouts):
    return [SimpleNamespace(tag=tag, read=SimpleNamespace(about=about)) for tag, about in enumerate(abouts)]


def tags(deliveries):
    return [delivery.tag for delivery in deliveries]


def test_ids_alternate_and_messages_keep_their_order():
    aside = SetAside()
    aside.add(messages("a", "a", "b", "a", "c", "b"))
    assert set(aside.ids) == {"a", "b", "c"}
    assert tags(aside.next(3)) == [0, 2, 4]
    assert tags(aside.next(2)) == [0, 2]
    assert tags(aside.next_id(10)) == [4]
    assert tags(aside.next_id(2)) == [0, 1]
    assert tags(aside.next(100)) == [2, 5, 4, 0, 1, 3]


def test_removing_stored_messages_keeps_the_rest():
    aside = SetAside()
    deliveries = messages("a", "a", "b")
    aside.add(deliveries)
    aside.remove(deliveries[:1])
    aside.add(messages("a")[:1])
    assert tags(aside.next_id(10)) == [2]
    assert tags(aside.next_id(10)) == [1, 0]
    aside.remove(aside.next(10))
    assert not aside
    assert aside.next(10) == []


def test_the_oldest_message_determines_how_long_messages_are_held(monkeypatch):
    aside = SetAside()
    assert aside.held_seconds == 0
    deliveries = messages("a", "b", "a")
    for seconds, delivery in enumerate(deliveries):
        monkeypatch.setattr("time.monotonic", lambda seconds=seconds: float(seconds))
        aside.add([delivery])
    aside.next_id(1)
    assert aside.held_seconds == 2
    aside.remove(deliveries[:1])
    assert aside.held_seconds == 2  # no later than the first message with this id
    aside.remove(deliveries[2:])
    assert aside.held_seconds == 1


def test_messages_with_a_locked_id_are_left_out():
    batch = [delivery.read for delivery in messages("a", "b", "a", "c")]
    executed = []
    outcomes = without_locked(batch, {"a"}, lambda rest: executed.extend(rest) or ["b done", "c done"])
    assert outcomes == [LOCKED, "b done", LOCKED, "c done"]
    assert [message.about for message in executed] == ["b", "c"]
    assert without_locked(batch[:1], {"a"}, None) == [LOCKED]
