"""A job with target.command: run by a worker that offers it, watched, and moved when that worker goes."""

import json
import signal
import sys
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from support import Host, Sidecar, until, utc

from chaos.proxy import Proxy
from scheduler.dev.servers import start_stack

SHOW = """import json, os, sys
event = json.load(sys.stdin)
print(json.dumps({"event": event, "arguments": sys.argv[1:], "environment": dict(os.environ)}))
print("careful", file=sys.stderr)
"""


class Fleet(Sidecar):
    """A sidecar, and the folder where commands leave their traces."""

    folder: Path

    def offer(self, text, **env):
        """Start a worker that offers these commands."""
        path = self.folder / f"commands{len(self.processes)}.toml"
        path.write_text(text)
        return self.start("worker", SCHEDULER_COMMANDS_FILE=str(path), **env)

    def python(self, program, name="job", more=""):
        """Return the table of a command that is a Python program."""
        run, folder = json.dumps([sys.executable, "-c", program]), json.dumps(str(self.folder))
        return f"[{name}]\nrun = {run}\ndirectory = {folder}\n{more}\n"

    def runs(self, job_id):
        return self.sql(
            "SELECT event_id, status::text, attempt, error, output, worker, attempts FROM runs WHERE job_id = %s"
            " UNION ALL SELECT event_id, status::text, attempt, error, output, worker, attempts FROM run_history"
            " WHERE job_id = %s", job_id, job_id)

    def run(self, job_id, *statuses):
        """Wait until the one run of a job has such a status."""
        def there():
            rows = self.runs(job_id)
            return rows[0] if rows and rows[0]["status"] in statuses else None
        return until(there, f"a run of {job_id} that is {statuses}: {self.runs(job_id)}")

    def trace(self, name, lines=1):
        """Wait until commands have written at least `lines` lines to a file, and return them."""
        path = self.folder / name
        def there():
            found = path.read_text().splitlines() if path.exists() else []
            return found if len(found) >= lines else None
        return until(there, f"{lines} lines in {name}")


@pytest.fixture
def fleet(database_url, amqp_url, tmp_path):
    made = Fleet(database_url, amqp_url)
    made.folder = tmp_path
    yield made
    codes = made.close()
    assert all(code in (0, -9) for code in codes), [p.raw[-3:] for p in made.processes]


def job(host, name="job", arguments=(), run=None, **fields):
    command = {"name": name} | ({"arguments": list(arguments)} if arguments else {})
    policy = {"run": run} if run is not None else {}
    return host.request(run_at=utc().isoformat(), target={"command": command}, **policy, **fields)


def test_a_command_gets_the_event_and_its_output_is_kept(fleet, host):
    fleet.up()
    worker = fleet.offer(fleet.python(SHOW, "show", 'arguments = true\nenvironment = { COLOUR = "blue" }')
                         + fleet.python("raise SystemExit(65)", "hopeless")
                         + fleet.python("import os; os.abort()", "abort")
                         + fleet.python(SHOW, "plain"), TERM="vt100", HOME="/home/of/worker").ready()
    spaced = job(host, "show", ["--day", "{{due_at}}", "{{payload.text}}", "-x {{attempt}}"],
                 payload={"text": "a 'b' {{job_id}}\n--c"})
    is_permanent, aborted = job(host, "hopeless"), job(host, "abort", run={"max_attempts": 2, "delay": 0})
    missing, unasked = job(host, "show", ["{{payload.none}}"]), job(host, "plain", ["x"])

    run = fleet.run(spaced, "succeeded")
    shown = json.loads(run["output"]["stdout"])
    event = shown["event"]
    assert shown["arguments"] == ["--day", event["due_at"], "a 'b' {{job_id}}\n--c", "-x 1"]
    assert (event["event_id"], event["job_id"], event["run"]["attempt"]) == (run["event_id"], spaced, 1)
    assert event["target"]["command"]["name"] == "show"
    assert (run["output"]["exit_code"], run["output"]["stderr"]) == (0, "careful\n")
    assert run["output"].keys() == {"exit_code", "stdout", "stderr", "duration_ms"}
    environment = {k: v for k, v in shown["environment"].items() if k not in ("PATH", "LANG", "LC_CTYPE")}
    assert environment == {"COLOUR": "blue", "HOME": "/home/of/worker", "SCHEDULER_EVENT_ID": run["event_id"],
                           "SCHEDULER_JOB_ID": spaced, "SCHEDULER_ATTEMPT": "1"}
    assert fleet.run(is_permanent, "dead")["error"].startswith("exit code 65")
    run = fleet.run(aborted, "dead")
    assert (run["attempt"], run["output"]["signal"], run["error"]) == (2, signal.SIGABRT, "SIGABRT (6)")
    assert "{{payload.none}}" in fleet.run(missing, "dead")["error"]
    assert "accepts no arguments" in fleet.run(unasked, "dead")["error"]
    assert [fleet.run(each, "dead")["attempt"] for each in (is_permanent, missing, unasked)] == [1, 1, 1]
    until(lambda: worker.metric("scheduler_commands_running") == 0, "no running command")
    shown = worker.http("/metrics")[1]
    assert 'scheduler_commands_ended_total{command="show",outcome="succeeded"} 1.0' in shown
    assert 'scheduler_commands_ended_total{command="abort",outcome="failed"} 2.0' in shown


