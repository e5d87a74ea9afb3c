from pathlib import Path

import pytest

from scheduler.dev.servers.binaries import find_postgres, find_rabbitmq
from scheduler.dev.servers.errors import ServersMissing
from scheduler.dev.servers.rabbitmq_home import needed_plugins
from scheduler.domain.errors import Misconfigured

NOWHERE = "/nonexistent"


def programs(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


def test_the_newest_postgres_wins_by_number_not_by_spelling(tmp_path):
    for version in ("9.6", "15", "16"):
        programs(tmp_path / f"usr/lib/postgresql/{version}/bin", "initdb", "postgres")
    assert find_postgres(tmp_path, NOWHERE) == tmp_path / "usr/lib/postgresql/16/bin"


def test_a_postgres_client_without_its_server_is_no_postgres(tmp_path):
    programs(tmp_path / "usr/lib/postgresql/16/bin", "psql", "initdb")
    assert find_postgres(tmp_path, NOWHERE) is None


def test_a_postgres_too_old_for_us_is_passed_over(tmp_path):
    programs(tmp_path / "usr/lib/postgresql/9.6/bin", "initdb", "postgres")
    assert find_postgres(tmp_path, NOWHERE) is None


def test_a_link_in_path_is_followed_to_where_postgres_lives(tmp_path):
    real = programs(tmp_path / "opt/pg/bin", "initdb", "postgres")
    links = tmp_path / "links"
    links.mkdir()
    (links / "initdb").symlink_to(real / "initdb")
    assert find_postgres(tmp_path, str(links)) == real


def test_rabbitmq_is_its_own_scripts_and_never_the_wrapper_that_switches_user(tmp_path):
    wrapper = programs(tmp_path / "usr/sbin", "rabbitmq-server", "rabbitmqctl")
    programs(tmp_path / "usr/lib/erlang/erts-13.1/bin", "epmd", "erl_call")
    assert find_rabbitmq(tmp_path, str(wrapper)) is None
    home = tmp_path / "usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8/sbin"
    programs(home, "rabbitmq-server", "rabbitmqctl", "rabbitmq-env")
    rabbitmq = find_rabbitmq(tmp_path, str(wrapper))
    assert rabbitmq is not None
    assert rabbitmq.scripts == home
    assert rabbitmq.epmd == tmp_path / "usr/lib/erlang/erts-13.1/bin/epmd"
    assert rabbitmq.erl_call is not None


def test_rabbitmq_without_erlang_is_no_rabbitmq(tmp_path):
    programs(tmp_path / "opt/homebrew/opt/rabbitmq/sbin", "rabbitmq-server", "rabbitmqctl", "rabbitmq-env")
    assert find_rabbitmq(tmp_path, NOWHERE) is None


@pytest.mark.parametrize(
    ("missing", "commands"),
    [
        (["RabbitMQ"], ["apt-get install -y rabbitmq-server", "dnf install -y rabbitmq-server"]),
        (["PostgreSQL"], ["apt-get install -y postgresql", "brew install postgresql@16", "DATABASE_URL="]),
        (["PostgreSQL", "RabbitMQ"], ["brew install postgresql@16 rabbitmq", "docker run", "AMQP_URL="]),
    ],
)
def test_the_error_holds_the_commands_to_type_and_only_for_what_is_missing(missing, commands):
    error = ServersMissing(missing)
    assert isinstance(error, Misconfigured)
    assert all(command in str(error) for command in commands)
    assert ("rabbitmq" in str(error)) == ("RabbitMQ" in missing)


def describe(plugins: Path, name: str, builds_on: str) -> Path:
    folder = plugins / f"{name}-1.0"
    (folder / "ebin").mkdir(parents=True)
    text = f"{{application, {name}, [{{modules, [a, b]}},\n {{applications, [{builds_on}]}}]}}."
    (folder / "ebin" / f"{name}.app").write_text(text)
    return folder


def test_a_node_gets_the_plugins_it_asked_for_and_all_that_they_build_on(tmp_path):
    rabbit = describe(tmp_path, "rabbit", "kernel, stdlib, ra")
    ra = describe(tmp_path, "ra", "kernel,aten")
    aten = describe(tmp_path, "aten", "")
    describe(tmp_path, "rabbitmq_mqtt", "rabbit")
    assert needed_plugins(tmp_path, ["rabbit"]) == sorted([rabbit, ra, aten])


def test_an_installation_we_do_not_understand_is_used_whole(tmp_path):
    describe(tmp_path, "rabbit", "kernel")
    assert needed_plugins(tmp_path, ["rabbit", "rabbitmq_prelaunch"]) is None
