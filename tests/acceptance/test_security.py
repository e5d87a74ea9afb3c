"""Encryption with certificates on both sides, and no secret in any output."""

import contextlib
import os
import secrets
import ssl
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support import DEADLINE, Host, Process, Sidecar, connected, iso, until, utc

from scheduler.dev.servers import PostgresServer, RabbitServer
from scheduler.dev.servers.binaries import find_postgres, find_rabbitmq
from scheduler.dev.servers.ports import free_ports
from scheduler.domain.errors import Misconfigured
from scheduler.rabbit.address import parameters

SECRET = "s3cr3t-" + secrets.token_hex(6)



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
        pytest.skip("needs private servers")
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
    migrated = Process("migrate", {"DATABASE_URL": database})
    assert migrated.popen.wait(DEADLINE) == 0, migrated.raw
    migrated.stop()
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
        until(lambda: "true" in rabbitmq.evaluate(all_tls), "only TLS connections, after the host's is closed")
    finally:
        sidecar.close()


@pytest.mark.parametrize(("authority", "client"), [("stranger", "client"), ("ca", None)])
def test_untrusted_and_missing_broker_certificates_are_rejected(
    encrypted, certificates, authority, client
):
    database, amqp, _ = encrypted
    env = {"DATABASE_URL": database, "AMQP_URL": amqps(amqp, certificates, authority, client)}
    process = Process("producer", env, "--no-wait")
    assert process.popen.wait(DEADLINE) == 69, process.raw
    process.stop()


def test_an_untrusted_database_certificate_is_rejected(encrypted, certificates):
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
    ("heartbeat=often", "query parameter is invalid"),
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
    "servers unreachable": (f"postgresql://u:{SECRET}@{AWAY}/db", f"amqp://u:{SECRET}@{AWAY}/v"),
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
    """Each role with a broken database or broker and a healthy other server, at the most verbose log level."""
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


def test_failures_show_no_password(database_url, amqp_url, stack):
    """Processes lose both servers' connections; then everything they print, serve and are called is searched."""
    if stack.rabbitmq is None or stack.postgres is None:
        pytest.skip("needs private servers")
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
        for process in sidecar.processes:
            process.ready()
            shown += [process.http(path)[1] for path in ("/metrics", "/readyz", "/livez", "/")]
            shown.append(Path(f"/proc/{process.popen.pid}/cmdline").read_text(encoding="utf-8"))
    finally:
        sidecar.close()
    shown += [line for process in sidecar.processes for line in process.raw]
    with connected(database_url) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT application_name || query FROM pg_stat_activity")
        shown += [row[0] or "" for row in cursor.fetchall()]
    passwords = {urlsplit(url).password for url in (database_url, amqp_url)}
    assert len(passwords) == 2
    for password in passwords:
        assert not [text for text in shown if password in text]
