"""Ids that we choose are in the order of their creation."""

import time
from concurrent.futures import ThreadPoolExecutor
from uuid import RFC_4122

from scheduler.client import new_job_id
from scheduler.domain import time_ordered_id as module
from scheduler.domain.time_ordered_id import time_ordered_id


def milliseconds(made):
    return made.int >> 80


def test_ids_are_of_version_7_and_contain_the_time():
    before = time.time_ns() // 1_000_000
    made = new_job_id()
    assert (made.version, made.variant) == (7, RFC_4122)
    assert before <= milliseconds(made) <= time.time_ns() // 1_000_000 + 1


def test_ids_and_their_texts_are_in_the_order_of_creation():
    made = [time_ordered_id() for _ in range(20_000)]
    texts = [str(each) for each in made]
    assert made == sorted(set(made))
    assert texts == sorted(texts)


def test_threads_never_make_the_same_id_and_each_keeps_its_order():
    with ThreadPoolExecutor(4) as threads:
        parts = list(threads.map(lambda _: [time_ordered_id() for _ in range(5_000)], range(4)))
    assert all(part == sorted(part) for part in parts)
    assert len({each for part in parts for each in part}) == 20_000


def test_a_clock_that_is_set_back_changes_no_order(monkeypatch):
    first = time_ordered_id()
    monkeypatch.setattr(module.time, "time_ns", lambda: 1_000_000_000)
    later = [time_ordered_id() for _ in range(3)]
    assert [first, *later] == sorted([first, *later])
    assert milliseconds(later[-1]) == milliseconds(first)
