"""An operator sees what happens: dashboards answer, outages show in /readyz and as the intended alert."""

import json
import math
import time
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from support import Host, Sidecar, iso, patiently, until, utc

from scheduler.dev.servers import start_stack
from scheduler.dev.servers.ports import free_ports
from scheduler.domain.jobs.emission import event_id
from scheduler.postgres.migrate import migrate
from scheduler.rabbit import topology
from tools.dashboards.__main__ import FOLDER
from tools.prometheus import Prometheus, ensure, promtool

PAST = {'instance=~"$instance"': 'instance=~".+"', "$__rate_interval": "20s", "$__range": "60s"}


class Scene:
    """Private servers, so that the test may stop them."""

    def __init__(self):
        [self.rabbit_port] = free_ports(1)
        self.stack = start_stack(
            purpose="observability", fast=True, rabbitmq_plugins=("rabbitmq_prometheus",),
            rabbitmq_config=("prometheus.tcp.ip = 127.0.0.1", f"prometheus.tcp.port = {self.rabbit_port}"),
        )

    def sidecar(self):
        database = self.stack.create_database()
        patiently(lambda: migrate(database))
        vhost = self.stack.create_vhost()
        patiently(lambda: topology.declare(vhost, queue_type="quorum", due_queue_type="default"))
        return Sidecar(database, vhost)

    def prometheus(self, sidecar):
        """A Prometheus with the scrape jobs of prometheus/prometheus.yml."""
        jobs = {}
        for process in sidecar.processes:
            jobs.setdefault(f"scheduler-{process.role}", []).append(f"127.0.0.1:{process.port}")
        broker = {
            "job_name": "rabbitmq", "metrics_path": "/metrics/detailed",
            "params": {"family": ["queue_coarse_metrics"]},
            "static_configs": [{"targets": [f"127.0.0.1:{self.rabbit_port}"]}],
        }
        return Prometheus(self.stack.ledger, jobs, [broker])


@pytest.fixture(scope="module")
def scene():
    made = Scene()
    yield made
    made.stack.close()


@pytest.fixture(scope="module")
def watched(scene, tmp_path_factory):
    """A consumer, a producer and a worker, scraped; a test that stops one restarts it."""
    sidecar = scene.sidecar()
    offered = tmp_path_factory.mktemp("commands") / "commands.toml"
    offered.write_text('[tidy]\nrun = ["/bin/true"]\n')
    for role, port in zip(("consumer", "producer", "worker"), free_ports(3), strict=True):
        sidecar.start(role, METRICS_PORT=str(port), SCHEDULER_WEBHOOK_ALLOW="127.0.0.1",
                      SCHEDULER_COMMANDS_FILE=str(offered)).ready()
    prometheus = scene.prometheus(sidecar)
    prometheus.wait("count(up == 1) >= 4")
    yield sidecar, prometheus
    prometheus.stop()
    assert all(code in (0, -9) for code in sidecar.close()), [process.raw[-5:] for process in sidecar.processes]


def put_to_work(host):
    """Make some of everything that the dashboards show."""
    soon = iso(utc())
    for number in range(200):
        host.request(run_at=soon, payload={"number": number})
    host.request(every=1, run_at=soon)
    for priority in ("high", "low"):
        host.request(every=1, run_at=soon, priority=priority)
    host.request(every=1, run_at=soon, target={"command": {"name": "tidy"}})
    host.channel.queue_declare("after_a_while", durable=True)
    host.channel.queue_bind("after_a_while", "schedule.delayed", "later")
    for delay in range(0, 180_000, 1000):  # they become due for as long as a busy machine may need to poll them
        host.publish("later", {}, exchange="schedule.delay", headers={"x-delay": delay})
    host.request(every=1, run_at=iso(utc(seconds=-10)))
    host.publish("cancel", {"id": host.request(run_at=iso(utc(hours=1)))})
    host.publish("request", {"id": str(uuid4()), "rule": "a mistake"})
    due_at = utc()
    for _ in range(5):
        event = {"event_id": event_id(host.request(run_at=iso(due_at), run={}), due_at), "attempt": 1}
        host.publish("result", event | {"status": "running", "worker": "w"})
        host.publish("result", event | {"status": "succeeded"})


def queries():
    """Every query of every panel, annotation and variable, with Grafana's variables filled in."""
    for path in sorted(FOLDER.glob("*.json")):
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                yield f"{board['title']} / {panel['title']} / {target['refId']}", target["expr"]
        for each in board["annotations"]["list"]:
            yield f"{board['title']} / annotation {each['name']}", each["expr"]
        for each in board["templating"]["list"]:
            if each["type"] == "query":
                metric = each["query"]["query"].removeprefix("label_values(").split(",")[0]
                yield f"{board['title']} / variable {each['name']}", metric


def filled(expression):
    for name, value in PAST.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    return expression


def numbers(answer):
    return [value for series in answer for _, value in series["values"] if not math.isnan(float(value))]


