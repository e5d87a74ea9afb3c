"""The shipped roles: every process runs under its own, and SECURITY.md's tables are true cell by cell."""

import contextlib
import json
import os
import secrets
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import psycopg2
import pytest
from api_support import start_api
from pika import BasicProperties
from pika.exceptions import ChannelClosedByBroker
from support import DEADLINE, Host, Process, Sidecar, amqp, connected, iso, until, utc

from scheduler.dev.servers import PostgresServer, RabbitServer
from scheduler.dev.servers.binaries import find_postgres, find_rabbitmq
from scheduler.dev.servers.vhosts import name_of

ROOT = Path(__file__).parents[2]
ROLES = ROOT / "sql" / "roles"
DATABASE_ROLES = {"owner": secrets.token_hex(12), "runtime": secrets.token_hex(12)}
ACCESS_REFUSED = 403
BROKER_USERS = {
    "sidecar": "scheduler_sidecar", "worker": "scheduler_worker", "command worker": "scheduler_command_worker",
    "API": "scheduler_api", "host": "scheduler_host", "tenant": "acme", "another tenant": "globex",
}
# The characters that would need care in JSON are part of a password.
PASSWORDS = {user: secrets.token_hex(12) + "'!~" for user in BROKER_USERS.values()}


def as_user(url: str, user: str, password: str | None = None) -> str:
    place = urlsplit(url).netloc.rpartition("@")[2]
    return urlsplit(url)._replace(netloc=f"{user}:{password or PASSWORDS[user]}@{place}").geturl()


def script(name: str) -> str:
    """The statements of a script, without psql's own commands."""
    lines = (ROLES / name).read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("\\"))


def script_environment(vhost: str) -> dict[str, str]:
    return {
        "VHOST": vhost, "SIDECAR_PASSWORD": PASSWORDS["scheduler_sidecar"],
        "HOST_PASSWORD": PASSWORDS["scheduler_host"], "WORKER_PASSWORD": PASSWORDS["scheduler_worker"],
        "COMMAND_WORKER_PASSWORD": PASSWORDS["scheduler_command_worker"],
        "API_PASSWORD": PASSWORDS["scheduler_api"], "WORKER_POOLS": "gpu",
        "TENANTS": " ".join(f"{name}:{PASSWORDS[name]}" for name in ("acme", "globex")),
        "TENANT_QUEUES": "events mails=mail",
    }


@pytest.fixture
def least(stack, empty_database, vhost):
    """A database and a virtual host with the shipped roles and users, and nothing else."""
    if stack.rabbitmq is None or stack.postgres is None:
        pytest.skip("needs private servers")
    with connected(empty_database) as connection:
        cursor = connection.cursor()
        for _ in range(2):  # running it twice is harmless
            cursor.execute(script("roles.sql"))
        for role, password in DATABASE_ROLES.items():
            cursor.execute(f"ALTER ROLE scheduler_{role} PASSWORD %s", (password,))
    server = stack.rabbitmq

    def created() -> bool:
        done = subprocess.run(
            ["sh", str(ROLES / "rabbitmq.sh"), *server.ctl_command],
            env=server._environment() | script_environment(name_of(vhost)),
            cwd=server.directory, check=False, capture_output=True, text=True, timeout=10 * DEADLINE,
        )
        # A busy node may refuse rabbitmqctl; the script can be repeated.
        assert done.returncode == 0 or "unable to perform an operation on node" in done.stderr, done.stderr
        return done.returncode == 0

    until(created, "the broker users", within=10 * DEADLINE)
    yield empty_database, vhost
    with contextlib.suppress(Exception):
        for user in PASSWORDS:
            server.evaluate(f'rabbit_auth_backend_internal:delete_user(<<"{user}">>, <<"test">>)')


@pytest.fixture
def sidecar(least):
    """A sidecar whose database is migrated by the owner and whose processes use the runtime role."""
    database_url, amqp_url = least
    owner = as_user(database_url, "scheduler_owner", DATABASE_ROLES["owner"])
    migrated = Process("migrate", {"DATABASE_URL": owner})
    assert migrated.popen.wait(DEADLINE) == 0, migrated.raw
    migrated.stop()
    runtime = as_user(database_url, "scheduler_runtime", DATABASE_ROLES["runtime"])
    with contextlib.closing(Sidecar(runtime, as_user(amqp_url, "scheduler_sidecar"))) as sidecar:
        yield sidecar


