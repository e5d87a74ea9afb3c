"""Least privilege, encryption with certificates on both sides, and no secret anywhere in what is printed."""

import contextlib
import os
import secrets
import ssl
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import psycopg2
import pytest
from api_support import start_api
from pika.exceptions import ChannelClosedByBroker
from support import DEADLINE, Host, Process, Sidecar, amqp, connected, iso, until, utc

from scheduler.dev.servers import PostgresServer, RabbitServer
from scheduler.dev.servers.binaries import find_postgres, find_rabbitmq
from scheduler.dev.servers.ports import free_ports
from scheduler.dev.servers.vhosts import name_of
from scheduler.domain.errors import Misconfigured
from scheduler.rabbit.address import parameters

ROLES = Path(__file__).parents[2] / "sql" / "roles"
SECRET = "s3cr3t-" + secrets.token_hex(6)
OWNER, RUNTIME, SIDECAR, HOST, WORKER, API = (secrets.token_hex(12) for _ in range(6))


def as_user(url: str, user: str, password: str) -> str:
    place = urlsplit(url).netloc.rpartition("@")[2]
    return urlsplit(url)._replace(netloc=f"{user}:{password}@{place}").geturl()


@pytest.fixture
def least(stack, empty_database, vhost):
    """A database and a virtual host with the shipped roles and users, and nothing else."""
    if stack.rabbitmq is None or stack.postgres is None:
        pytest.skip("needs servers of its own")
    with connected(empty_database) as connection:
        cursor = connection.cursor()
        for _ in range(2):  # running it again is harmless
            cursor.execute((ROLES / "roles.sql").read_text(encoding="utf-8"))
        for role, password in (("owner", OWNER), ("runtime", RUNTIME)):
            cursor.execute(f"ALTER ROLE scheduler_{role} PASSWORD %s", (password,))
    server = stack.rabbitmq

    def made() -> bool:
        done = subprocess.run(
            ["sh", str(ROLES / "rabbitmq.sh"), str(server.directory / "sbin" / "rabbitmqctl")],
            env=server._environment() | {"VHOST": name_of(vhost), "SIDECAR_PASSWORD": SIDECAR,
                                         "HOST_PASSWORD": HOST, "WORKER_PASSWORD": WORKER, "API_PASSWORD": API},
            cwd=server.directory, check=False, capture_output=True, text=True, timeout=5 * DEADLINE,
        )
        # A busy node may turn rabbitmqctl away; to run it again is harmless.
        assert done.returncode == 0 or "unable to perform an operation on node" in done.stderr, done.stderr
        return done.returncode == 0

    until(made, "the users of the broker", within=5 * DEADLINE)
    yield empty_database, vhost
    with contextlib.suppress(Exception):
        for user in ("scheduler_sidecar", "scheduler_host", "scheduler_worker", "scheduler_api"):
            server.evaluate(f'rabbit_auth_backend_internal:delete_user(<<"{user}">>, <<"test">>)')