def test_every_dashboard_query_returns_data(watched):
    sidecar, prometheus = watched
    host = Host(sidecar.amqp_url)
    put_to_work(host)
    for _ in range(5):
        health = f"http://127.0.0.1:{sidecar.processes[0].port}/livez"
        host.request(every=1, run_at=iso(utc()), target={"webhook": {"url": health, "method": "GET"}})
    host.due(200)
    host.close()
    prometheus.wait("sum(rate(jobs_due_total[20s])) > 0")
    prometheus.wait("scheduler:on_time:ratio_rate5m")
    prometheus.wait('rabbitmq_detailed_queue_messages{queue="scheduler_dead"} > 0')
    unanswered = dict(queries())
    assert len(unanswered) > 30

    def all_answered():
        now = time.time()
        for name, text in list(unanswered.items()):
            if numbers(prometheus.query_range(filled(text), now - 20, now, 1)):
                del unanswered[name]
        return not unanswered

    try:
        until(all_answered, "an answer to each query")
    except AssertionError as error:
        raise AssertionError(f"no result for {unanswered}") from error


def test_every_recording_rule_returns_data(watched):
    sidecar, prometheus = watched
    host = Host(sidecar.amqp_url)
    put_to_work(host)
    host.due(200)
    host.close()
    for name in ("due:rate5m", "on_time:ratio_rate5m", "on_time:ratio_rate1h", "due_lag_seconds:p50_rate5m",
                 "due_lag_seconds:p95_rate5m", "due_lag_seconds:p99_rate5m", "backlog_jobs:max",
                 "oldest_due_age_seconds:max"):
        prometheus.wait(f"scheduler:{name} >= 0")


def test_promtool_accepts_the_metrics(watched):
    ensure(print)
    for process in running(watched[0]):
        done = promtool("check", "metrics", stdin=process.http("/metrics")[1])
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def running(sidecar):
    return [process for process in sidecar.processes if process.popen.poll() is None]


def missing(process, dependency):
    """Return the state of a dependency in /readyz, once it is reported."""
    status, body = process.http("/readyz")
    answer = json.loads(body)
    assert (status == 200) is answer["ready"]
    return answer["missing"].get(dependency)


def pending(prometheus, alert):
    """Wait until the alert's expression is true: it fires when it has been so for a while."""
    prometheus.wait(f'ALERTS{{alertname="{alert}"}}')


def silent(prometheus, alert):
    prometheus.wait(f'absent(ALERTS{{alertname="{alert}"}})')


def assert_outage_shows(sidecar, prometheus, dependency, alert, server):
    silent(prometheus, alert)
    before = datetime.now(UTC)
    server.stop("immediate")
    try:
        needing = [each for each in running(sidecar) if dependency == "rabbitmq" or each.role != "worker"]
        assert_missing(needing, prometheus, dependency, alert, before)
    finally:
        server.start()
    for process in running(sidecar):
        process.ready()
    silent(prometheus, alert)


def assert_missing(processes, prometheus, dependency, alert, before):
    for process in processes:
        seen = until(lambda p=process: missing(p, dependency), f"{process.role} to miss {dependency}")
        assert seen["problem"]
        assert before <= datetime.fromisoformat(seen["since"]) <= datetime.now(UTC)
        assert process.http("/livez")[0] == 200
    pending(prometheus, alert)
    # The first instant stays, regardless of retries.
    since = {process: missing(process, dependency)["since"] for process in processes}
    silent(prometheus, "SchedulerNoProducer")
    assert {process: missing(process, dependency)["since"] for process in processes} == since


def test_a_postgres_outage_fires_its_alert(scene, watched):
    assert_outage_shows(*watched, "postgres", "SchedulerDatabaseUnreachable", scene.stack.postgres)


def test_a_rabbitmq_outage_fires_its_alert(scene, watched):
    assert_outage_shows(*watched, "rabbitmq", "SchedulerBrokerUnreachable", scene.stack.rabbitmq)


def test_a_killed_producer_fires_its_alert(watched):
    sidecar, prometheus = watched
    consumer, producer, _ = running(sidecar)
    silent(prometheus, "SchedulerNoProducer")
    until(lambda: sidecar.sql("SELECT 1 FROM replicas WHERE pid = %s", producer.popen.pid), "its first heartbeat")
    producer.kill()
    try:
        # Time passes faster in a test: the last heartbeat was a minute ago.
        aged = "UPDATE replicas SET last_seen_at = now() - interval '1 minute' WHERE pid = %s RETURNING role"
        assert sidecar.sql(aged, producer.popen.pid) == [{"role": "producer"}]
        pending(prometheus, "SchedulerReplicaDown")
        pending(prometheus, "SchedulerNoProducer")
        assert consumer.http("/readyz")[0] == 200
    finally:
        sidecar.start("producer", METRICS_PORT=str(producer.port)).ready()
    silent(prometheus, "SchedulerNoProducer")


def test_rejected_commands_fire_their_alerts(watched):
    sidecar, prometheus = watched
    host = Host(sidecar.amqp_url)
    host.publish("request", b"no JSON")
    pending(prometheus, "SchedulerCommandsRejected")
    pending(prometheus, "SchedulerDeadLetters")
    host.close()


def test_unroutable_events_fire_their_alert(watched):
    sidecar, prometheus = watched
    host = Host(sidecar.amqp_url)
    host.channel.queue_unbind("mainapp_due", "schedule.events", "due")
    job = host.request(run_at=iso(utc()))
    pending(prometheus, "SchedulerPublishFailures")
    # It is due, although its next retry is in the future.
    until(lambda: running(sidecar)[0].metric("scheduler_oldest_due_age_seconds") > 0, "its age to grow")
    host.channel.queue_bind("mainapp_due", "schedule.events", "due")
    # Behind the many jobs that other tests have left running.
    until(lambda: job in {json.loads(body)["job_id"] for body in host.drain("mainapp_due")}, "the event after all")
    host.close()