def request(number: int, **fields):
    return {"id": f"7d9f0000-0000-4000-8000-{number:012}", "job_type": "a", "run_at": iso(utc()), **fields}


def test_every_process_works_under_its_own_role(least, sidecar, tmp_path):
    _, amqp_url = least
    offered = tmp_path / "commands.toml"
    offered.write_text("[tidy]\nrun = ['/bin/echo', 'tidied']\n")
    # Workers start first: they wait for the topology, which they may not declare.
    worker = sidecar.start("worker", "--only", "webhooks", AMQP_URL=as_user(amqp_url, "scheduler_worker"),
                           SCHEDULER_WORKER_POOLS="default,gpu")
    command_worker = sidecar.start("worker", "--only", "commands",
                                   AMQP_URL=as_user(amqp_url, "scheduler_command_worker"),
                                   SCHEDULER_COMMANDS_FILE=str(offered))
    until(lambda: any("declares them" in str(line.get("problem")) for line in worker.lines), "the worker waits")
    sidecar.up()
    worker.ready()
    command_worker.ready()
    host = Host(as_user(amqp_url, "scheduler_host"))
    replies = host.channel.queue_declare("", exclusive=True).method.queue
    host.publish("request", request(1), reply_to=replies)
    host.publish("request", b"poison")
    assert host.due()[0]["job_type"] == "a"
    assert b"scheduled" in host.get(replies)[2]
    rejected = "scheduler_commands_rejected_total"
    consumer = next(process for process in sidecar.processes if process.role == "consumer")
    until(lambda: consumer.metric(rejected) == 1, "the poison rejected")
    host.publish("request", request(3, target={"command": {"name": "tidy"}}))
    until(lambda: sidecar.sql("SELECT 1 FROM run_history WHERE status = 'succeeded'"), "the command's end")
    host.publish("request", request(2, target={"webhook": {"url": "http://127.0.0.1:1/"}, "pool": "gpu"}))
    until(lambda: worker.metric("scheduler_webhook_requests_total") == 1, "the webhook refused")
    until(lambda: sidecar.sql("SELECT 1 FROM run_history WHERE status = 'dead'"), "its result")
    api = start_api(sidecar, AMQP_URL=as_user(amqp_url, "scheduler_api"))

    def replayed():
        """A broker that does not respond for three seconds shows no dead letters."""
        items = api.get("/dead").json.get("items", [])
        letter = next((item for item in items if item["routing_key"] == "request"), None)
        return letter is not None and api.post(f"/dead/{letter['id']}/replay").status == 200

    until(replayed, "the dead letter replayed")
    until(lambda: consumer.metric(rejected) == 2, "the poison rejected again")
    assert api.get("/audit", kind="dead").json["items"][0]["action"] == "replay"
    # Pruning needs no other right.
    sidecar.sql("UPDATE jobs SET finished_at = now() - interval '99 days'")
    host.close()
    assert not [line for process in sidecar.processes for line in process.lines if line["level"] == "error"]


def test_a_tenant_with_its_own_broker_user_gets_its_own_events(least, sidecar):
    _, amqp_url = least
    for role in ("consumer", "producer"):
        sidecar.start(role, SCHEDULER_TENANT_BY="user_id").ready()
    tenant = amqp(as_user(amqp_url, "acme"))
    channel = tenant.channel()
    channel.confirm_delivery()
    replies = []
    direct = "amq.rabbitmq.reply-to"  # a tenant may not declare a queue for replies, and needs none
    channel.basic_consume(direct, lambda *delivery: replies.append(json.loads(delivery[3])), auto_ack=True)
    body = json.dumps(request(1, tenant="acme", route="acme.mail"))
    channel.basic_publish("schedule.commands", "request", body, BasicProperties(user_id="acme", reply_to=direct))
    host = Host(as_user(amqp_url, "acme"))
    for queue in ("acme:events", "acme:mails"):
        assert json.loads(host.get(queue)[2])["tenant"] == "acme"
    until(lambda: tenant.process_data_events(0.1) or replies, "the reply")
    assert replies[0]["status"] == "scheduled"
    host.close()
    tenant.close()