def test_the_runtime_role_and_the_sidecars_user_are_enough_and_no_more(least, tmp_path):
    database_url, amqp_url = least
    runtime = as_user(database_url, "scheduler_runtime", RUNTIME)
    migrated = Process("migrate", {"DATABASE_URL": as_user(database_url, "scheduler_owner", OWNER)})
    assert migrated.popen.wait(DEADLINE) == 0, migrated.raw
    migrated.stop()
    sidecar = Sidecar(runtime, as_user(amqp_url, "scheduler_sidecar", SIDECAR))
    try:
        sidecar.up()
        host = Host(as_user(amqp_url, "scheduler_host", HOST))
        replies = host.channel.queue_declare("", exclusive=True).method.queue
        body = {"id": "7d9f0000-0000-4000-8000-000000000001", "job_type": "a", "run_at": iso(utc())}
        host.publish("request", body, reply_to=replies)
        host.publish("request", b"poison")
        assert host.due()[0]["job_type"] == "a"
        assert b"scheduled" in host.get(replies)[2]
        until(lambda: sidecar.processes[0].metric("scheduler_commands_rejected_total") == 1, "the poison rejected")
        offered = tmp_path / "commands.toml"
        offered.write_text("[tidy]\nrun = ['/bin/echo', 'tidied']\n")
        worker = sidecar.start("worker", AMQP_URL=as_user(amqp_url, "scheduler_worker", WORKER),
                               SCHEDULER_COMMANDS_FILE=str(offered)).ready()
        command = {"command": {"name": "tidy"}}
        host.publish("request", body | {"id": "7d9f0000-0000-4000-8000-000000000003", "target": command})
        until(lambda: sidecar.sql("SELECT 1 FROM run_history WHERE status = 'succeeded'"), "the command's end")
        target = {"webhook": {"url": "http://127.0.0.1:1/"}}
        host.publish("request", body | {"id": "7d9f0000-0000-4000-8000-000000000002", "target": target})
        until(lambda: worker.metric("scheduler_webhook_requests_total") == 1, "the webhook refused")
        until(lambda: sidecar.sql("SELECT 1 FROM run_history WHERE status = 'dead'"), "its result")
        api = start_api(sidecar, AMQP_URL=as_user(amqp_url, "scheduler_api", API))

        def replayed():
            """A broker that is silent for three seconds has shown nothing."""
            found = api.get("/dead").json.get("items", [])
            letter = next((each for each in found if each["routing_key"] == "request"), None)
            return letter is not None and api.post(f"/dead/{letter['id']}/replay").status == 200

        until(replayed, "the dead letter replayed")
        until(lambda: sidecar.processes[0].metric("scheduler_commands_rejected_total") == 2, "the poison rejected")
        assert api.get("/audit", kind="dead").json["items"][0]["action"] == "replay"
        # Pruning needs no more than that either.
        sidecar.sql("UPDATE jobs SET finished_at = now() - interval '99 days'")
        host.close()
        refused(runtime)
        forbidden(amqp_url)
        assert not [line for each in sidecar.processes for line in each.lines if line["level"] == "error"]
    finally:
        sidecar.close()


def refused(runtime: str) -> None:
    """The runtime role changes no schema, and nothing that the audit has told; nobody else may prune that."""
    with connected(runtime) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT prune_audit(0, 10000)")
        assert cursor.fetchall() == [(0,)]
        cursor.execute("SELECT grantee::regrole::text FROM pg_proc, aclexplode(proacl) "
                       "WHERE proname = 'prune_audit'")
        assert sorted(cursor.fetchall()) == [("scheduler_owner",), ("scheduler_runtime",)]
        for statement in ("CREATE TABLE mine (x int)", "ALTER TABLE jobs ADD COLUMN x int", "DROP TABLE jobs",
                          "TRUNCATE jobs", "CREATE SCHEMA mine", "DROP INDEX jobs_due", "TRUNCATE audit",
                          "UPDATE audit SET who = 'me'", "DELETE FROM audit"):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                connection.cursor().execute(statement)


def forbidden(amqp_url: str) -> None:
    """Neither user reaches what is the other's."""
    attempts = {
        ("scheduler_sidecar", SIDECAR): [
            lambda channel: channel.queue_declare("mine"),
            lambda channel: channel.basic_consume("mainapp_due", print),
            lambda channel: channel.basic_publish("schedule.commands", "request", b"{}"),
        ],
        ("scheduler_worker", WORKER): [
            lambda channel: channel.basic_consume("scheduler_inbox", print),
            lambda channel: channel.basic_publish("schedule.events", "due", b"{}"),
            lambda channel: channel.basic_publish("schedule.work", "webhook", b"{}"),
        ],
        ("scheduler_api", API): [
            lambda channel: channel.basic_consume("scheduler_inbox", print),
            lambda channel: channel.basic_publish("schedule.events", "due", b"{}"),
            lambda channel: channel.queue_delete("scheduler_dead"),
            lambda channel: channel.queue_declare("mine"),
        ],
        ("scheduler_host", HOST): [
            lambda channel: channel.basic_consume("scheduler_inbox", print),
            lambda channel: channel.basic_publish("schedule.events", "due", b"{}"),
            lambda channel: channel.queue_delete("scheduler_dead"),
            lambda channel: channel.exchange_delete("schedule.commands"),
        ],
    }
    for (user, password), acts in attempts.items():
        for act in acts:
            connection = amqp(as_user(amqp_url, user, password))
            channel = connection.channel()
            channel.confirm_delivery()
            with pytest.raises(ChannelClosedByBroker, match="ACCESS_REFUSED"):
                act(channel)
            connection.close()


