"""Checks of the container files without an engine."""

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from scheduler import __version__
from scheduler.processes.roles import ROLES
from scheduler.settings import Settings, load
from scheduler.workers.command import commands_file

ROOT = Path(__file__).parents[3]
COMPOSE = YAML(typ="safe").load(ROOT / "docker-compose.yml")
SERVICES = COMPOSE["services"]
OURS = ("migrate", "consumer", "producer", "worker", "command-worker", "api")
# In .env for operators and the host; Compose itself does not use them.
FOR_OTHERS = {"RABBITMQ_PASSWORD", "HOST_PASSWORD"}
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
    assert re.search(r":v?\d+\.\d+(\.\d+|-bookworm)", SERVICES[name]["image"])


def test_every_process_is_a_service():
    assert set(ROLES) <= set(OURS) <= set(SERVICES)


def test_one_service_builds_the_image_and_all_others_use_it():
    """If several services build the same tag, a newer Compose builds them concurrently and sometimes fails."""
    assert [name for name in OURS if "build" in SERVICES[name]] == ["migrate"]
    assert {SERVICES[name]["image"] for name in OURS} == {"scheduler:local"}


def test_the_schema_is_there_before_anyone_works_with_it():
    for name in ("consumer", "producer", "api"):
        assert SERVICES[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    for name in ("consumer", "producer", "worker", "command-worker"):
        assert SERVICES[name]["depends_on"]["rabbitmq"]["condition"] == "service_healthy"
    assert SERVICES["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"


@pytest.mark.parametrize("name", OURS)
def test_compose_uses_existing_settings(name, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("0123456789" * 4)
    known = {field.metadata["name"]: field.metadata["secret"] for field in fields(Settings)}
    given = SERVICES[name]["environment"].items()
    environment = {key: re.sub(r"\$\{\w+:(?:-(\w*)|\?[^}]*)\}", r"\1", value) for key, value in given}
    for key, value in environment.items():
        plain = key.removesuffix("_FILE")
        assert key in known or known[plain]
        if value.startswith("/run/secrets/"):
            assert value.removeprefix("/run/secrets/") in SERVICES[name]["secrets"]
            environment[key] = str(secret)
    load(environment)


def test_workers_have_no_way_to_the_database_and_their_commands_have_time():
    for name in ("worker", "command-worker"):
        assert "DATABASE_URL" not in SERVICES[name]["environment"]
    worker = SERVICES["command-worker"]
    assert not any("SECRET" in key for key in worker["environment"])
    assert "secrets" not in worker
    grace = int(worker["environment"]["SCHEDULER_STOP_GRACE"])
    assert int(worker["stop_grace_period"].removesuffix("s")) >= grace + 10


def test_the_example_of_a_commands_file_is_one():
    offered = commands_file.load(str(ROOT / "deploy" / "compose" / "commands.toml"))
    assert offered["hello"].arguments
    there = SERVICES["command-worker"]["environment"]["SCHEDULER_COMMANDS_FILE"]
    assert SERVICES["command-worker"]["volumes"] == [f"./deploy/compose/commands.toml:{there}:ro"]


def test_the_console_is_where_the_example_says():
    api = SERVICES["api"]
    assert api["environment"]["API_HOST"] == "0.0.0.0"
    assert api["ports"] == [f"127.0.0.1:${{API_PORT:-{Settings().api_port}}}:{Settings().api_port}"]


def test_passwords_and_keys_are_generated_once(tmp_path):
    def prepare():
        script = ROOT / "deploy" / "compose" / "prepare.sh"
        subprocess.run(["sh", script, tmp_path], check=True, capture_output=True)
        return {path.name: path.read_text() for path in (tmp_path / ".env", *(tmp_path / "secrets").iterdir())}

    made = prepare()
    assert prepare() == made
    values = dict(line.split("=") for line in made[".env"].splitlines())
    used = set(re.findall(r"\$\{(\w+):\?", (ROOT / "docker-compose.yml").read_text()))
    assert set(values) == used | FOR_OTHERS
    assert all(re.fullmatch(r"[0-9a-f]{48}", value) for value in values.values())
    assert len(set(values.values())) == len(values)
    assert {f"./secrets/{name}" for name in made if name != ".env"} == {
        secret["file"] for secret in COMPOSE["secrets"].values()
    }
    load({"SCHEDULER_JWT_KEY_FILE": str(tmp_path / "secrets" / "jwt_key")})
    assert len(made["jwt_key"]) >= 32
    assert (tmp_path / ".env").stat().st_mode & 0o077 == (tmp_path / "secrets").stat().st_mode & 0o077 == 0
    assert "/secrets/" in (ROOT / ".gitignore").read_text().split()


def test_the_script_for_machines_with_docker_only_names_what_exists():
    script = ROOT / "deploy" / "compose" / "try.sh"
    subprocess.run(["sh", "-n", script], check=True)
    text = script.read_text()
    assert set(re.search(r"--wait (.*)", text)[1].split()) <= SERVICES.keys()
    assert set(re.search(r"--since 1s (.*)", text)[1].split()) <= SERVICES.keys()
    for variable in ("API_PORT", "AMQP_PORT", "POSTGRES_PORT"):
        [default] = set(re.findall(rf"\${{{variable}:-(\d+)}}", text))
        assert f"${{{variable}:-{default}}}:" in (ROOT / "docker-compose.yml").read_text()


def test_passwords_that_an_upgrade_adds_are_appended(tmp_path):
    (tmp_path / ".env").write_text("POSTGRES_PASSWORD=old\nLOG_LEVEL=debug\n")
    subprocess.run(["sh", ROOT / "deploy" / "compose" / "prepare.sh", tmp_path], check=True, capture_output=True)
    lines = (tmp_path / ".env").read_text().splitlines()
    assert lines[:2] == ["POSTGRES_PASSWORD=old", "LOG_LEVEL=debug"]
    assert any(line.startswith("WORKER_PASSWORD=") for line in lines)


def test_every_role_has_its_own_user_and_password():
    urls = [value for name in OURS for key, value in SERVICES[name]["environment"].items() if key.endswith("_URL")]
    passwords = {re.search(r"\$\{(\w+):", url)[1]: re.search(r"//(\w+):", url)[1] for url in urls}
    assert passwords == {
        "OWNER_PASSWORD": "scheduler_owner", "RUNTIME_PASSWORD": "scheduler_runtime",
        "SIDECAR_PASSWORD": "scheduler_sidecar", "WORKER_PASSWORD": "scheduler_worker",
        "COMMAND_WORKER_PASSWORD": "scheduler_command_worker", "API_PASSWORD": "scheduler_api",
    }


def test_every_password_comes_from_the_env_file():
    text = (ROOT / "docker-compose.yml").read_text()
    example = (ROOT / ".env.example").read_text()
    named = set(re.findall(r"^#?([A-Z_]+)=", example, flags=re.MULTILINE))
    assert set(VARIABLE.findall(text)) | FOR_OTHERS == named
    for line in text.splitlines():
        if "PASS" in line:
            assert ":?" in line, line
    assert not re.search(r"^\w*PASSWORD=.", example, flags=re.MULTILINE)
    assert ".env" in (ROOT / ".gitignore").read_text().split()


def test_prometheus_scrapes_the_services_by_their_names():
    scrapes = YAML(typ="safe").load(ROOT / "prometheus" / "prometheus.yml")["scrape_configs"]
    found = {scrape["job_name"]: scrape for scrape in scrapes}
    for name in OURS[1:]:
        [discovery] = found[f"scheduler-{name}"]["dns_sd_configs"]
        assert discovery["names"] == [name]
        assert discovery["port"] == Settings().metrics_port
    assert found["rabbitmq"]["static_configs"][0]["targets"] == ["rabbitmq:15692"]


def test_grafana_finds_every_folder_it_looks_for():
    found = {path.name for path in (ROOT / "grafana" / "provisioning").iterdir()}
    assert found == {"dashboards", "datasources", "plugins", "alerting"}
    for path in (ROOT / "grafana" / "provisioning").glob("*/*.yml"):
        assert YAML(typ="safe").load(path)["apiVersion"] == 1


def test_what_is_mounted_exists():
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            if volume.startswith("./"):
                assert (ROOT / volume.split(":")[0]).exists()


def test_the_image_runs_unprivileged_and_checks_its_own_health():
    text = (ROOT / "Dockerfile").read_text()
    final = text[text.rindex("\nFROM ") :]
    assert "\nUSER 10001:10001\n" in final
    assert 'ENTRYPOINT ["scheduler"]' in final
    assert 'CMD ["scheduler", "health"]' in final
    assert "pip install" not in final
    assert "apt-get" not in final
    # Debian 12's buildah and podman do not know it.
    assert "--start-interval" not in text.replace("# No --start-interval", "")
    assert not re.search(r"(?:user|group)add\b.*--system", text)
    assert f"ARG VERSION={__version__}\n" in final
    assert text.count("install --disable-pip-version-check --require-hashes") == 2
    assert all(re.search(r":\d+\.\d+\.\d+-", image) for image in re.findall(r"^FROM (\S+)", text, re.MULTILINE))
    # The sources of the wheel must reach the build.
    ignored = (ROOT / ".dockerignore").read_text().split()
    for name in re.findall(r"^COPY (?!--)(.+) \S+$", text, flags=re.MULTILINE):
        assert all(f"!{part}" in ignored for part in name.split())


def locked(name):
    """Return the versions of a lock file; each must have a hash."""
    entries = re.findall(r"^([\w.-]+)==(\S+)(?: ;[^\\]*)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
                         (ROOT / name).read_text(), re.MULTILINE)
    lines = re.findall(r"^[^#\s].*==", (ROOT / name).read_text(), re.MULTILINE)
    assert len(entries) == len(lines) > 0
    return {package: version for package, version, _ in entries}


def test_every_locked_version_has_hashes_and_is_the_same_everywhere():
    everything = locked("constraints.txt")
    for name in ("requirements/run.txt", "requirements/build.txt"):
        assert locked(name).items() <= everything.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["build-system"]["requires"] == [f"hatchling=={everything['hatchling']}"]


def test_the_bill_of_materials_lists_what_the_image_installs(tmp_path):
    """With the command of `make sbom`."""
    [command] = re.findall(r"^\t@\$\(BIN\)/(cyclonedx-py .*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    name, *arguments = command.replace("dist/sbom.cdx.json", str(tmp_path / "sbom.json")).split()
    subprocess.run([Path(sys.executable).parent / name, *arguments], cwd=ROOT, check=True, capture_output=True)
    document = json.loads((tmp_path / "sbom.json").read_text())
    listed = {part["name"]: part["version"] for part in document["components"]}
    assert (document["bomFormat"], listed) == ("CycloneDX", locked("requirements/run.txt"))