# --- what each role may do, cell by cell


def bind(own: dict[str, str], exchange: str, key: str):
    def act(channel, user):
        queue = own.get(user)
        if queue is None:
            channel.queue_declare("theirs")
            queue = "theirs"
        channel.queue_bind(queue, exchange, key)
    return act


def publish(exchange: str, key: str):
    return lambda channel, _: channel.basic_publish(exchange, key, b"{}")


def consume(queue: str):
    return lambda channel, _: channel.basic_get(queue)


# The queue with which each user would listen: one that it may bind.
OWN_QUEUES = {
    "scheduler_sidecar": "mainapp_due", "scheduler_worker": "scheduler_command_tidy",
    "scheduler_command_worker": "scheduler_command_tidy", "scheduler_host": "mainapp_own", "acme": "acme:events",
    "globex": "globex:events",
}
BROKER_ACTIONS = {
    "publish a `request`": publish("schedule.commands", "request"),
    "publish a `result`": publish("schedule.commands", "result"),
    "publish a worker's liveness": publish("schedule.commands", "worker"),
    "publish an event": publish("schedule.events", "due"),
    "publish work": publish("schedule.work", "webhook"),
    "publish a dead letter": publish("schedule.dead", "due"),
    "publish a delayed message": publish("schedule.delay", "any"),
    "publish to any queue": publish("", "mainapp_due"),
    "read commands: `scheduler_inbox`": consume("scheduler_inbox"),
    "read results: `scheduler_results`": consume("scheduler_results"),
    "read webhooks: `scheduler_webhooks`": consume("scheduler_webhooks"),
    "read a command's work: `scheduler_command_tidy`": consume("scheduler_command_tidy"),
    "read dead letters: `scheduler_dead`": consume("scheduler_dead"),
    "read the host's events: `mainapp_due`": consume("mainapp_due"),
    "read the tenant's queue: `acme:events`": consume("acme:events"),
    "bind a queue to commands": bind(OWN_QUEUES, "schedule.commands", "#"),
    "bind a queue to webhooks": bind(OWN_QUEUES, "schedule.work", "webhook"),
    "bind a queue to all work": bind(OWN_QUEUES, "schedule.work", "#"),
    "bind a queue to a command's work": bind(OWN_QUEUES, "schedule.work", "command.tidy"),
    "bind a queue to the key `due`": bind(OWN_QUEUES, "schedule.events", "due"),
    "bind a queue to a route of the host": bind(OWN_QUEUES, "schedule.events", "due.mail"),
    "bind a queue to the tenant's route": bind(OWN_QUEUES, "schedule.events", "due.acme.mail"),
    "bind a queue to all of the tenant's routes": bind(OWN_QUEUES, "schedule.events", "due.acme.#"),
    "bind a queue with several wildcards": bind(OWN_QUEUES, "schedule.events", "due.acme.#.#.#.#.#.#"),
    "bind a queue to all events": bind(OWN_QUEUES, "schedule.events", "#"),
    "bind a queue to all routes": bind(OWN_QUEUES, "schedule.events", "due.#"),
    "bind a queue to dead letters": bind(OWN_QUEUES, "schedule.dead", "#"),
    "delete `scheduler_inbox`": lambda channel, _: channel.queue_delete("scheduler_inbox"),
    "delete `scheduler_webhooks`": lambda channel, _: channel.queue_delete("scheduler_webhooks"),
    "delete `mainapp_due`": lambda channel, _: channel.queue_delete("mainapp_due"),
    "delete `schedule.events`": lambda channel, _: channel.exchange_delete("schedule.events"),
    "purge `scheduler_results`": lambda channel, _: channel.queue_purge("scheduler_results"),
    "delete `acme:events`": lambda channel, _: channel.queue_delete("acme:events", if_empty=True, if_unused=True),
    "declare a queue of any name": lambda channel, _: channel.queue_declare("anything"),
    "declare another queue of the tenant": lambda channel, _: channel.queue_declare("acme:mails", durable=True),
    "declare a broker-named queue": lambda channel, _: channel.queue_declare("", exclusive=True),
    "declare an exchange": lambda channel, _: channel.exchange_declare("acme:events", "topic"),
}
DATABASE_ACTIONS = {
    "read and write jobs": "UPDATE jobs SET name = name",
    "read the audit": "SELECT count(*) FROM audit",
    "change audit entries": "UPDATE audit SET who = 'me'",
    "delete audit entries": "DELETE FROM audit",
    "prune audit entries older than a day": "SELECT prune_audit(0, 10000)",
    "create a table": "CREATE TABLE mine (x int)",
    "change a table": "ALTER TABLE jobs ADD COLUMN x int",
    "drop a table": "DROP TABLE jobs",
    "drop an index": "DROP INDEX jobs_due",
    "truncate a table": "TRUNCATE jobs",
    "create a schema": "CREATE SCHEMA mine",
    "create a role": "CREATE ROLE mine",
}