# --- encryption


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=DEADLINE)


def make_authority(folder: Path, name: str = "ca") -> None:
    """A throw-away authority."""
    openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "1", "-subj", f"/CN=throw-away {name}", "-keyout", f"{name}.key", "-out", f"{name}.crt")


def make_certificate(folder: Path, name: str) -> None:
    """A certificate for this machine, signed by the authority."""
    openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n", encoding="ascii")
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "1", "-extfile", "san", "-out", f"{name}.crt")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    make_authority(folder)
    make_authority(folder, "stranger")
    for name in ("server", "client"):
        make_certificate(folder, name)
    return folder


@pytest.fixture(scope="module")
def encrypted(stack, certificates):
    """A broker that asks for client certificates and speaks nothing but TLS, and a Postgres with its own."""
    if stack.rabbitmq is None or stack.postgres is None:
        pytest.skip("needs servers of its own")
    [port] = free_ports(1)
    rabbitmq = RabbitServer(stack.ledger, find_rabbitmq(), name="tls-rabbitmq", config=[
        f"listeners.ssl.1 = 127.0.0.1:{port}",
        f"ssl_options.cacertfile = {certificates}/ca.crt",
        f"ssl_options.certfile = {certificates}/server.crt",
        f"ssl_options.keyfile = {certificates}/server.key",
        "ssl_options.verify = verify_peer",
        "ssl_options.fail_if_no_peer_cert = true",
    ])
    postgres = PostgresServer(stack.ledger, find_postgres(), name="tls-postgres", fast=True)
    postgres.start()
    for name in ("server.crt", "server.key"):
        path = postgres.data / name
        path.write_bytes((certificates / name).read_bytes())
        path.chmod(0o600)
        if postgres._account:
            os.chown(path, postgres._account.uid, postgres._account.gid)
    postgres.settings |= {"ssl": "on", "ssl_cert_file": "server.crt", "ssl_key_file": "server.key"}
    postgres.restart()
    with connected(postgres.url) as connection:
        connection.cursor().execute("CREATE DATABASE encrypted")
    rabbitmq.start()
    database = postgres.url.replace("/postgres", "/encrypted")
    amqp = rabbitmq.url.replace("amqp://", "amqps://").replace(f":{rabbitmq.port}/", f":{port}/")
    yield database, amqp, rabbitmq
    rabbitmq.kill()
    postgres.kill()


def amqps(url: str, folder: Path, authority: str = "ca", client: str | None = "client") -> str:
    shown = f"&certfile={folder}/{client}.crt&keyfile={folder}/{client}.key" if client else ""
    return f"{url}?cacertfile={folder}/{authority}.crt&verify=verify_peer{shown}"


