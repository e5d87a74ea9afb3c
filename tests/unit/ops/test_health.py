"""/livez and /readyz say what they should, and passwords nowhere."""

import json
import socket
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest

from scheduler.domain.errors import Misconfigured
from scheduler.ops import metrics
from scheduler.ops.health import STUCK_AFTER, Health, serve
from scheduler.processes import lifecycle
from scheduler.processes.roles import ROLES
from scheduler.settings import Settings


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def up(dependency):
    return metrics.dependency_up.labels(dependency)._value.get()


def test_livez_depends_only_on_the_loop():
    clock = Clock()
    health = Health(clock)
    part = health.part("postgres")
    clock.now = STUCK_AFTER - 0.1
    assert health.live()[0]
    clock.now = STUCK_AFTER
    assert health.live() == (False, {"live": False, "loop_turned_seconds_ago": STUCK_AFTER})
    part.turn()
    assert health.live()[0]


def test_only_looping_parts_count_for_liveness():
    """The heartbeat's own part has no loop to turn: a consumer must not count as stuck over it."""
    clock = Clock()
    health = Health(clock)
    work, _ = health.part("rabbitmq"), health.part("postgres", loops=False)
    clock.now = 2 * STUCK_AFTER
    work.turn()
    assert health.live()[0]
    health.part("rabbitmq")
    clock.now += STUCK_AFTER
    work.turn()
    assert not health.live()[0]


@pytest.mark.parametrize("role", ROLES.values(), ids=lambda role: role.name)
def test_every_part_of_a_process_that_loops_is_one_of_its_works(role, monkeypatch):
    made = []
    monkeypatch.setattr(lifecycle, "Health", lambda: made.append(Health()) or made[-1])
    monkeypatch.setattr(lifecycle, "Maintenance", lambda *_: SimpleNamespace(start=lambda: None))
    monkeypatch.setattr(lifecycle.http, "serve", lambda *_: 0)
    for name in ("setswitchinterval",):
        monkeypatch.setattr(lifecycle.sys, name, lambda _: None)
    monkeypatch.setattr(lifecycle, "gc", SimpleNamespace(freeze=lambda: None, set_threshold=lambda *_: None))
    parts, _ = lifecycle.start(role, Settings(), SimpleNamespace(listen=lambda: None))
    assert [part for part in made[0].parts if part.loops] == parts
    assert len(parts) == len(role.load(Settings()))


def test_ready_says_what_is_missing_and_since_when():
    health = Health()
    part = health.part("postgres", "rabbitmq")
    part.found("rabbitmq")
    part.found("postgres")
    assert health.ready() == (True, {"ready": True, "missing": {}})
    assert up("postgres") == 1
    part.missing("postgres", "connection refused at postgresql://u:hunter2@db/x")
    _, first = health.ready()
    part.missing("postgres", "still refused")
    fine, answer = health.ready()
    assert not fine
    assert up("postgres") == 0
    assert "hunter2" not in str(first)
    assert answer["missing"]["postgres"]["problem"] == "still refused"
    assert answer["missing"]["postgres"]["since"] == first["missing"]["postgres"]["since"]


def test_of_several_parts_the_first_that_noticed_says_since_when():
    health = Health()
    first, second = health.part(), health.part()
    second.missing("postgres", "gone")
    _, before = health.ready()
    first.missing("postgres", "gone too")
    assert health.ready()[1] == before


def test_a_loss_is_counted_once_and_never_before_there_was_something_to_lose():
    counter = metrics.dependency_losses.labels("postgres")
    health = Health()
    part = health.part("postgres")
    before = counter._value.get()
    part.missing("postgres", "not yet")
    assert counter._value.get() == before
    part.found("postgres")
    part.missing("postgres", "gone")
    part.missing("postgres", "still gone")
    assert counter._value.get() == before + 1


def test_the_same_over_http():
    health = Health()
    part = health.part("rabbitmq")
    port = serve(health, "127.0.0.1", 0)
    assert get(port, "/livez")[0] == 200
    status, body = get(port, "/readyz?verbose")
    assert (status, list(json.loads(body)["missing"])) == (503, ["rabbitmq"])
    part.found("rabbitmq")
    assert get(port, "/readyz")[0] == 200
    assert "# HELP jobs_due_total" in get(port, "/metrics")[1]
    assert get(port, "/")[0] == 404


def test_a_silent_scraper_blocks_no_other():
    port = serve(Health(), "127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", port)):
        assert get(port, "/livez")[0] == 200


def test_a_port_that_is_taken_is_a_bad_setting():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Misconfigured, match="METRICS_PORT"):
            serve(Health(), "127.0.0.1", taken.getsockname()[1])
