"""Messages that are set aside keep their order for each id, and every id gets its turn."""

from types import SimpleNamespace

from scheduler.commands.batch_transaction import without_locked
from scheduler.commands.decide_commands import LOCKED
from scheduler.commands.set_aside import SetAside


def messages(*abouts):
    return [SimpleNamespace(tag=tag, read=SimpleNamespace(about=about)) for tag, about in enumerate(abouts)]


def tags(deliveries):
    return [each.tag for each in deliveries]


def test_each_id_gets_its_turn_in_order():
    aside = SetAside()
    aside.add(messages("a", "a", "b", "a", "c", "b"))
    assert set(aside.ids) == {"a", "b", "c"}
    assert tags(aside.next(3)) == [0, 2, 4]
    assert tags(aside.next(2)) == [0, 2]
    assert tags(aside.next_id(10)) == [4]
    assert tags(aside.next_id(2)) == [0, 1]
    assert tags(aside.next(100)) == [2, 5, 4, 0, 1, 3]


def test_what_was_stored_is_forgotten_and_the_rest_stays_behind():
    aside = SetAside()
    found = messages("a", "a", "b")
    aside.add(found)
    aside.remove(found[:1])
    aside.add(messages("a")[:1])
    assert tags(aside.next_id(10)) == [2]
    assert tags(aside.next_id(10)) == [1, 0]
    aside.remove(aside.next(10))
    assert not aside
    assert aside.next(10) == []


def test_what_is_about_a_locked_id_is_left_out():
    batch = [each.read for each in messages("a", "b", "a", "c")]
    executed = []
    verdicts = without_locked(batch, {"a"}, lambda rest: executed.extend(rest) or ["b done", "c done"])
    assert verdicts == [LOCKED, "b done", LOCKED, "c done"]
    assert [each.about for each in executed] == ["b", "c"]
    assert without_locked(batch[:1], {"a"}, None) == [LOCKED]
