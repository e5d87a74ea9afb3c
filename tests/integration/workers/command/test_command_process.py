"""Real processes of commands: limits, signals, background processes and output."""

import json
import os
import pwd
import queue
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import DEADLINE, until

from scheduler.workers.command import process as command_process
from scheduler.workers.command.process import CommandOrder, Supervisors
from scheduler.workers.command.supervisor.pipes import KEPT_BYTES, OutputTail


@pytest.fixture
def supervisors(monkeypatch):
    # The tests send no heartbeats.
    monkeypatch.setattr(command_process, "LEASE_SECONDS", 3600)
    made = Supervisors()
    yield made
    made.close()


def order(*run, stdin=b"", timeout=60.0, grace=60.0, environment=None, limits=None, user=None, directory="/tmp"):
    environment = {"PATH": os.environ["PATH"]} if environment is None else environment
    return CommandOrder(run, directory, environment, stdin, timeout, grace, limits or {}, user)


def python(program, *arguments, **bounds):
    return order(sys.executable, "-c", program, *arguments, **bounds)


class Watched:
    """A command, and how it ended."""

    def __init__(self, supervisors, what):
        self._ended = queue.SimpleQueue()
        self.command = supervisors.start(what, self._ended.put)

    def ended(self):
        return self._ended.get(timeout=DEADLINE)

    def wrote(self, mark=b"\n"):
        """Wait for output with `mark` in it."""
        def newest():
            self.command.beat()
            return mark in self.command.newest.stdout and self.command.newest.stdout
        return until(newest, f"output with {mark!r}")


def ran(supervisors, what):
    return Watched(supervisors, what).ended()


def gone(pid):
    """Return whether a process has ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(("program", "exit_code", "number"), [
    ("raise SystemExit(0)", 0, None),
    ("raise SystemExit(65)", 65, None),
    ("raise SystemExit(255)", 255, None),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", None, signal.SIGSEGV),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", None, signal.SIGKILL),
])
def test_the_end_of_a_command_is_reported(supervisors, program, exit_code, number):
    ended = ran(supervisors, python(program))
    assert (ended.exit_code, ended.signal, ended.ended_by) == (exit_code, number, None)


def test_arguments_environment_and_input_come_as_they_are_given(supervisors, tmp_path):
    show = """import json, os, sys
leads = [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()]
print(json.dumps([sys.argv[1:], dict(os.environ), sys.stdin.read(), os.getcwd(), leads,
                  [os.isatty(n) for n in range(3)], os.listdir('/proc/self/fd')]))
try: open('/dev/tty')
except OSError as error: print(error.strerror, file=sys.stderr)
"""
    given = ["a b", "'\"", "line\nbreak", "-rf", "--", "$(touch x) `touch x`; touch x", "*", "ü€", "", "\\"]
    ended = ran(supervisors, python(
        show, *given, stdin='{"payload": "ü"}'.encode(), environment={"A": "b c", "E": "", "PYTHONUTF8": "1"},
        directory=str(tmp_path),
    ))
    arguments, environment, stdin, directory, leads, terminals, open_files = json.loads(ended.stdout)
    assert arguments == given
    assert {**environment, "LC_CTYPE": None} == {"A": "b c", "E": "", "PYTHONUTF8": "1", "LC_CTYPE": None}
    assert (stdin, directory) == ('{"payload": "ü"}', str(tmp_path))
    assert (leads, terminals) == ([True, True], [False] * 3), "own session, own process group, no terminal"
    assert len(open_files) == 4, "the three streams, and the folder that is being listed"
    assert b"No such device" in ended.stderr  # opening the terminal fails
    assert list(tmp_path.iterdir()) == []


def test_input_that_nobody_reads_holds_nothing_up(supervisors):
    assert ran(supervisors, order("/bin/true", stdin=b"x" * 1_000_000)).exit_code == 0
    ended = ran(supervisors, python("import os, sys; os.close(0); print('closed')", stdin=b"x" * 1_000_000))
    assert (ended.exit_code, ended.stdout) == (0, b"closed\n")


def test_a_great_deal_of_output_is_read_and_its_end_kept(supervisors):
    megabytes = 64
    program = f"""import sys