def test_with_verified_users_a_worker_sets_user_id_on_every_message(fleet, host):
    fleet.up(SCHEDULER_TENANT_BY="user_id")
    table = fleet.python("print('done')", more='tenants = ["*"]')
    worker = fleet.offer(table, SCHEDULER_TENANT_BY="user_id").ready()
    text = str(uuid4())
    host.publish("request", {"id": text, "job_type": "x", "run_at": utc().isoformat(),
                             "target": {"command": {"name": "job"}}}, user_id=urlsplit(fleet.amqp_url).username)
    assert fleet.run(text, "succeeded")["output"]["stdout"] == "done\n"
    assert host.drain("scheduler_dead") == []
    warnings = [line["event"] for line in worker.lines if line["level"] == "warning"]
    assert set(warnings) <= {"no reply to `running`; starting the command"}  # if the sidecar is slow


def test_a_job_for_an_unoffered_command_stays_due(fleet, host):
    fleet.up()
    waiting = job(host, "unheard-of")
    row = until(lambda: (r := fleet.job(waiting)) and r["last_problem"] and r, "a problem")
    assert (row["status"], row["last_problem"]) == ("pending", "returned: no worker offers the command unheard-of")
    fleet.offer(fleet.python("print('at last')", "unheard-of"))
    assert fleet.run(waiting, "succeeded")["output"]["stdout"] == "at last\n"


WAITS = """import os, sys, time
with open('began', 'a') as file: file.write(os.environ['SCHEDULER_ATTEMPT'] + '\\n')
print('working', flush=True)
until = time.monotonic() + 600
while not os.path.exists('go') and time.monotonic() < until: time.sleep(0.02)
"""


def test_a_full_worker_takes_no_more_and_shows_the_newest_output(fleet, host):
    fleet.up()
    worker = fleet.offer(fleet.python(WAITS, more="concurrency = 2")).ready()
    jobs = [job(host) for _ in range(5)]
    fleet.trace("began", 2)

    def left():
        found = host.channel.queue_declare("scheduler_command_job", passive=True).method
        return found.message_count, found.consumer_count

    until(lambda: left() == (3, 0), "three events in the queue, without a consumer")
    until(lambda: worker.metric("scheduler_commands_running") == 2, "both counted")
    until(lambda: [run for each in jobs for run in fleet.runs(each)
                   if (run["output"] or {}).get("stdout") == "working\n" and run["status"] == "running"],
          "the output of a running command")
    (fleet.folder / "go").touch()
    for each in jobs:
        assert fleet.run(each, "succeeded")["attempt"] == 1
    assert len(fleet.trace("began", 5)) == 5


