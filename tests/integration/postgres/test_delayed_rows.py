"""Delayed messages as rows: claimed in order and by size, and a message and its cancel that meet."""

import os
import threading
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from support import connected, until

from scheduler.commands.apply_batch import apply_commands
from scheduler.commands.apply_delayed import store_delayed
from scheduler.domain.delayed.delay import Delay
from scheduler.domain.delayed.message import ReceivedMessage, ReceiveOutcome
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.messages import ScheduleCancel
from scheduler.postgres.claims import ClaimSession
from scheduler.postgres.connection import connect, transaction
from scheduler.postgres.delayed import due, store
from scheduler.postgres.delayed.due import DelayedSettlement
from scheduler.postgres.large_values import MAX_CLAIM_BYTES

SOON = timedelta(seconds=1)


def message(body=b"", message_id=None, **delay):
    return ReceivedMessage("schedule.delayed", b"key", Delay(**delay), message_id, b"\x00\x00", body)


@pytest.fixture
def rows(database_url):
    def query(statement="SELECT * FROM delayed_messages ORDER BY id"):
        with connected(database_url) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return [dict(zip([each.name for each in cursor.description], row, strict=True)) for row in cursor]

    return query


@contextmanager
def session(url):
    with closing(ClaimSession(url, "test")) as made:
        yield made


def add(url, *messages):
    with closing(connect(url, "test")) as connection:
        return store_delayed(connection, messages, SOON)


def resident_bytes():
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cancel(url, message_id):
    with closing(connect(url, "test")) as connection:
        [verdict] = apply_commands(connection, [Incoming(ScheduleCancel(id=message_id), message_id)], SOON)
        return verdict.status


def waits_for_a_lock(url):
    """Wait until one of our sessions waits for another one."""
    def waiting():
        with connected(url) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                           "AND datname = current_database()")
            return cursor.fetchone()[0]

    until(waiting, "a session that waits for a lock")


def test_what_is_stored_is_claimed_as_it_was_in_order(database_url, rows):
    at = datetime.now(UTC) - timedelta(hours=1)
    bodies = [bytes(range(256)), b"", b"\x00\xff" * 50_000, b"{}"]
    add(database_url, *(message(body, instant=at) for body in bodies))
    with session(database_url) as claiming:
        claim = due.claim(claiming, 3)
        assert [thing.body for thing in claim.things] == bodies[:3]
        assert claim.full
        with session(database_url) as other:
            assert [thing.body for thing in due.claim(other, 10).things] == bodies[3:]
        due.settle(claiming, DelayedSettlement(done=[thing.id for thing in claim.things]))
    assert [bytes(row["body"]) for row in rows()] == [b"{}"]


