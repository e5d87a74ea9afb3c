"""`scheduler health --database` names settings of the server that should be changed, and their cost."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import DEADLINE, connected

from scheduler.postgres.connection import connect
from scheduler.postgres.server_settings import (
    RECOMMENDATIONS,
    ServerSetting,
    advice,
    as_setting,
    read_settings,
    recommendation,
)

GOOD = {
    **dict.fromkeys(("fsync", "full_page_writes", "synchronous_commit", "autovacuum"), ServerSetting("on")),
    "wal_compression": ServerSetting("lz4", None, True),
    "shared_buffers": ServerSetting("512MB", 512 * 1024**2), "max_wal_size": ServerSetting("4GB", 4 * 1024**3),
    "checkpoint_timeout": ServerSetting("15min", 900),
    "maintenance_work_mem": ServerSetting("128MB", 128 * 1024**2),
}
OPERATING = Path(__file__).parents[3] / "docs" / "operating.md"


def health(url, *options):
    done = subprocess.run(
        [sys.executable, "-m", "scheduler", "health", "--database", *options], check=False, capture_output=True,
        text=True, timeout=DEADLINE, env=os.environ | {"DATABASE_URL": url},
    )
    return done.returncode, done.stdout


def test_good_settings_need_no_change_until_there_are_more_jobs():
    assert advice(1_000_000, GOOD) == []
    assert {each.name for each in advice(1_000_001, GOOD)} == {
        "shared_buffers", "max_wal_size", "checkpoint_timeout", "maintenance_work_mem",
    }
    assert recommendation(10**9) is RECOMMENDATIONS[-1]


@pytest.mark.parametrize(("name", "value"), [
    ("fsync", ServerSetting("off")), ("wal_compression", ServerSetting("pglz", None, True)),
    ("checkpoint_timeout", ServerSetting("5min", 300)),
])
def test_one_bad_setting_is_named_with_its_cost(name, value):
    [found] = advice(0, GOOD | {name: value})
    assert (found.name, found.value) == (name, value.shown)
    assert found.cost


def test_a_server_without_lz4_need_not_use_it():
    assert advice(0, GOOD | {"wal_compression": ServerSetting("off", None, False)}) == []


def test_the_settings_are_read_from_the_server(database_url):
    connection = connect(database_url, "test")
    jobs, found = read_settings(connection)
    connection.close()
    assert jobs == 0
    assert found.keys() == GOOD.keys()
    with connected(database_url) as plain, plain.cursor() as cursor:
        cursor.execute("SELECT setting::bigint * 8192 FROM pg_settings WHERE name = 'shared_buffers'")
        assert cursor.fetchall() == [(found["shared_buffers"].amount,)]
        cursor.execute("SELECT setting::bigint FROM pg_settings WHERE name = 'checkpoint_timeout'")
        assert cursor.fetchall() == [(found["checkpoint_timeout"].amount,)]


def test_the_command_prints_what_is_off(database_url):
    connection = connect(database_url, "test")
    expected = {each.name for each in advice(*read_settings(connection))}
    connection.close()
    assert expected  # the tests' servers are made for speed
    code, text = health(database_url)
    assert code == 1
    assert {line.partition(" = ")[0] for line in text.splitlines()[1:]} == expected
    code, text = health(database_url, "--json")
    assert (code, {each["name"] for each in json.loads(text)["advice"]}) == (1, expected)


def test_the_documentation_has_the_same_values():
    text = OPERATING.read_text(encoding="utf-8")
    for name in ("shared_buffers", "max_wal_size", "checkpoint_timeout", "maintenance_work_mem"):
        [row] = re.findall(rf"^\| `{name}` \| (.*) \|$", text, flags=re.MULTILINE)
        assert row.split(" | ") == [as_setting(name, getattr(each, name)) for each in RECOMMENDATIONS]
