"""What can be known of the container files without an engine."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from scheduler.settings import Settings, load

ROOT = Path(__file__).parents[3]
COMPOSE = YAML(typ="safe").load(ROOT / "docker-compose.yml")
SERVICES = COMPOSE["services"]
OURS = ("migrate", "consumer", "producer")
VARIABLE = re.compile(r"\$\{(\w+)")


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_on_this_machine_only(name):
    for port in SERVICES[name].get("ports", ()):
        assert port.startswith("127.0.0.1:")


@pytest.mark.parametrize("name", SERVICES)
def test_any_service_can_be_scaled_or_at_least_recreated(name):
    assert "container_name" not in SERVICES[name]


def test_producers_can_be_scaled():
    assert "ports" not in SERVICES["producer"]
    assert SERVICES["producer"]["deploy"]["replicas"] == 2


@pytest.mark.parametrize("name", [name for name in SERVICES if name not in OURS])
def test_every_server_has_a_health_check_a_volume_and_a_pinned_version(name):
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
    assert any(volume.split(":")[0] in COMPOSE["volumes"] for volume in SERVICES[name]["volumes"])
    assert re.search(r":v?\d+\.\d+", SERVICES[name]["image"])


def test_the_schema_is_there_before_anyone_works_with_it():
    for name in ("consumer", "producer"):
        assert SERVICES[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
        assert SERVICES[name]["depends_on"]["rabbitmq"]["condition"] == "service_healthy"
    assert SERVICES["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"


@pytest.mark.parametrize("name", OURS)
def test_our_settings_are_settings(name):
    environment = SERVICES[name]["environment"]
    assert set(environment) <= {each.metadata["name"] for each in fields(Settings)}
    defaults = {key: re.sub(r"\$\{\w+:-(\w+)\}", r"\1", value) for key, value in environment.items()}
    load({key: re.sub(r"\$\{\w+:\?[^}]*\}", "secret", value) for key, value in defaults.items()})


def test_every_password_comes_from_the_env_file():
    text = (ROOT / "docker-compose.yml").read_text()
    example = (ROOT / ".env.example").read_text()
    named = set(re.findall(r"^#?([A-Z_]+)=", example, flags=re.MULTILINE))
    assert set(VARIABLE.findall(text)) == named
    for line in text.splitlines():
        if "PASS" in line:
            assert ":?" in line, line
    assert not re.search(r"^\w*PASSWORD=.", example, flags=re.MULTILINE)
    assert ".env" in (ROOT / ".gitignore").read_text().split()


def test_prometheus_scrapes_the_services_by_their_names():
    scrapes = YAML(typ="safe").load(ROOT / "prometheus" / "prometheus.yml")["scrape_configs"]
    found = {scrape["job_name"]: scrape for scrape in scrapes}
    for name in ("consumer", "producer"):
        [discovery] = found[f"scheduler-{name}"]["dns_sd_configs"]
        assert discovery["names"] == [name]
        assert discovery["port"] == Settings().metrics_port
    assert found["rabbitmq"]["static_configs"][0]["targets"] == ["rabbitmq:15692"]
    assert "rabbitmq_prometheus" in COMPOSE["configs"]["rabbitmq_plugins"]["content"]


def test_what_is_mounted_exists():
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            if volume.startswith("./"):
                assert (ROOT / volume.split(":")[0]).is_dir()


def test_the_image_runs_as_nobody_in_particular_and_asks_its_own_program():
    text = (ROOT / "Dockerfile").read_text()
    final = text[text.rindex("\nFROM ") :]
    assert "\nUSER 10001:10001\n" in final
    assert 'ENTRYPOINT ["scheduler"]' in final
    assert 'CMD ["scheduler", "health"]' in final
    assert "pip install" not in final
    assert "apt-get" not in final
    # What the wheel is made of must reach the build.
    ignored = (ROOT / ".dockerignore").read_text().split()
    for name in re.findall(r"^COPY (?!--)(.+) \S+$", text, flags=re.MULTILINE):
        assert all(f"!{part}" in ignored for part in name.split())