def test_client_certificates_and_verify_full(encrypted, certificates):
    database, amqp, rabbitmq = encrypted
    env = {
        "DATABASE_URL": f"{database}?sslmode=verify-full&sslrootcert={certificates}/ca.crt",
        "AMQP_URL": amqps(amqp, certificates),
    }
    migrated = Process("migrate", env)
    assert migrated.popen.wait(DEADLINE) == 0, migrated.raw
    migrated.stop()
    sidecar = Sidecar(env["DATABASE_URL"], env["AMQP_URL"])
    try:
        sidecar.up()
        host = Host(rabbitmq.url)  # the plain port stays for this test's own host
        host.request(run_at=iso(utc()))
        assert host.due()
        host.close()
        with connected(database) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
                           "WHERE application_name LIKE 'scheduler %'")
            assert cursor.fetchone()[0] is True
        all_tls = "lists:all(fun([{ssl, S}]) -> S end, [C || C <- rabbit_networking:connection_info_all([ssl])])"
        until(lambda: "true" in rabbitmq.evaluate(all_tls), "none but by TLS, once the host's own is gone")
    finally:
        sidecar.close()


@pytest.mark.parametrize(("authority", "client"), [("stranger", "client"), ("ca", None)])
def test_a_broker_of_a_strange_authority_and_a_missing_certificate_are_refused(
    encrypted, certificates, authority, client
):
    database, amqp, _ = encrypted
    env = {"DATABASE_URL": database, "AMQP_URL": amqps(amqp, certificates, authority, client)}
    process = Process("producer", env, "--no-wait")
    assert process.popen.wait(DEADLINE) == 69, process.raw
    process.stop()


def test_a_database_of_a_strange_authority_is_refused(encrypted, certificates):
    database, amqp, _ = encrypted
    url = f"{database}?sslmode=verify-full&sslrootcert={certificates}/stranger.crt"
    process = Process("consumer", {"DATABASE_URL": url, "AMQP_URL": amqps(amqp, certificates)}, "--no-wait")
    assert process.popen.wait(DEADLINE) == 69, process.raw
    process.stop()
    assert "certificate verify failed" in "".join(process.raw)


@pytest.mark.parametrize(("query", "problem"), [
    ("keyfile=x", "keyfile needs certfile"),
    ("verify=perhaps", "verify must be"),
    ("cacertfile=/nowhere", "cannot be read"),
    ("certfile=/dev/null", "cannot be used"),
    ("heartbeat=often", "not understood"),
])
def test_a_wrong_parameter_of_the_broker_is_named(query, problem):
    with pytest.raises(Misconfigured, match=problem) as caught:
        parameters(f"amqps://u:{SECRET}@mq/v?{query}", "test")
    assert SECRET not in str(caught.value)
    assert "mq:5671" in str(caught.value)


def test_the_parameters_of_the_broker_are_those_of_rabbitmq():
    found = parameters("amqps://u:p@mq/v?verify=verify_none&server_name_indication=other&heartbeat=30", "test")
    assert (found.ssl_options.server_hostname, found.heartbeat) == ("other", 30)
    assert found.ssl_options.context.verify_mode == ssl.CERT_NONE
    assert parameters("amqps://u:p@mq/v", "test").ssl_options.context.check_hostname
    with pytest.raises(Misconfigured, match="need amqps"):
        parameters("amqp://u:p@mq/v?cacertfile=x", "test")


# --- secrets