def table(heading: str) -> dict[tuple[str, str], bool]:
    """Return the cells of the table below a heading of SECURITY.md: (row, column) → allowed."""
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    (_, *columns), _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {(row, column): {"yes": True, "no": False}[cell]
            for row, *cells in rows for column, cell in zip(columns, cells, strict=True)}


def test_tenants_are_limited(least, stack):
    vhost = name_of(least[1])
    limits = json.loads(stack.rabbitmq.ctl("list_user_limits", "--user", "acme", "--formatter", "json"))
    assert "max-connections" in str(limits)
    assert "max-channels" in str(limits)
    columns = ("routing_key", "destination_name")
    bindings = stack.rabbitmq.ctl("list_bindings", "-q", "-p", vhost, "--no-table-headers", *columns)
    assert {tuple(line.split()) for line in bindings.splitlines()} >= {
        (f"due.{tenant}.{key}", f"{tenant}:{name}") for tenant in ("acme", "globex")
        for key, name in (("#", "events"), ("mail", "mails"))
    }
    assert "max-queues" in stack.rabbitmq.ctl("list_vhost_limits", "-p", vhost, "--formatter", "json")
    with contextlib.closing(amqp(as_user(least[1], "scheduler_host"))) as connection:
        channel = connection.channel()
        names = [channel.queue_declare("", exclusive=True).method.queue, "acme:events", "acme:mails"]
        rows = json.loads(stack.rabbitmq.ctl("list_queues", "-p", vhost, "--formatter", "json", "name", "policy"))
    policies = {row["name"]: row["policy"] for row in rows}
    assert [policies[name] for name in names] == ["broker-named", "tenant-acme", "tenant-acme"]


def test_each_cell_of_the_broker_table(least):
    _, amqp_url = least
    cells = table("At the broker")
    assert {row for row, _ in cells} == set(BROKER_ACTIONS)
    assert {column for _, column in cells} == set(BROKER_USERS)
    wrong = []
    for row, act in BROKER_ACTIONS.items():
        declare_all(amqp_url)  # an earlier action may have deleted or bound something
        for column, name in BROKER_USERS.items():
            connection = amqp(as_user(amqp_url, name))
            channel = connection.channel()
            channel.confirm_delivery()
            try:
                act(channel, name)
                allowed = True
            except ChannelClosedByBroker as error:
                allowed = error.reply_code != ACCESS_REFUSED
            if connection.is_open:
                connection.close()
            if allowed != cells[row, column]:
                wrong.append((row, column, allowed))
            if row.startswith("delete"):
                declare_all(amqp_url)
    assert wrong == []


def declare_all(amqp_url: str) -> None:
    """Declare the topology with every user's own queue."""
    from scheduler.rabbit import topology  # noqa: PLC0415 - the administrator declares it here, as a sidecar would

    topology.declare(amqp_url, queue_type="quorum", due_queue_type="default")
    connection = amqp(amqp_url)
    channel = connection.channel()
    for queue in OWN_QUEUES.values():
        if not queue.endswith(("_due", ":events")):  # those of tenants are declared by the script
            channel.queue_declare(queue, durable=True)
    connection.close()


