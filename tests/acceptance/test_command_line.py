"""The operator commands as people and scripts use them: ids, times, questions, exit codes and completion."""

import json
import subprocess
import sys
from uuid import uuid4

import pytest
from support import DEADLINE, connected, iso, utc
from terminal_support import CLEAN, on_a_terminal, without_colours

FIRST, SECOND, OTHER = (f"{start}-0000-4000-8000-000000000000" for start in ("aaaaaaaa", "aaaaaaab", "bbbbbbbb"))
TWIN = "bbbbbbbb-0000-4000-8000-000000000001"


@pytest.fixture
def scheduler(database_url):
    def run(*arguments, database=database_url, **env):
        return subprocess.run(
            [sys.executable, "-m", "scheduler", *map(str, arguments)], capture_output=True, text=True,
            env=CLEAN | {"DATABASE_URL": database, "AMQP_URL": "amqp://127.0.0.1:1"} | env, timeout=DEADLINE,
            check=False, stdin=subprocess.DEVNULL,
        )

    return run


@pytest.fixture
def sql(database_url):
    with connected(database_url, options="-c search_path=scheduler") as connection, connection.cursor() as cursor:
        def run(statement, *values):
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

        yield run


@pytest.fixture
def jobs(sql):
    for number, job in enumerate((FIRST, SECOND, OTHER, TWIN)):
        sql("INSERT INTO jobs (id, job_type, name, next_run_at, starts_at) "
            "VALUES (%s, 'report', %s, '2099-01-01', now())", job, f"Job {number}")


@pytest.mark.usefixtures("jobs")
def test_statuses_have_colours_on_a_terminal_only(scheduler, sql, database_url):
    sql("UPDATE jobs SET status = 'paused', paused_at = now() WHERE id = %s", FIRST)
    assert "\x1b[33mpaused" in on_a_terminal(database_url, "job", "list")[1]
    assert "\x1b" not in scheduler("job", "list").stdout


def dead_run(sql, event_id, at=None):
    sql("INSERT INTO run_history (event_id, status, job_id, job_type, due_at, finished_at, origin, policy, event) "
        "VALUES (%s, 'dead', %s, 'report', %s, %s, 'schedule', '{}', '{}')", event_id, FIRST, *(2 * [at or utc()]))


@pytest.mark.usefixtures("jobs")
def test_id_prefixes_are_accepted(scheduler, sql):
    assert json.loads(scheduler("job", "show", "aaaaaaaa", "--json").stdout)["id"] == FIRST
    assert json.loads(scheduler("job", "pause", "AAAAAAAB-0000-4", "--json").stdout)["id"] == SECOND
    ambiguous = scheduler("job", "trigger", "bbbbbbbb0000")
    assert ambiguous.returncode == 1
    assert all(job in ambiguous.stderr for job in (OTHER, TWIN))
    assert sql("SELECT count(*) FROM jobs WHERE trigger_at IS NOT NULL") == [(0,)]
    for prefix, code in (("cccccccc", 1), ("aaaaaaa", 2), ("report", 2), ("aaaaaaaaa", 1), (f"{FIRST}0", 2)):
        assert scheduler("job", "show", prefix).returncode == code, prefix
    dead_run(sql, TWIN)
    assert json.loads(scheduler("run", "show", "bbbbbbbb", "--json").stdout)["event_id"] == TWIN
    sql("INSERT INTO delayed_messages (message_id, exchange, routing_key, properties, body, due_at, wake_at) "
        "VALUES (%s, 'x', '', '', '', '2099-01-01', '2099-01-01')", FIRST)
    assert scheduler("delayed", "cancel", "aaaaaaaa", "--yes").stdout == "cancelled\n"
    digits = "12345678-0000-4000-8000-000000000000"  # could be the number of a message without an id
    sql("UPDATE delayed_messages SET message_id = %s, exchange = 'x', routing_key = '', properties = '', "
        "body = ''", digits)
    assert json.loads(scheduler("delayed", "show", "12345678", "--json").stdout)["message_id"] == digits
    assert scheduler("delayed", "show", "123456789").returncode == 1
    listed = json.loads(scheduler("run", "list", "--job", "aaaaaaaa", "--json").stdout)
    assert [run["event_id"] for run in listed] == [TWIN]


@pytest.mark.usefixtures("jobs")
def test_tables_show_whole_ids_on_any_terminal(database_url):
    for columns in (80, 40, 20):
        code, shown = on_a_terminal(database_url, "job", "list", columns=columns)
        lines = without_colours(shown).splitlines()
        assert (code, len(lines)) == (0, 5)
        assert [line.split()[0] for line in lines[1:]] == [TWIN, OTHER, SECOND, FIRST]
        assert max(map(len, lines)) <= max(columns, 36)