AWAY = "127.0.0.1:9"
BROKEN = {
    "wrong passwords": (f"postgresql://scheduler:{SECRET}@{{pg}}/postgres", f"amqp://scheduler:{SECRET}@{{mq}}/%2F"),
    "servers away": (f"postgresql://u:{SECRET}@{AWAY}/db", f"amqp://u:{SECRET}@{AWAY}/v"),
    "an unknown option": (f"postgresql://u:{SECRET}@{AWAY}/db?nonsense=1", f"amqp://u:{SECRET}@{AWAY}/v?heartbeat=x"),
    "a raw percent sign": (f"postgresql://u:%{SECRET}@{AWAY}/db", f"amqp://u:%{SECRET}@{AWAY}/v"),
    "a raw slash": (f"postgresql://u:a/{SECRET}@{AWAY}/db", f"amqp://u:a/{SECRET}@{AWAY}/v"),
    "a raw slash after digits": (f"postgresql://u:1/{SECRET}@{AWAY}/db", f"amqp://u:1/{SECRET}@{AWAY}/v"),
    "a raw at sign": (f"postgresql://u:a@{SECRET}@{AWAY}/db", f"amqp://u:a@{SECRET}@{AWAY}/v"),
    "a raw hash": (f"postgresql://u:1#{SECRET}@{AWAY}/db", f"amqp://u:1#{SECRET}@{AWAY}/v"),
    "a raw question mark": (f"postgresql://u:1?{SECRET}@{AWAY}/db", f"amqp://u:1?{SECRET}@{AWAY}/v"),
    "no host": (f"postgresql://u:{SECRET}@/db", f"amqp://u:{SECRET}@/v"),
    "a wrong port": (f"postgresql://u:p@{AWAY.partition(':')[0]}:{SECRET}/db", f"amqp://u:p@127.0.0.1:{SECRET}/v"),
    "in the query": (f"postgresql://{AWAY}/db?user=u&password={SECRET}", f"amqp://u:{SECRET}@{AWAY}/v?ssl_options={SECRET}"),
    "another scheme": (f"mysql://u:{SECRET}@{AWAY}/db", f"http://u:{SECRET}@{AWAY}/v"),
    "key and value": (f"host=127.0.0.1 port=9 password={SECRET}", f"u:{SECRET}@{AWAY}"),
}


@pytest.mark.parametrize("mistake", BROKEN)
def test_no_error_shows_a_password(stack, mistake):
    """Each role, the broken database or the broken broker beside a sound other, at the most talkative level."""
    places = {"pg": urlsplit(stack.database_url).netloc.rpartition("@")[2],
              "mq": urlsplit(stack.amqp_url).netloc.rpartition("@")[2]}
    database, amqp = (text.format(**places) for text in BROKEN[mistake])
    started = [
        Process(role, {"DATABASE_URL": db, "AMQP_URL": mq, "LOG_LEVEL": "debug", "LOG_FORMAT": style}, *arguments)
        for style in ("json", "text")
        for role, db, mq, arguments in (
            ("migrate", database, amqp, ("--no-wait",)),
            ("consumer", database, stack.amqp_url, ("--no-wait",)),
            ("producer", stack.database_url, amqp, ("--no-wait",)),
        )
    ]
    for process in started:
        # Waiting for a server is fine too; what it says is what counts.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.popen.wait(DEADLINE)
        code = process.stop()
        assert code in (0, 69, 78), (mistake, process.role, code, process.raw)
        printed = "".join(process.raw)
        assert SECRET not in printed, (mistake, process.role, printed)
        assert "Traceback" not in printed, (mistake, process.role, printed)


def test_no_password_in_anything_shown_through_failures(database_url, amqp_url, stack):
    """Processes lose both servers' connections; then everything they print, serve and are called is searched."""
    if stack.rabbitmq is None or stack.postgres is None:
        pytest.skip("needs servers of its own")
    sidecar = Sidecar(database_url, amqp_url)
    try:
        sidecar.up(LOG_LEVEL="debug")
        with connected(database_url) as connection:
            connection.cursor().execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid()")
        host = Host(amqp_url)
        host.request(run_at=iso(utc()))
        assert host.due()
        host.close()
        shown = []
        for each in sidecar.processes:
            each.ready()
            shown += [each.http(path)[1] for path in ("/metrics", "/readyz", "/livez", "/")]
            shown.append(Path(f"/proc/{each.popen.pid}/cmdline").read_text(encoding="utf-8"))
    finally:
        sidecar.close()
    shown += [line for each in sidecar.processes for line in each.raw]
    with connected(database_url) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT application_name || query FROM pg_stat_activity")
        shown += [row[0] or "" for row in cursor.fetchall()]
    passwords = {urlsplit(url).password for url in (database_url, amqp_url)}
    assert len(passwords) == 2
    for password in passwords:
        assert not [text for text in shown if password in text]
