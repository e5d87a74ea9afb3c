"""Every alert is tested, documented and says what to do."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tools import prometheus

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "prometheus" / "tests" / "alerts_test.yml"
ALERTS = [
    rule
    for group in YAML(typ="safe").load(prometheus.RULES / "alerts.yml")["groups"]
    for rule in group["rules"]
]


@pytest.fixture(scope="module", autouse=True)
def promtool():
    """Fails with advice where promtool is missing and cannot be installed."""
    prometheus.ensure(print)


def test_configuration_and_rules_are_valid():
    done = prometheus.promtool("check", "config", "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_when_they_should_and_are_silent_when_they_should_be():
    done = prometheus.promtool("test", "rules", "tests/alerts_test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", [rule["alert"] for rule in ALERTS])
def test_an_alert_has_a_firing_and_a_silent_case(alert):
    cases = [
        case["exp_alerts"]
        for test in YAML(typ="safe").load(TESTS)["tests"]
        for case in test["alert_rule_test"]
        if case["alertname"] == alert
    ]
    assert any(cases)
    assert not all(cases)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_leads_to_its_page(rule):
    file, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert anchor == rule["alert"].lower()
    assert f"### {rule['alert']}\n" in (ROOT / file).read_text()
    assert rule["labels"]["severity"] in ("page", "warn")
