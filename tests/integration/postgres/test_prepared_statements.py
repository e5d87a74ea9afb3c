"""Repeated statements are planned once, with generic values, and the number of plans is limited."""

import pytest

from scheduler.postgres.connection import connect
from scheduler.postgres.prepared_statements import MAX_PLANS, execute_if_repeated, execute_prepared

SHOW = "SELECT %(a)s::int, '100%%' AS whole"


@pytest.fixture
def cursor(database_url):
    connection = connect(database_url, "test")
    connection.autocommit = True
    with connection.cursor() as made:
        yield made
    connection.close()


def plans(cursor):
    cursor.execute("SELECT statement FROM pg_prepared_statements")
    return [statement for statement, in cursor.fetchall()]


def test_the_same_with_the_same_values_is_planned_once(cursor):
    for expected in (0, 1, 1, 1):
        execute_if_repeated(cursor, SHOW, {"a": 7})
        assert cursor.fetchall() == [(7, "100%")]
        assert len(plans(cursor)) == expected
    execute_if_repeated(cursor, SHOW, {"a": 8})
    assert cursor.fetchall() == [(8, "100%")]
    assert len(plans(cursor)) == 1


def test_values_of_a_prepared_statement_are_values(cursor):
    for text in ("plain", "it's; DROP TABLE jobs --", "100%", "ü"):
        execute_prepared(cursor, "SELECT $1::text, $2::int", text, 5)
        assert cursor.fetchall() == [(text, 5)]
    assert len(plans(cursor)) == 1


def test_a_session_forgets_the_plans_that_it_used_longest_ago(cursor):
    for number in range(MAX_PLANS):
        execute_prepared(cursor, f"SELECT {number}")
    execute_prepared(cursor, "SELECT 0")
    execute_prepared(cursor, "SELECT 'one more'")
    assert cursor.fetchall() == [("one more",)]
    kept = plans(cursor)
    assert len(kept) == MAX_PLANS
    assert any("SELECT 0" in each for each in kept)
    assert not any("SELECT 1" in each for each in kept)
    execute_prepared(cursor, "SELECT 1")
    assert cursor.fetchall() == [(1,)]


def test_a_statement_that_cannot_be_planned_is_not_remembered(database_url):
    connection = connect(database_url, "test")
    with connection.cursor() as cursor:
        with pytest.raises(Exception, match="nowhere"):
            execute_prepared(cursor, "SELECT FROM nowhere")
        connection.rollback()
        cursor.execute("CREATE TEMPORARY TABLE nowhere ()")
        execute_prepared(cursor, "SELECT FROM nowhere")
        assert cursor.fetchall() == []
    connection.close()