def test_one_claim_holds_no_more_than_so_many_bytes(database_url):
    add(database_url, *(message(b"x" * 600_000) for _ in range(100)))
    with session(database_url) as claiming:
        first = due.claim(claiming, 500)
        assert len(first.things) == -(-MAX_CLAIM_BYTES // 600_002)
        assert first.full
        claiming.release()
    add(database_url, message(b"y" * (MAX_CLAIM_BYTES + 1), instant=datetime(2020, 1, 1, tzinfo=UTC)))
    with session(database_url) as claiming:
        claiming.query("UPDATE delayed_messages SET wake_at = '2020-01-01' WHERE octet_length(body) > 1000000", {})
        assert len(due.claim(claiming, 500).things) == 1


def test_the_claim_walks_its_index_with_and_without_statistics(database_url):
    add(database_url, *(message(b"x" * 300, milliseconds=number) for number in range(3000)))
    for analysed in (False, True):
        with session(database_url) as claiming:
            if analysed:
                with connected(database_url) as connection, connection.cursor() as cursor:
                    cursor.execute("ANALYZE delayed_messages")
            claiming.query(f"PREPARE looked_at AS {due.CLAIM}", {})
            plan = "\n".join(line for line, in claiming.query(
                "EXPLAIN EXECUTE looked_at ('2020-01-01', 500)", {}))
            assert "Index Scan using delayed_due" in plan
            assert "Sort" not in plan
            assert "Seq Scan" not in plan


def test_a_message_waits_for_its_concurrent_cancel_and_is_dropped(database_url, rows):
    named, found = str(uuid4()), []
    with closing(connect(database_url, "cancel")) as connection:
        with transaction(connection) as cursor:
            store.cancel(cursor, [named], [named])
            thread = threading.Thread(target=lambda: found.extend(add(database_url, message(message_id=named))))
            thread.start()
            waits_for_a_lock(database_url)
        thread.join()
    assert found == [ReceiveOutcome.CANCELLED]
    assert [row["exchange"] for row in rows()] == [None]


def test_a_cancel_waits_for_its_concurrent_message_and_cancels_it(database_url, rows):
    named, found = str(uuid4()), []
    with closing(connect(database_url, "store")) as connection:
        with transaction(connection) as cursor:
            store.add(cursor, [(message(message_id=named), datetime.now(UTC))])
            thread = threading.Thread(target=lambda: found.append(cancel(database_url, named)))
            thread.start()
            waits_for_a_lock(database_url)
        thread.join()
    assert found == ["cancelled"]
    [row] = rows()
    assert (row["exchange"], row["body"], str(row["message_id"])) == (None, None, named)
    assert row["wake_at"] - row["stored_at"] > timedelta(minutes=59)


def test_a_cancel_waits_for_a_claimed_message(database_url, rows):
    named, found = str(uuid4()), []
    add(database_url, message(message_id=named))
    with session(database_url) as claiming:
        [claimed] = due.claim(claiming, 10).things
        thread = threading.Thread(target=lambda: found.append(cancel(database_url, named)))
        thread.start()
        waits_for_a_lock(database_url)
        due.settle(claiming, DelayedSettlement(done=[claimed.id]))
        thread.join()
    assert found == ["cancelled"]  # of what may still come
    assert [row["exchange"] for row in rows()] == [None]


def test_two_consumers_that_store_the_same_uuid_keep_one(database_url, rows):
    named = str(uuid4())
    with closing(connect(database_url, "store")) as connection:
        found = []
        with transaction(connection) as cursor:
            store.add(cursor, [(message(b"first", named), datetime.now(UTC))])
            thread = threading.Thread(
                target=lambda: found.extend(add(database_url, message(b"a"), message(b"second", named))))
            thread.start()
            waits_for_a_lock(database_url)
        thread.join()
    assert found == [ReceiveOutcome.WAITING, ReceiveOutcome.DUPLICATE]
    assert {bytes(row["body"]) for row in rows()} == {b"first", b"a"}


def test_ids_that_are_known_already_are_found_in_the_middle_of_a_batch(database_url, rows):
    """They are looked up only once the unique index has refused one; the others are stored all the same."""
    waits, cancelled, over, fresh = (str(uuid4()) for _ in range(4))
    add(database_url, message(b"waits", waits, milliseconds=60_000))
    for each in (cancelled, over):
        cancel(database_url, each)
    with connected(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE delayed_messages SET due_at = now() WHERE message_id = %s", (over,))
    found = add(
        database_url, message(b"1"), message(b"2", fresh), message(b"3", cancelled), message(b"4", waits),
        message(b"5", fresh), message(b"6", over), message(b"7"),
    )
    kept, dropped = ReceiveOutcome.WAITING, ReceiveOutcome.DUPLICATE
    assert found == [kept, kept, ReceiveOutcome.CANCELLED, dropped, dropped, kept, kept]
    stored = [bytes(row["body"]) for row in rows() if row["exchange"] is not None]
    assert stored == [b"waits", b"1", b"2", b"6", b"7"]


def test_the_buffer_of_a_large_message_is_freed(database_url):
    """libpq keeps it as long as the connection: with three sessions and 30 MB that was 190 MB."""
    add(database_url, *[message(b"x" * 20_000_000)] * 2)
    with ExitStack() as stack:
        sessions = [stack.enter_context(session(database_url)) for _ in range(2)]
        before = resident_bytes()
        for claimer in sessions:
            [claimed] = due.claim(claimer, 10).things
            settlement = DelayedSettlement(done=[claimed.id])
            del claimed
            due.settle(claimer, settlement)
        assert resident_bytes() - before < 40_000_000
        assert due.claim(sessions[0], 10).things == []
