"""grafana/ and prometheus/ agree with the code they describe."""

import json
import re
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from ruamel.yaml import YAML

from scheduler.ops import metrics
from tools.dashboards.__main__ import FOLDER, texts

ROOT = Path(__file__).parents[3]
FOREIGN = re.compile(r"(process|python|rabbitmq|prometheus)_\w+|up|ALERTS")
RECORDED = re.compile(r"\bscheduler(?::\w+)+")
NAME = re.compile(r"\b(?:scheduler|jobs|process|python|rabbitmq)_[a-z_]+\b")
SUFFIXES = ("_total", "_bucket", "_count", "_sum", "")


def rules():
    for path in sorted((ROOT / "prometheus" / "rules").glob("*.yml")):
        for group in YAML(typ="safe").load(path)["groups"]:
            yield from group["rules"]


def expressions():
    for rule in rules():
        yield rule["expr"]
    for path in sorted(FOLDER.glob("*.json")):
        yield from re.findall(r'"(?:expr|query)": "((?:[^"\\]|\\.)*)"', path.read_text())


def known():
    metrics.declare("test")
    for family in REGISTRY.collect():
        yield from (family.name + suffix for suffix in SUFFIXES)


def test_the_committed_dashboards_are_what_the_script_writes():
    assert {path.name for path in FOLDER.glob("*.json")} == set(texts())
    for name, text in texts().items():
        assert (FOLDER / name).read_text() == text, "run `make dashboards`"


def test_every_metric_that_is_asked_for_exists():
    exist = set(known())
    # Words in an expression that look like metrics and are not.
    labels = {"scheduler_inbox", "scheduler_dead", "scheduler_webhooks", "rabbitmq_", "scheduler_command_"}
    asked = {name for text in expressions() for name in NAME.findall(text)} - labels
    assert len(asked) > 20
    missing = {name for name in asked if name not in exist and not FOREIGN.fullmatch(name)}
    assert not missing
    assert {name for name in asked if name.startswith(("process_", "python_"))} <= exist


def test_every_recorded_series_that_is_asked_for_is_recorded():
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    assert {name for text in expressions() for name in RECORDED.findall(text)} <= recorded


def test_every_metric_of_the_contract_is_on_a_dashboard():
    shown = "".join(path.read_text() for path in FOLDER.glob("*.json"))
    for name in (
        "jobs_queued_total", "jobs_cancelled_total", "jobs_due_total", "scheduler_due_lag_seconds_bucket",
        "scheduler_commands_rejected_total", "scheduler_jobs_missed_total", "scheduler_publish_failures_total",
        "scheduler_backlog_jobs", "scheduler_oldest_due_age_seconds", "scheduler_pending_jobs",
        "scheduler_batch_size_bucket", "scheduler_loop_seconds_bucket", "scheduler_build_info",
        "scheduler_runs_total", "scheduler_run_attempts_total", "scheduler_runs_open", "scheduler_runs_dead",
        "scheduler_runs_overdue", "scheduler_run_seconds_bucket", "scheduler_results_total",
        "scheduler_results_unknown_total", "scheduler_delayed_messages", "scheduler_delayed_in_total",
        "scheduler_delayed_out_total", "scheduler_delayed_lag_seconds_bucket", "scheduler_delayed_dead_total",
        "scheduler_results_unknown_total", "scheduler_commands_running", "scheduler_commands_ended_total",
    ):
        assert name in shown


@pytest.mark.parametrize("name", sorted(texts()))
def test_a_dashboard_has_what_an_operator_expects(name):
    board = json.loads(texts()[name])
    assert board["uid"].startswith("scheduler-")
    assert {each["name"] for each in board["templating"]["list"]} == {"datasource", "instance"}
    assert board["annotations"]["list"][0]["name"] == "Restarts"
    assert any("operating" in link["url"] for link in board["links"])
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert panel["type"] == "row" or panel["description"], panel["title"]