def test_a_stop_waits_for_commands_then_snoozes_them(fleet, host):
    fleet.up()
    text = fleet.python(WAITS, more="grace = 1")

    def stopped():
        """A worker that freezes for seconds while it stops may send no result; its attempt is then lost."""
        (fleet.folder / "began").unlink(missing_ok=True)
        worker = fleet.offer(text, SCHEDULER_STOP_GRACE="0").ready()
        stored_job = job(host, run={"max_attempts": 1})
        fleet.trace("began")
        assert worker.stop() == 0
        if worker.orderly:
            return stored_job
        host.publish("cancel", {"id": stored_job})
        fleet.run(stored_job, "cancelled", "dead")
        host.channel.queue_purge("scheduler_command_job")
        return None

    moved = until(stopped, "a stop in order")
    # Its last word is with the broker by then, and soon told to the database.
    told = until(lambda: fleet.runs(moved)[0]["attempts"], "the outcome of the first attempt")
    assert [each["outcome"] for each in told] == ["snoozed"]
    second = fleet.offer(text, SCHEDULER_STOP_GRACE="3600").ready()
    assert fleet.trace("began", 2) == ["1", "2"]
    second.popen.send_signal(signal.SIGTERM)
    until(lambda: host.channel.queue_declare("scheduler_command_job", passive=True).method.consumer_count == 0,
          "no more taken")
    (fleet.folder / "go").touch()
    assert second.ended() == 0
    assert fleet.run(moved, "succeeded")["attempt"] == 2, "an attempt snoozed by a stop does not count"


def test_a_second_signal_ends_worker_and_command_at_once(fleet, host):
    fleet.up()
    worker = fleet.offer(fleet.python(
        "import os, time; open('began', 'w').write(f'{os.getpid()}\\n')\nwhile True: time.sleep(1)",
        more="concurrency = 2",
    )).ready()
    job(host)
    [pid] = fleet.trace("began")

    def takers():
        return host.channel.queue_declare("scheduler_command_job", passive=True).method.consumer_count

    until(lambda: takers() == 1, "it would take one more")
    worker.popen.send_signal(signal.SIGTERM)
    until(lambda: takers() == 0, "the effect of the first signal")
    assert worker.stop() == 128 + signal.SIGTERM
    fleet.processes.remove(worker)
    until(lambda: not Path(f"/proc/{pid}").exists(), "the command gone")
    assert isinstance(worker.popen.returncode, int)


def test_a_command_beyond_its_timeout_is_terminated(fleet, host):
    fleet.up()
    # A shell, because Python needs seconds to start on a busy machine: the timeout must end a running command.
    where = json.dumps(str(fleet.folder))
    script = json.dumps("echo $$ > began; echo so far; exec sleep 999")
    fleet.offer(f'[job]\nrun = ["/bin/sh", "-c", {script}]\ndirectory = {where}\n').ready()
    long = job(host, run={"timeout": 3, "max_attempts": 1})
    [pid] = fleet.trace("began")
    [ended] = fleet.run(long, "dead")["attempts"]
    # The sidecar's own word, unless its producer is later than the worker, which gives it a second.
    assert ended["outcome"] == "timed_out" or "timed out after 3 s" in ended["error"]
    until(lambda: not Path(f"/proc/{pid}").exists(), "the command gone")


@pytest.mark.parametrize("text", ["[job]\nrun = ['true']\n", "[job]\nrun = ['/bin/true']\nshel = 1\n"])
def test_a_commands_file_error_names_its_line(fleet, text):
    worker = fleet.offer(text)
    assert worker.ended() == 78
    fleet.processes.remove(worker)
    assert f"commands0.toml: line {2 if 'shel' not in text else 3}: job: " in worker.raw[-1]


ALIVE = """import os, time
mark = os.environ['SCHEDULER_JOB_ID']
with open('pids', 'a') as file: file.write(f"{mark} {os.getpid()}\\n")
until = time.monotonic() + 600
while not os.path.exists(f'go-{mark}') and time.monotonic() < until: time.sleep(0.02)
print('done')
"""


def pids(fleet, lines=1):
    """Wait for `lines` started commands; return their pids by job."""
    return dict(line.split() for line in fleet.trace("pids", lines))


def test_a_dead_workers_command_is_killed_and_rerun_elsewhere(fleet, host):
    fleet.up()
    text = fleet.python(ALIVE)
    first = fleet.offer(text).ready()
    moved = job(host, run={"max_attempts": 2, "delay": 0})
    pid = pids(fleet)[moved]
    first.kill()
    until(lambda: not Path(f"/proc/{pid}").exists(), "the command gone with its worker")
    fleet.offer(text).ready()
    (fleet.folder / f"go-{moved}").touch()
    run = fleet.run(moved, "succeeded")
    assert [attempt["outcome"] for attempt in run["attempts"]] == ["lost", "succeeded"]


