import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from scheduler.dev.servers import ports as ports_module
from scheduler.dev.servers import processes
from scheduler.dev.servers.ledger import Ledger, exclusive, locked, open_ledger, sweep, sweep_one
from scheduler.dev.servers.ports import free_ports, is_free
from scheduler.dev.servers.processes import ProcessIdentity, wait_until
from scheduler.domain.errors import Misconfigured

SLEEP = [sys.executable, "-c", "import signal; print(flush=True); signal.pause()"]


@pytest.fixture
def sleeper():
    with subprocess.Popen(SLEEP, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.kill()


def dead() -> ProcessIdentity:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return ProcessIdentity(process.pid, "some other boot/1")


def leave_behind(base: Path, owner: ProcessIdentity, processes: list[ProcessIdentity]) -> Path:
    directory = base / "test-left"
    directory.mkdir(parents=True)
    rows = [[who.pid, who.started, signal.SIGTERM] for who in processes]
    (directory / "stack.json").write_text(json.dumps({"owner": [owner.pid, owner.started], "processes": rows}))
    return directory


def test_a_dead_owners_processes_and_directory_are_swept(tmp_path, sleeper):
    directory = leave_behind(tmp_path, dead(), [ProcessIdentity.of(sleeper.pid)])
    sweep(tmp_path)
    assert sleeper.wait(60) == -signal.SIGTERM
    assert not directory.exists()


def test_a_sweep_waits_at_most_half_of_the_promised_30_seconds(tmp_path, monkeypatch):
    directory = leave_behind(tmp_path, dead(), [dead()])
    record = json.loads((directory / "stack.json").read_text())
    stops = (signal.SIGTERM, signal.SIGQUIT, signal.SIGKILL)
    record["processes"] = [[number, "some other boot/1", stop] for number, stop in enumerate(stops, 1)]
    (directory / "stack.json").write_text(json.dumps(record))
    graces = {}
    monkeypatch.setattr("scheduler.dev.servers.ledger.end",
                        lambda _, signum, grace: graces.update({signum: grace}))
    sweep(tmp_path)
    assert graces.keys() == set(stops)
    assert graces[signal.SIGTERM] + graces[signal.SIGQUIT] <= 15  # SIGKILL needs no grace


def test_the_lock_of_another_sweep_does_not_delay_the_end_of_processes(tmp_path, sleeper):
    directory = leave_behind(tmp_path, dead(), [ProcessIdentity.of(sleeper.pid)])
    with locked(tmp_path):
        sweeping = threading.Thread(target=sweep_one, args=(directory,))
        sweeping.start()
        assert sleeper.wait(60) == -signal.SIGTERM
    sweeping.join()
    assert not directory.exists()


def test_a_process_that_merely_has_a_recorded_number_is_spared(tmp_path, sleeper):
    innocent = ProcessIdentity(sleeper.pid, "some other boot/1")
    leave_behind(tmp_path, dead(), [innocent])
    sweep(tmp_path)
    assert sleeper.poll() is None


def test_a_living_owners_stack_is_left_alone(tmp_path, sleeper):
    directory = leave_behind(tmp_path, ProcessIdentity.of(os.getpid()), [ProcessIdentity.of(sleeper.pid)])
    sweep(tmp_path)
    assert directory.exists()
    assert sleeper.poll() is None


def test_a_directory_whose_owner_died_before_writing_its_record_is_removed(tmp_path):
    (tmp_path / "test-half").mkdir()
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


FAMILY = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child:
    print(child, flush=True)
signal.pause()
"""


def test_what_a_process_that_ignores_the_request_spawned_ends_too():
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE) as parent:
        child = ProcessIdentity.of(int(parent.stdout.readline()))
        processes.end([ProcessIdentity.of(parent.pid)], signal.SIGTERM, grace=0.1)
        assert not child.alive()


def test_closing_ends_what_was_spawned_and_leaves_not_even_the_base(tmp_path):
    ledger = open_ledger(tmp_path / "base", "test")
    process = ledger.spawn(["sleep", "600"])
    assert os.getsid(process.pid) == process.pid, "Ctrl-C in the terminal must not reach it"
    ledger.close()
    assert process.poll() is not None
    assert not (tmp_path / "base").exists()


def test_nothing_is_spawned_once_the_ledger_is_closed(tmp_path):
    ledger = open_ledger(tmp_path / "base", "test")
    ledger.close()
    with pytest.raises(Misconfigured):
        ledger.spawn(["sleep", "600"])


def test_a_forked_child_does_not_close_its_parents_ledger(tmp_path, monkeypatch):
    ledger = open_ledger(tmp_path / "base", "test")
    monkeypatch.setattr(os, "getpid", lambda: 1)
    ledger.close()
    assert ledger.directory.exists()
    monkeypatch.undo()
    ledger.close()


def test_one_stack_going_leaves_the_other(tmp_path):
    first, second = open_ledger(tmp_path / "base", "a"), open_ledger(tmp_path / "base", "b")
    first.close()
    assert second.directory.exists()
    sweep_one(second.directory)
    assert second.directory.exists(), "its owner lives"
    second.close()


def test_a_base_that_is_not_ours_alone_is_refused(tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    base.chmod(0o777)
    with pytest.raises(Misconfigured, match="not a private directory"):
        open_ledger(base, "test")
    link = tmp_path / "link"
    link.symlink_to(base)
    with pytest.raises(Misconfigured, match="not a private directory"):
        open_ledger(link, "test")


def test_the_lock_admits_one_at_a_time_even_while_its_file_comes_and_goes(tmp_path):
    inside, most, guard = [0], [0], threading.Lock()

    def work():
        for _ in range(50):
            with exclusive(tmp_path / "lock"):
                with guard:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                with guard:
                    inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] == 1
    assert not (tmp_path / "lock").exists()


def test_the_record_is_readable_whenever_it_is_read(tmp_path):
    with locked(tmp_path / "base"):
        directory = tmp_path / "base" / "x"
        directory.mkdir()
        ledger = Ledger(directory)
    ledger.adopt(os.getpid())
    record = json.loads((directory / "stack.json").read_text())
    assert record["owner"][0] == record["processes"][0][0] == os.getpid()


def test_a_zombie_counts_as_gone():
    process = subprocess.Popen([sys.executable, "-c", ""])
    who = ProcessIdentity(process.pid, "unknown")
    assert wait_until(lambda: processes.start_time(process.pid) is None, 60)
    assert not who.alive()
    process.wait()


HEADLESS = """
import ctypes, signal, threading
threading.Thread(target=signal.pause).start()
print(flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="seen in /proc")
def test_a_process_whose_first_thread_is_gone_is_alive_while_another_runs():
    """A killed broker of thirty threads counted as gone, and its port was not free."""
    with subprocess.Popen([sys.executable, "-c", HEADLESS], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        who = ProcessIdentity.of(process.pid)
        stat = Path(f"/proc/{process.pid}/stat")
        assert wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", 60)
        assert who.alive()
        process.kill()
        assert wait_until(lambda: not who.alive(), 60)


def test_free_ports_differ_and_are_free():
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(map(is_free, ports))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere chance has to do")
def test_a_port_is_given_once_though_nobody_listens_on_it_yet(monkeypatch):
    """Two test runs chose the same port in the moment before the first server took it."""
    monkeypatch.setattr(ports_module, "_LAST", ports_module._FIRST + 200)
    other = "from scheduler.dev.servers import ports; ports._LAST = ports._FIRST + 200; "
    command = [sys.executable, "-c", other + "print(*ports.free_ports(30), flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        theirs = {int(port) for port in process.stdout.readline().split()}
        assert len(theirs) == 30
        assert not theirs & set(free_ports(30))
        process.communicate("\n")