for n in range({megabytes}): sys.stdout.buffer.write(b'x' * 2**20); sys.stderr.buffer.write(b'e' * 2**20)
print('the end'); print('its end', file=sys.stderr)"""
    ended = ran(supervisors, python(program))
    assert ended.exit_code == 0
    assert (len(ended.stdout), len(ended.stderr)) == (KEPT_BYTES, KEPT_BYTES)
    assert ended.stdout.endswith(b"xthe end\n")
    assert ended.stderr.endswith(b"eits end\n")


def test_output_memory_is_bounded():
    reader, writer = os.pipe()
    tail = OutputTail(reader)
    most = 0
    for number in range(300):
        os.write(writer, bytes([number % 256]) * 60_000)
        tail.read()
        most = max(most, len(tail._tail))
    assert most == KEPT_BYTES
    os.close(writer)
    tail.read()
    assert tail.descriptor is None


def test_the_newest_output_can_be_watched(supervisors):
    watched = Watched(supervisors, python("import signal; print('first', flush=True); signal.pause()"))
    assert watched.wrote(b"first") == b"first\n"
    watched.command.end("enough")
    assert watched.ended().ended_by == "enough"


def test_a_command_that_closes_its_output_is_at_work_until_it_ends(supervisors, tmp_path):
    program = """import os, sys, time
print('before', flush=True)
os.close(1); os.close(2)
until = time.monotonic() + 600
while not os.path.exists('go') and time.monotonic() < until: time.sleep(0.01)
os._exit(9)"""
    watched = Watched(supervisors, python(program, directory=str(tmp_path)))
    watched.wrote(b"before")
    (tmp_path / "go").touch()
    assert watched.ended().exit_code == 9


DAEMON = """import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
there, here = os.pipe()
between = os.fork()
if between == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    print(os.getpid(), flush=True)
    os.write(here, b'x')
    while True: time.sleep(1)
