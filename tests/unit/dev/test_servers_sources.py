import contextlib
import importlib
from pathlib import Path

import pytest

from scheduler.dev.servers import apt, containers, start
from scheduler.dev.servers.binaries import RabbitBinaries
from scheduler.dev.servers.errors import ServersMissing

RABBIT = RabbitBinaries(Path("sbin"), Path("epmd"), None)


@pytest.fixture
def machine(monkeypatch):
    """A machine with nothing on it: no programs, no engine, no right to install."""

    class Machine:
        def __init__(self):
            self.installed = []
            self.has()

        def has(self, *, postgres=None, rabbitmq=None, engine=False, apt_works=False):
            monkeypatch.setattr(start, "find_postgres", lambda: postgres)
            monkeypatch.setattr(start, "find_rabbitmq", lambda: rabbitmq)
            monkeypatch.setattr(containers, "engine_answers", lambda: engine)
            monkeypatch.setattr(apt, "can_install", lambda: apt_works)

        def install(self, packages, say):
            say("installing")
            self.installed = packages
            self.has(postgres=Path("bin"), rabbitmq=RABBIT)

    machine = Machine()
    monkeypatch.setattr(apt, "install", machine.install)
    monkeypatch.setattr(apt, "is_leftover", lambda: False)
    return machine


def test_urls_need_no_programs(machine, tmp_path):
    sources = start._Sources("postgresql://somewhere", "amqp://somewhere")
    sources.complete(tmp_path / "base", print)
    assert machine.installed == []


def test_programs_here_come_before_an_engine(machine, tmp_path):
    machine.has(postgres=Path("bin"), rabbitmq=RABBIT, engine=True)
    sources = start._Sources(None, None)
    sources.complete(tmp_path / "base", print)
    assert sources.postgres == Path("bin")
    assert sources.rabbitmq == RABBIT


def test_an_engine_comes_before_installing(machine, tmp_path):
    machine.has(postgres=Path("bin"), engine=True, apt_works=True)
    sources = start._Sources(None, None)
    sources.complete(tmp_path / "base", print)
    assert sources.postgres == Path("bin")
    assert sources.rabbitmq is None
    assert machine.installed == []


def test_only_what_is_missing_is_installed_and_said_first(machine, tmp_path):
    machine.has(postgres=Path("bin"), apt_works=True)
    said: list[str] = []
    sources = start._Sources(None, None)
    sources.complete(tmp_path / "base", said.append)
    assert machine.installed == ["rabbitmq-server"]
    assert said == ["installing"]
    assert sources.rabbitmq == RABBIT
    assert list(tmp_path.iterdir()) == [], "the lock of the installation is gone"


def test_otherwise_the_error_names_what_is_missing(machine, tmp_path):
    with pytest.raises(ServersMissing) as caught:
        start._Sources("postgresql://somewhere", None).complete(tmp_path / "base", print)
    assert caught.value.missing == ("RabbitMQ",)
    assert machine.installed == []


def test_no_package_for_containers_is_no_error(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert containers.engine_answers() is False


def test_no_engine_is_no_error(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    assert containers.engine_answers() is False


@pytest.mark.parametrize(
    ("module", "name"), [("postgres", "PostgresContainer"), ("rabbitmq", "RabbitMqContainer")]
)
def test_the_container_classes_are_where_we_look(module, name):
    pytest.importorskip("testcontainers")
    assert containers._load(module, name).__name__ == name


def interrupted(policy: Path) -> str:
    during = ""
    with contextlib.suppress(KeyboardInterrupt), apt.services_stay_down(policy):
        during = policy.read_text()
        raise KeyboardInterrupt
    return during


@pytest.mark.parametrize("before", [None, "#!/bin/sh\nexit 0\n"])
def test_the_switch_that_keeps_services_down_is_put_back(tmp_path, before):
    policy = tmp_path / "policy-rc.d"
    if before:
        policy.write_text(before)
    during = interrupted(policy)
    assert "exit 101" in during
    assert [path.name for path in tmp_path.iterdir()] == (["policy-rc.d"] if before else [])
    assert not before or policy.read_text() == before


def test_a_killed_installation_is_undone_by_the_next(tmp_path):
    policy = tmp_path / "policy-rc.d"
    policy.write_text("theirs")
    killed = apt.services_stay_down(policy)
    killed.__enter__()
    assert apt.is_leftover(policy)
    with apt.services_stay_down(policy):
        pass
    assert policy.read_text() == "theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["policy-rc.d"]
    killed.gen.close()