def test_a_disconnected_worker_finishes_and_reports_after_reconnecting(fleet, host, stack):
    fleet.up()
    proxy = Proxy(stack.rabbitmq.port)
    try:
        beyond = fleet.amqp_url.replace(f":{stack.rabbitmq.port}/", f":{proxy.port}/")
        worker = fleet.offer(fleet.python(ALIVE, more="concurrency = 2"), AMQP_URL=beyond).ready()
        ends, given_up = (job(host, run={"max_attempts": 3, "delay": 3600}) for _ in range(2))
        at_work = pids(fleet, 2)
        proxy.freeze()
        (fleet.folder / f"go-{ends}").touch()
        until(lambda: not Path(f"/proc/{at_work[ends]}").exists(), "the end of one command without a report")
        assert [attempt["outcome"] for attempt in fleet.run(given_up, "waiting")["attempts"]] == ["lost"]
        assert Path(f"/proc/{at_work[given_up]}").exists(), "who is cut off works on"
        proxy.thaw()
        run = fleet.run(ends, "succeeded")
        assert (run["attempt"], run["output"]["stdout"]) == (1, "done\n")
        until(lambda: not Path(f"/proc/{at_work[given_up]}").exists(), "the other ended: it is no longer its own")
        worker.logged("command ended: another worker has the run")
        until(lambda: 'outcome="superseded"} 1.0' in worker.http("/metrics")[1], "it is counted")
    finally:
        proxy.close()


def test_a_duplicate_event_starts_one_command(fleet, host):
    fleet.up()
    text = fleet.python(ALIVE)
    workers = [fleet.offer(text).ready() for _ in range(2)]
    copies = host.listen("schedule.work", "command.job")
    twice = job(host)
    pids(fleet)
    _, properties, body = host.get(copies)
    host.publish("command.job", body, exchange="schedule.work", message_id=properties.message_id)
    [left, *_] = until(lambda: [line["event"] for worker in workers for line in worker.lines
                                if line["event"].startswith(("command not started", "no reply to `running`"))],
                       "the second worker to skip the event, or to get no reply within five seconds")
    (fleet.folder / f"go-{twice}").touch()
    assert fleet.run(twice, "succeeded")["attempt"] == 1
    assert len(fleet.trace("pids")) == 1 or left.startswith("no reply")


def test_a_command_outlives_the_consumer_timeout_of_the_broker(stack, template, tmp_path):
    config = ["consumer_timeout = 2000"]
    database_url = stack.create_database(template=template)
    with start_stack(purpose="test", fast=True, database_url=database_url, rabbitmq_config=config) as own:
        own.rabbitmq.evaluate("application:set_env(rabbit, channel_tick_interval, 500)")  # when it looks: 1 minute
        fleet = Fleet(database_url, own.create_vhost())
        fleet.folder = tmp_path
        fleet.up()
        host = Host(fleet.amqp_url)
        worker = fleet.offer(fleet.python(ALIVE)).ready()
        long = job(host, run={"max_attempts": 1})
        pids(fleet)
        # The broker closes the channel of a consumer that acknowledges too late.
        name = host.channel.queue_declare("", exclusive=True).method.queue
        host.publish(name, {}, exchange="")
        channel = host.connection.channel()
        channel.basic_consume(name, lambda *_: None)
        until(lambda: host.connection.process_data_events(0) or not channel.is_open, "a consumer timed out")
        connections = len([line for line in worker.lines if line["event"] == "connected to RabbitMQ"])
        until(lambda: fleet.runs(long)[0]["output"] is not None, "a later heartbeat")
        (tmp_path / f"go-{long}").touch()
        assert fleet.run(long, "succeeded")["attempt"] == 1
        assert len([line for line in worker.lines if line["event"] == "connected to RabbitMQ"]) == connections
        host.close()
        assert set(fleet.close()) == {0}
    stack.drop_database(database_url)
