import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from support import connected

from scheduler.domain.errors import Misconfigured
from scheduler.postgres.migrate import migrate, status
from scheduler.postgres.migration_files import Migration, files


def test_applies_once_and_says_what_is_applied(empty_database):
    assert [state.applied_at for state in status(empty_database)] == [None] * len(files())
    assert migrate(empty_database) == files()
    assert migrate(empty_database) == []
    assert all(state.applied_at for state in status(empty_database))


def test_many_replicas_at_once_apply_each_file_once(empty_database):
    with ThreadPoolExecutor(6) as pool:
        applied = list(pool.map(lambda _: migrate(empty_database), range(6)))
    assert sorted(map(len, applied)) == [0, 0, 0, 0, 0, len(files())]


def test_refuses_a_file_that_was_changed_after_it_was_applied(empty_database):
    migrate(empty_database)
    changed = [replace(files()[0], sql="SELECT 1"), *files()[1:]]
    with pytest.raises(Misconfigured, match=r"0001_jobs\.sql was changed after it was applied"):
        migrate(empty_database, changed)
    with pytest.raises(Misconfigured, match="was changed"):
        status(empty_database, changed)


def test_refuses_a_database_that_is_newer(empty_database):
    migrate(empty_database, [*files(), Migration(files()[-1].version + 1, "9999_future.sql", "SELECT 1")])
    with pytest.raises(Misconfigured, match=r"newer than this program: it has migration 9999_future\.sql"):
        migrate(empty_database)


def test_a_migration_that_fails_leaves_nothing(empty_database):
    bad = Migration(files()[-1].version + 1, "0099_bad.sql", "CREATE TABLE half (); SELECT nonsense")
    with pytest.raises(Misconfigured, match=r"0099_bad\.sql failed and was rolled back"):
        migrate(empty_database, [*files(), bad])
    with connected(empty_database) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('half'), (SELECT count(*) FROM schema_migrations)")
        assert cursor.fetchone() == (None, len(files()))


def test_the_command_says_what_it_did(empty_database):
    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "scheduler", "migrate", *arguments], env={"DATABASE_URL": empty_database},
            capture_output=True, text=True, check=False,
        )

    assert "pending" in run("--status").stdout
    planned = run("--plan").stdout
    assert planned.startswith("0001_jobs.sql, in one transaction: Jobs: one row for each id")
    assert "  creates index runs_due on runs" in planned
    first = run()
    assert (first.returncode, "0001_jobs.sql" in first.stdout) == (0, True)
    assert run().stdout == run("--plan").stdout == "the database is up to date\n"
    assert "applied 20" in run("--status").stdout


@pytest.mark.parametrize("command", ["migrate", "consumer", "producer"])
def test_an_unreachable_server_is_exit_69_without_waiting_and_a_bad_setting_78(command):
    def run(*arguments, **env):
        done = subprocess.run(
            [sys.executable, "-m", "scheduler", command, *arguments], capture_output=True, text=True, check=False,
            env={"DATABASE_URL": "postgresql://u:hush@127.0.0.1:1/x", "METRICS_PORT": "0"} | env,
        )
        assert "hush" not in done.stdout + done.stderr
        return done.returncode, done.stderr

    code, text = run("--no-wait")
    assert (code, "127.0.0.1" in text) == (69, True)
    code, text = run(SCHEDULER_BATCH_SIZE="many")
    assert (code, "SCHEDULER_BATCH_SIZE" in text) == (78, True)
    code, text = run(SCHEDULER_BATCHSIZE="5")
    assert (code, "SCHEDULER_BATCHSIZE" in text) == (78, True)