os.waitpid(between, 0)
os.read(there, 1)
%s"""


def test_a_daemon_that_a_command_leaves_behind_is_ended(supervisors):
    ended = ran(supervisors, python(DAEMON % "os._exit(3)", grace=0.1))
    assert ended.exit_code == 3
    assert gone(int(ended.stdout)), "in another session, and ignoring SIGTERM"
    assert (ended.left_behind, ended.survivors) == (1, 0)


def test_a_background_process_may_exit_on_sigterm(supervisors, tmp_path):
    os.mkfifo(tmp_path / "up")
    script = "(trap 'echo bye > left; exit' TERM; echo up > up; while :; do sleep 0.05; done) & read line < up"
    ended = ran(supervisors, order("/bin/sh", "-c", script, directory=str(tmp_path)))
    assert (ended.exit_code, ended.ended_by) == (0, None)
    assert (tmp_path / "left").read_text() == "bye\n"


def test_ending_reaches_the_group_and_grandchildren_that_left_it_with_sigkill_after_the_grace(supervisors):
    watched = Watched(supervisors, python(DAEMON % "\nwhile True: time.sleep(1)", grace=0.2))
    daemon = int(watched.wrote())
    watched.command.end("stop")
    ended = watched.ended()
    assert (ended.signal, ended.ended_by, ended.survivors) == (signal.SIGKILL, "stop", 0)
    assert gone(daemon)


def test_the_deadline_ends_it(supervisors):
    ended = ran(supervisors, order("/bin/sh", "-c", "echo started; sleep 999", timeout=0.3))
    assert (ended.signal, ended.ended_by) == (signal.SIGTERM, "deadline")


def test_sigterm_comes_first_also_to_a_stopped_process(supervisors):
    program = "import os, signal; print('up', flush=True); os.kill(os.getpid(), signal.SIGSTOP); signal.pause()"
    watched = Watched(supervisors, python(program))
    watched.wrote(b"up")
    watched.command.end("stop")
    assert watched.ended().signal == signal.SIGTERM


def test_a_second_stop_may_shorten_the_grace_period(supervisors):
    program = "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True); signal.pause()"
    watched = Watched(supervisors, python(program, grace=3600))
    watched.wrote(b"up")
    watched.command.end("stop")
    watched.command.end("now", 0)
    ended = watched.ended()
    assert (ended.signal, ended.ended_by) == (signal.SIGKILL, "stop")


@pytest.mark.parametrize(("limits", "program", "check"), [
    ({"memory": 256 * 2**20}, "x = bytearray(10**9)", lambda ended: b"MemoryError" in ended.stderr),
    ({"cpu_seconds": 1}, "while True: pass", lambda ended: ended.signal == signal.SIGXCPU),
    ({"open_files": 16}, "x = [open('/dev/null') for _ in range(99)]", lambda ended: b"Too many" in ended.stderr),
    ({"file_size": 4096}, "open('big', 'wb').write(b'x' * 99999)", lambda ended: b"File too" in ended.stderr),
])
def test_limits_hold(supervisors, tmp_path, limits, program, check):
    ended = ran(supervisors, python(program, limits=limits, directory=str(tmp_path)))
    assert check(ended), ended


def test_it_runs_as_the_user_that_the_file_names(supervisors):
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    ended = ran(supervisors, order("/bin/sh", "-c", "id -u; id -g", user=user.pw_name))
    assert ended.stdout.split() == [b"%d" % user.pw_uid, b"%d" % user.pw_gid]


def test_what_cannot_be_started_says_why(supervisors, tmp_path):
    missing = ran(supervisors, order(str(tmp_path / "none")))
    assert (missing.problem, missing.permanent) == ("No such file or directory", False)
    too_long = ran(supervisors, order("/bin/echo", "x" * 300_000))
    assert (too_long.problem, too_long.permanent) == ("Argument list too long", True)
    nowhere = ran(supervisors, order("/bin/true", directory=str(tmp_path / "none")))
    assert nowhere.problem == "No such file or directory"
    script = tmp_path / "script"
    script.write_text("no shebang: exec alone cannot run it, and no shell is asked")
    script.chmod(0o755)
    assert ran(supervisors, order(str(script))).problem == "Exec format error"


WORKER = """import sys
from scheduler.workers.command import process as command_process
command_process.LEASE_SECONDS = float(sys.argv[1])
what = command_process.CommandOrder((sys.executable, '-c', sys.argv[2]), '/', {}, b'', 3600, 60, {})
command = command_process.Supervisors().start(what, print)
while not command.newest.stdout.endswith(b'\\n'): command.beat()
print(command.newest.stdout.decode(), end='', flush=True)
while True: command.beat()
"""
STUBBORN = """import os, signal, time
signal.signal(15, signal.SIG_IGN)
print(os.getpid(), flush=True)
while True: time.sleep(1)"""


@pytest.mark.parametrize(("how", "lease"), [(signal.SIGKILL, 3600), (signal.SIGSTOP, 15)])
def test_commands_end_with_a_dead_or_frozen_worker(how, lease):
    with subprocess.Popen([sys.executable, "-c", WORKER, str(lease), STUBBORN], stdout=subprocess.PIPE) as worker:
        pid = int(worker.stdout.readline())
        assert not gone(pid)
        worker.send_signal(how)
        until(lambda: gone(pid), "the command gone with its worker")
        worker.kill()


def test_a_command_ends_with_its_killed_supervisor(supervisors):
    watched = Watched(supervisors, python(STUBBORN))
    pid = int(watched.wrote())
    watched.command._process.kill()
    assert "supervisor was killed" in watched.ended().problem
    until(lambda: gone(pid), "the command gone")


def test_a_supervisor_needs_nothing_but_the_standard_library():
    program = command_process._PROGRAM.replace("main()",
                                               "print([n for n in sys.modules if n.startswith('scheduler')])")
    command = [sys.executable, "-I", "-S", "-c", program, str(Path(command_process.__file__).parents[3])]
    shown = subprocess.run(command, capture_output=True, check=True).stdout
    parts = ["", ".argument_pattern", ".child", ".pipes", ".supervision"]
    assert sorted(eval(shown)) == ["scheduler", "scheduler.workers", "scheduler.workers.command", *(
        f"scheduler.workers.command.supervisor{part}" for part in parts
    )]


def test_many_at_once(supervisors):
    watched = [Watched(supervisors, order("/bin/sh", "-c", f"echo {n}; exit {n}")) for n in range(20)]
    ends = [each.ended() for each in watched]
    assert [end.exit_code for end in ends] == list(range(20))
    assert [int(end.stdout) for end in ends] == list(range(20))