def test_tables_show_whole_names_of_calendars(scheduler, database_url, tmp_path):
    (tmp_path / "days.json").write_text("{}")
    name = "holidays-of-the-office-in-berlin"
    assert scheduler("calendar", "import", name, tmp_path / "days.json").returncode == 0
    assert name in on_a_terminal(database_url, "calendar", "list", columns=20)[1]


def test_a_verb_for_an_unknown_id_stores_nothing(scheduler, sql):
    for command in ("job show", "job pause", "job resume", "job trigger", "job cancel --yes", "job cancel",
                    "run show", "run retry", "run cancel", "delayed show", "delayed cancel --yes"):
        done = scheduler(*command.split(), uuid4())
        assert (done.returncode, done.stdout) == (1, ""), command
        assert "no " in done.stderr
    for table in ("jobs", "runs", "delayed_messages", "audit"):
        assert sql(f"SELECT count(*) FROM {table}") == [(0,)], table


@pytest.mark.usefixtures("jobs")
def test_bulk_cancels_show_the_count_before_confirmation(scheduler, sql, database_url):
    pending = "SELECT count(*) FROM jobs WHERE status = 'pending'"
    refused = scheduler("job", "cancel", "--job-type", "report")
    assert (refused.returncode, "4 jobs match" in refused.stderr, "--yes" in refused.stderr) == (1, True, True)
    code, shown = on_a_terminal(database_url, "job", "cancel", "--q", "Job 1", answer="n\n")
    assert (code, "1 job matches" in shown, sql(pending)) == (1, True, [(4,)])
    assert scheduler("job", "cancel", "--q", "none").stdout == "0 matched\n"
    code, shown = on_a_terminal(database_url, "job", "cancel", "--job-type", "report", answer="y\n")
    assert (code, shown.index("4 jobs match") < shown.index("[y/N]"), sql(pending)) == (0, True, [(0,)])


@pytest.mark.parametrize("command", [
    "job list", f"job show {FIRST}", "job show aaaaaaaa", f"job cancel {FIRST} --yes", "job pause --job-type a",
    "run list", f"run retry {FIRST}", "delayed list", "calendar list", "top --once", "consumer --no-wait",
])
def test_an_unmigrated_database_is_reported_with_its_fix(scheduler, empty_database, command):
    done = scheduler(*command.split(), database=empty_database, METRICS_PORT="0")
    assert (done.returncode, "scheduler migrate" in done.stderr) == (78, True), done.stderr


def test_times_may_be_relative_to_now(scheduler, sql):
    for hours in (1, 3):
        dead_run(sql, str(uuid4()), utc(hours=-hours))
    for options, count in (("--since -2h", 1), ("--since=-4h", 2), ("--since -1w --until -2h", 1),
                           ("--since +1d", 0), (f"--since {iso(utc(hours=-2))}", 1)):
        done = scheduler("run", "list", *options.split(), "--json")
        assert len(json.loads(done.stdout)) == count, (options, done.stderr)
    assert len(scheduler("run", "export", "--since", "-2h", "--until", "+0s").stdout.splitlines()) == 1
    for wrong in ("-2x", "yesterday", "+999999999w"):
        assert scheduler("run", "list", "--since", wrong).returncode == 2


def complete(script, line):
    """Return what bash offers after this line."""
    words = line.split(" ")
    listed = " ".join(f"'{word}'" for word in words)
    call = f"COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _scheduler"
    program = f"{script}\n{call}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_completion_offers_verbs_options_and_values(scheduler):
    script = scheduler("completion", "bash", DATABASE_URL="").stdout
    assert {"job", "migrate", "completion"} <= set(complete(script, "scheduler "))
    assert complete(script, "scheduler job sh") == ["show"]
    assert complete(script, "scheduler --version job list --st") == ["--status"]
    assert "cancelled" in complete(script, "scheduler job list --json --status c")
    assert complete(script, "scheduler job list --q ") == []
    assert complete(script, "scheduler completion z") == ["zsh"]
    assert scheduler("completion", "zsh").stdout.startswith("#compdef scheduler\n")
    assert "-l status -x -a 'pending" in scheduler("completion", "fish").stdout
    assert scheduler("completion", "tcsh").returncode == 2


def test_mistyped_commands_get_suggestions(scheduler):
    done = scheduler("job", "list", SCHEDULER_SCHEME="x", SCHEDULER_BATCHSIZE="5")
    assert done.returncode == 78
    assert "did you mean SCHEDULER_SCHEMA?" in done.stderr
    assert "did you mean SCHEDULER_BATCH_SIZE?" in done.stderr
    asked = scheduler("health", METRICS_HOST="127.0.0.1", METRICS_PORT="9")
    assert (asked.returncode, "http://127.0.0.1:9/readyz" in asked.stderr) == (1, True)
