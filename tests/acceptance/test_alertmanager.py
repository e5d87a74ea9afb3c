"""An alert of the shipped rules reaches the receiver of the shipped configuration, and so does its end."""

from pathlib import Path

import pytest
from endpoints import endpoint
from ruamel.yaml import YAML
from support import DEADLINE, until

from tools.prometheus import Alertmanager, Prometheus

ROOT = Path(__file__).parents[2]
SHIPPED = YAML(typ="safe").load(ROOT / "prometheus" / "alertmanager.yml")
KUBERNETES = YAML(typ="safe").load(ROOT / "deploy/kubernetes/components/monitoring/alertmanager.yaml")["spec"]


@pytest.fixture
def server():
    with endpoint() as made:
        yield made


def told(server, alert, status):
    return [each for call in server.received for each in call.json["alerts"]
            if each["labels"]["alertname"] == alert and each["status"] == status]


def test_the_receiver_is_told_when_no_producer_runs_and_when_one_runs_again(stack, sidecar, server):
    consumer = sidecar.start("consumer").ready()
    alertmanager = Alertmanager(stack.ledger, server.url("/alerts"))
    jobs = {"scheduler-consumer": [f"127.0.0.1:{consumer.port}"]}
    prometheus = Prometheus(stack.ledger, jobs, alertmanagers=[alertmanager.address])
    try:
        until(lambda: told(server, "SchedulerNoProducer", "firing"), "the alert", within=2 * DEADLINE)
        [first, *_] = told(server, "SchedulerNoProducer", "firing")
        assert first["labels"]["severity"] == "page"
        assert first["annotations"]["runbook_url"].startswith("docs/operating.md#")
        sidecar.start("producer").ready()
        until(lambda: told(server, "SchedulerNoProducer", "resolved"), "the alert's end", within=2 * DEADLINE)
    finally:
        prometheus.stop()
        alertmanager.stop()


def test_kubernetes_has_the_same_route_and_receiver():
    def camel(name):
        head, *words = name.split("_")
        return head + "".join(word.capitalize() for word in words)

    route, ours = KUBERNETES["route"], SHIPPED["route"]
    for key in ("receiver", "group_by", "group_wait", "group_interval", "repeat_interval"):
        assert route[camel(key)] == ours[key]
    [page], [ours_page] = route["routes"], ours["routes"]
    assert [f'{m["name"]}{m["matchType"]}"{m["value"]}"' for m in page["matchers"]] == ours_page["matchers"]
    [inhibit], [ours_inhibit] = KUBERNETES["inhibitRules"], SHIPPED["inhibit_rules"]
    for theirs, name in (("sourceMatch", "source_matchers"), ("targetMatch", "target_matchers")):
        assert [f'{m["name"]}{m["matchType"]}"{m["value"]}"' for m in inhibit[theirs]] == ours_inhibit[name]
    assert [receiver["name"] for receiver in KUBERNETES["receivers"]] == [
        receiver["name"] for receiver in SHIPPED["receivers"]]


def test_every_alert_that_silences_others_and_every_silenced_one_exists():
    rules = YAML(typ="safe").load(ROOT / "prometheus" / "rules" / "alerts.yml")["groups"]
    names = {rule["alert"] for group in rules for rule in group["rules"]}
    for rule in SHIPPED["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            assert set(matcher.split('"')[1].split("|")) <= names