@pytest.mark.usefixtures("sidecar")
def test_each_cell_of_the_database_table(least):
    database_url, _ = least
    cells = table("In the database")
    assert {row for row, _ in cells} == set(DATABASE_ACTIONS)
    for row, statement in DATABASE_ACTIONS.items():
        for column, password in DATABASE_ROLES.items():
            with connected(as_user(database_url, f"scheduler_{column}", password)) as connection:
                connection.autocommit = False
                try:
                    connection.cursor().execute(f"SET search_path = scheduler; {statement}")
                    allowed = True
                except psycopg2.errors.InsufficientPrivilege:
                    allowed = False
                connection.rollback()
            assert allowed == cells[row, column], (row, column)


def test_only_the_runtime_role_may_call_the_owners_functions(sidecar):
    """They run with the owner's rights: prune the audit, add and drop partitions."""
    acl = ("SELECT proname, grantee::regrole::text AS grantee FROM pg_proc, aclexplode(proacl) "
           "WHERE pronamespace = 'scheduler'::regnamespace AND prosecdef")
    grantees = {}
    for row in sidecar.sql(acl):
        grantees.setdefault(row["proname"], set()).add(row["grantee"])
    assert {"prune_audit", "make_run_partitions"} <= set(grantees)
    assert set(map(frozenset, grantees.values())) == {frozenset({"scheduler_owner", "scheduler_runtime"})}


def test_a_definitions_file_creates_the_same_users(least, stack, tmp_path):
    """Compose loads the file when its broker starts; rabbitmqctl is for brokers that run already."""
    _, vhost = least
    file = tmp_path / "definitions.json"
    environment = {"PATH": os.environ["PATH"], "ADMIN_PASSWORD": "adm1n-_"} | script_environment("/")
    done = subprocess.run(["sh", str(ROLES / "rabbitmq.sh"), "--definitions"], env=environment, check=True,
                          capture_output=True, text=True)
    file.write_text(done.stdout, encoding="utf-8")
    server = RabbitServer(stack.ledger, find_rabbitmq(), name="definitions-rabbitmq",
                          config=[f"load_definitions = {file}"])
    server.start()
    try:
        assert "max-length-bytes" in server.ctl("list_policies", "-p", "/")
        for list_command in ("list_permissions", "list_topic_permissions"):
            there = server.ctl(list_command, "-p", "/", "--no-table-headers").splitlines()
            here = stack.rabbitmq.ctl(list_command, "-p", name_of(vhost), "--no-table-headers").splitlines()
            ours = {line for line in there if line.split()[0] in PASSWORDS}
            assert ours == {line for line in here if line.split()[0] in PASSWORDS}
            assert ours
        for user, password in (*PASSWORDS.items(), ("admin", "adm1n-_")):
            amqp(as_user(server.url, user, password)).close()
    finally:
        server.kill()


def test_a_worker_with_the_permissions_of_release_0_2_uses_the_main_queue(least, sidecar, stack):
    _, amqp_url = least
    old = {"configure": "^scheduler_(command|answers)_.+$",
           "write": r"^(schedule\.commands|scheduler_command_.+)$",
           "read": r"^(schedule\.work|scheduler_(webhooks|(command|answers)_.+))$"}
    stack.rabbitmq.ctl("set_permissions", "-p", name_of(amqp_url), "scheduler_worker", *old.values())
    worker = sidecar.start("worker", "--only", "webhooks", AMQP_URL=as_user(amqp_url, "scheduler_worker"))
    sidecar.up()
    worker.ready()
    worker.logged("no queue for work of this priority; it waits in the pool's main queue")
    host = Host(as_user(amqp_url, "scheduler_host"))
    host.publish("request", request(1, target={"webhook": {"url": "http://127.0.0.1:1/"}}, priority="high"))
    until(lambda: worker.metric("scheduler_webhook_requests_total") == 1, "the webhook refused")
    host.close()


@pytest.mark.parametrize(("tenants", "problem"), [
    ("a.b:x", "consists of"), ("ac|me:x", "consists of"), ("acme", "no password"),
    ("scheduler_api:x", "cannot be"),
])
def test_the_role_script_rejects_unsafe_tenant_names(tenants, problem):
    environment = {"PATH": os.environ["PATH"]} | script_environment("/") | {"TENANTS": tenants}
    done = subprocess.run(["sh", str(ROLES / "rabbitmq.sh"), "--definitions"], env=environment, check=False,
                          capture_output=True, text=True)
    assert done.returncode == 64
    assert problem in done.stderr


def test_an_installation_of_a_superuser_changes_to_the_roles(least, empty_database):
    """As docs/deploying.md describes it for a Compose volume of release 0.2."""
    migrated = Process("migrate", {"DATABASE_URL": empty_database})
    assert migrated.popen.wait(DEADLINE) == 0, migrated.raw
    migrated.stop()
    with connected(empty_database) as connection:
        for name in ("roles.sql", "adopt.sql", "roles.sql"):
            connection.cursor().execute(script(name))
        cursor = connection.cursor()
        cursor.execute("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'scheduler'")
        assert cursor.fetchall() == [("scheduler_owner",)]
    owner = as_user(empty_database, "scheduler_owner", DATABASE_ROLES["owner"])
    migrated = Process("migrate", {"DATABASE_URL": owner})
    assert migrated.popen.wait(DEADLINE) == 0, migrated.raw
    migrated.stop()
    runtime = as_user(empty_database, "scheduler_runtime", DATABASE_ROLES["runtime"])
    with contextlib.closing(Sidecar(runtime, as_user(least[1], "scheduler_sidecar"))) as sidecar:
        sidecar.up()
        host = Host(as_user(least[1], "scheduler_host"))
        host.request(run_at=iso(utc()))
        assert host.due()
        host.close()


@pytest.fixture
def managed(stack):
    """A database whose owner may create roles and is no superuser, on a server without our roles."""
    if stack.postgres is None:
        pytest.skip("needs private servers")
    postgres = PostgresServer(stack.ledger, find_postgres(), name=f"managed-{secrets.token_hex(4)}", fast=True)
    postgres.start()
    with connected(postgres.url) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE ROLE admin LOGIN CREATEROLE PASSWORD 'admin'")
        cursor.execute("CREATE DATABASE managed OWNER admin")
    yield as_user(postgres.url.replace("/postgres", "/managed"), "admin", "admin")
    postgres.kill()


def run_script(url: str, name: str = "roles.sql") -> subprocess.CompletedProcess[str]:
    psql = find_postgres() / "psql"
    if not psql.exists():
        pytest.skip("needs psql")
    return subprocess.run([psql, "-X", "-f", ROLES / name, url], check=False, capture_output=True, text=True)


def test_a_managed_service_without_superuser_is_enough(managed):
    for _ in range(2):
        done = run_script(managed)
        assert done.returncode == 0, done.stderr
    with connected(managed) as connection:
        for role, password in DATABASE_ROLES.items():
            connection.cursor().execute(f"ALTER ROLE scheduler_{role} PASSWORD %s", (password,))
    owner = as_user(managed, "scheduler_owner", DATABASE_ROLES["owner"])
    migrated = Process("migrate", {"DATABASE_URL": owner})
    assert migrated.popen.wait(DEADLINE) == 0, migrated.raw
    migrated.stop()
    assert run_script(managed).returncode == 0  # with tables
    runtime = as_user(managed, "scheduler_runtime", DATABASE_ROLES["runtime"])
    with connected(runtime) as connection:
        cursor = connection.cursor()
        cursor.execute("SET search_path = scheduler")
        cursor.execute("INSERT INTO jobs (id) VALUES (gen_random_uuid()) RETURNING status")
        assert cursor.fetchall() == [("pending",)]
        cursor.execute("SELECT add_run_partition(15)")
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            cursor.execute("CREATE TABLE mine (id integer)")


def test_the_script_stops_at_the_first_error_and_says_so(managed):
    with connected(managed) as connection:
        connection.cursor().execute("CREATE ROLE nobody LOGIN PASSWORD 'nobody'")
    done = run_script(as_user(managed, "nobody", "nobody"))
    assert done.returncode != 0
    assert "permission denied" in done.stderr
    with connected(managed) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT count(*) FROM pg_roles WHERE rolname LIKE 'scheduler\\_%'")
        assert cursor.fetchall() == [(0,)]
