"""Checks of the manifests without a cluster: Kubernetes' schemas, and our code behind each name."""

import re
import urllib.error
import urllib.request
from dataclasses import fields
from ipaddress import ip_network

import pytest
from prometheus_client import REGISTRY

from scheduler import __version__
from scheduler.domain import names
from scheduler.domain.targets.command import CommandTarget
from scheduler.domain.targets.pools import in_class
from scheduler.domain.targets.public_addresses import NOT_PUBLIC
from scheduler.domain.targets.target import SHARED_QUEUES
from scheduler.domain.targets.webhook import WebhookTarget
from scheduler.ops import health, metrics
from scheduler.processes.roles import ROLES
from scheduler.settings import Settings, load
from scheduler.workers.command import commands_file
from tools import kubernetes
from tools.kubernetes import FILES, OVERLAYS, containers, pod, render

ROOT = FILES.parents[1]
RENDERED = {name: render(FILES / "overlays" / name) for name in OVERLAYS}
BASE = render(FILES / "base")
PODS = [each for each in BASE if pod(each)]
DEPLOYMENTS = [each for each in PODS if each["kind"] == "Deployment"]
SETTINGS = {field.metadata["name"]: field.metadata["secret"] for field in fields(Settings)}
FURTHER_QUEUES = {
    names.DELAY_QUEUE: names.delay_queue("orders"),
    WebhookTarget.queue: in_class(WebhookTarget.queue, None, "high"),
}
QUEUES = {value for name, value in vars(names).items() if name.endswith("_QUEUE")} | set(SHARED_QUEUES)


def of(kind, manifests):
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def component(manifest):
    return manifest["metadata"]["labels"]["app.kubernetes.io/component"]


def named(manifest):
    return f"{manifest['kind']}-{manifest['metadata']['name']}"


def without_hashes(value):
    if isinstance(value, dict):
        return {key: without_hashes(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_hashes(each) for each in value]
    if isinstance(value, str):
        return re.sub(r"^(scheduler-(?:settings|commands))-[a-z0-9]{10}$", r"\1", value)
    return value


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kubernetes_takes_every_manifest(overlay):
    assert list(kubernetes.problems(RENDERED[overlay])) == []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kubectl_reads_them_as_we_do(overlay):
    """Without kubectl this compares our renderer with itself; `make lint` reports that."""
    made = kubernetes.kubectl(FILES / "overlays" / overlay) or RENDERED[overlay]
    assert sorted(map(without_hashes, made), key=named) == sorted(RENDERED[overlay], key=named)


@pytest.mark.parametrize("manifest", PODS, ids=named)
class TestPod:
    def test_runs_a_process_of_this_release(self, manifest):
        [container] = containers(manifest)
        assert container["image"] == f"scheduler:{__version__}"
        only = {"worker": ["worker", "--only", "webhooks"], "command-worker": ["worker", "--only", "commands"]}
        assert container["args"] == only.get(component(manifest), [component(manifest)])

    def test_pods_have_minimal_privileges(self, manifest):
        spec, [container] = pod(manifest), containers(manifest)
        assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is False
        assert spec["securityContext"] == {
            "runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert set(container["resources"]["limits"]) == {"memory"}

    def test_gets_settings_that_are_settings_and_secrets_as_files(self, manifest, tmp_path):
        [container] = containers(manifest)
        [data] = (each["data"] for each in of("ConfigMap", RENDERED["production"])
                  if each["metadata"]["name"] == "scheduler-settings")
        given = data | {each["name"]: each["value"] for each in container["env"]}
        mounted = mounted_files(manifest)
        for name, value in given.items():
            if name not in SETTINGS:
                assert SETTINGS[name.removesuffix("_FILE")], name
            else:
                assert not SETTINGS[name], f"{name} is a secret: its _FILE"
            if name.endswith("_FILE"):
                assert value in mounted
        stand_in = tmp_path / "secret"
        for name in given:
            if name.removesuffix("_FILE") in SETTINGS and SETTINGS[name.removesuffix("_FILE")]:
                given[name] = str(stand_in.with_name(name))
                text = {"DATABASE_URL_FILE": "postgresql://db/x", "AMQP_URL_FILE": "amqp://mq"}
                (tmp_path / name).write_text(text.get(name, "0123456789abcdef" * 2))
        load(given)


def mounted_files(manifest):
    """Return the paths of all files that volumes bring into the container."""
    [container] = containers(manifest)
    where = {volumemount["name"]: volumemount["mountPath"] for volumemount in container["volumeMounts"]}
    found = set()
    for volume in pod(manifest)["volumes"]:
        sources = volume.get("projected", {}).get("sources") or [volume]
        items = [item["path"] for source in sources for item in source.get("secret", {}).get("items", ())]
        if "configMap" in volume:
            [data] = (each["data"] for each in BASE if each["metadata"]["name"] == volume["configMap"]["name"])
            items += data
        found |= {f"{where[volume['name']]}/{item}" for item in items}
    return found


def test_every_process_has_a_deployment_and_a_migration_goes_before_them():
    assert set(ROLES) <= {component(deployment) for deployment in DEPLOYMENTS}
    assert [component(each) for each in of("Job", BASE)] == ["migrate"]


@pytest.mark.parametrize("manifest", DEPLOYMENTS, ids=named)
class TestDeployment:
    def test_is_asked_on_paths_and_ports_that_are_there(self, manifest):
        [container] = containers(manifest)
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports.pop("metrics") == Settings().metrics_port
        assert ports == ({"http": Settings().api_port} if component(manifest) == "api" else {})
        gets = [container[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]
        assert gets == [{"path": "/livez", "port": "metrics"}, {"path": "/readyz", "port": "metrics"}]

    def test_has_time_to_stop(self, manifest):
        [container] = containers(manifest)
        grace = {each["name"]: each["value"] for each in container["env"]}.get("SCHEDULER_STOP_GRACE", "5")
        before = container["lifecycle"]["preStop"]["exec"]["command"][1] if "lifecycle" in container else "0"
        assert pod(manifest)["terminationGracePeriodSeconds"] >= int(grace) + int(before) + 5

    def test_is_replaced_without_a_pause_and_spread(self, manifest):
        assert manifest["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
        spread = {constraint["topologyKey"] for constraint in pod(manifest)["topologySpreadConstraints"]}
        assert spread == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
        labels = manifest["spec"]["template"]["metadata"]["labels"]
        assert manifest["spec"]["selector"]["matchLabels"] == labels
        role = component(manifest)
        budgets = [each["spec"] for each in of("PodDisruptionBudget", BASE) if component(each) == role]
        assert budgets == [{"maxUnavailable": 1, "selector": {"matchLabels": labels}}]

    def test_is_found_by_prometheus_under_the_name_that_the_alerts_expect(self, manifest):
        role = component(manifest)
        [service] = (each for each in of("Service", BASE) if each["metadata"]["name"] == f"scheduler-{role}")
        assert service["spec"]["selector"] == manifest["spec"]["template"]["metadata"]["labels"]
        [monitor] = of("ServiceMonitor", RENDERED["production"])
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert [port["name"] for port in service["spec"]["ports"]] == [monitor["spec"]["endpoints"][0]["port"]]


def test_the_paths_of_probes_and_scrapes_are_answered():
    port = health.serve(health.Health(), "127.0.0.1", 0)
    [monitor] = of("ServiceMonitor", RENDERED["production"])
    for path in ("/livez", "/readyz", monitor["spec"]["endpoints"][0]["path"]):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            assert answer.status == 200
    with pytest.raises(urllib.error.HTTPError) as missing:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz")
    missing.value.close()


def test_workers_have_no_way_to_the_database_and_commands_see_no_webhook_secrets():
    for manifest in DEPLOYMENTS:
        if component(manifest).endswith("worker"):
            assert not any("DATABASE" in variable["name"] for variable in containers(manifest)[0]["env"])
        if component(manifest) == "command-worker":
            assert "webhooks" not in str(pod(manifest)["volumes"])
    [policy] = (each for each in of("NetworkPolicy", BASE) if each["metadata"]["name"] == "scheduler-postgres")
    [rule] = policy["spec"]["podSelector"]["matchExpressions"]
    assert set(rule["values"]) == {component(each) for each in PODS} - {"worker", "command-worker"}


def test_the_example_of_a_commands_file_is_one():
    assert commands_file.load(str(FILES / "base" / "commands.toml"))["hello"].arguments


def test_network_policies_deny_by_default():
    policies = {each["metadata"]["name"]: each["spec"] for each in of("NetworkPolicy", BASE)}
    assert policies["scheduler-nothing-else"]["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & set(policies["scheduler-nothing-else"])
    for name, port in (("metrics", Settings().metrics_port), ("console", Settings().api_port)):
        assert policies[f"scheduler-{name}"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": port}]


def test_the_webhook_egress_policy_matches_the_address_guard():
    [policy] = (each for each in of("NetworkPolicy", BASE) if each["metadata"]["name"] == "scheduler-webhooks")
    blocks = [each["ipBlock"] for each in policy["spec"]["egress"][0]["to"]]
    for block in blocks:
        here = ip_network(block["cidr"])
        kept_out = {ip_network(each) for each in block["except"]}
        known = {each for each, _ in NOT_PUBLIC if each.version == here.version and each.subnet_of(here)}
        assert kept_out == known
    assert [block["cidr"] for block in blocks] == ["0.0.0.0/0", "2000::/3"]


def test_keda_triggers_use_existing_metrics():
    scaled = {each["metadata"]["name"]: each["spec"] for each in of("ScaledObject", RENDERED["production"])}
    assert set(scaled) == {f"scheduler-{name}" for name in ("consumer", "producer", "worker", "command-worker")}
    for name, spec in scaled.items():
        assert spec["scaleTargetRef"]["name"] == name
        # Workers start from zero; without consumers and producers nothing would notice that there is work.
        least = 0 if name.endswith("worker") else 2
        assert spec["minReplicaCount"] == least
        assert 2 <= spec["fallback"]["replicas"] <= spec["maxReplicaCount"]
        if not least:
            for trigger in spec["triggers"]:
                assert {"activationValue": "0", "activationThreshold": "0"}.items() & trigger["metadata"].items()
        [target] = (each for each in of("Deployment", RENDERED["production"]) if each["metadata"]["name"] == name)
        assert "replicas" not in target["spec"]
        for trigger in spec["triggers"]:
            look_at(trigger)


def look_at(trigger):
    if trigger["type"] == "prometheus":
        known = {sample.name for metric in REGISTRY.collect() for sample in metric.samples}
        known |= {metric.name for metric in REGISTRY.collect()}
        used = set(re.findall(r"\bscheduler_\w+", trigger["metadata"]["query"]))
        assert used
        assert used <= known, metrics.__name__
        return
    # Over AMQP only what is ready is seen.
    assert trigger["metadata"]["protocol"] == "http"
    pattern = trigger["metadata"]["queueName"]
    if trigger["metadata"].get("useRegex") == "true":
        assert re.search(pattern, f"{CommandTarget.queue}nightly-report") or any(
            re.search(pattern, queue) and re.search(pattern, FURTHER_QUEUES[queue]) for queue in FURTHER_QUEUES
        )
    else:
        assert pattern in QUEUES
    [authentication] = of("TriggerAuthentication", RENDERED["production"])
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]


def test_the_alert_rules_are_those_of_prometheus():
    assert kubernetes.RULES.read_text() == kubernetes.rules(), "make dashboards"


def secret_names(manifest):
    volumes = [volume for volume in pod(manifest)["volumes"] if "configMap" not in volume]
    return set(re.findall(r"'(?:secretName|name)': '(scheduler-[\w-]+)'", str(volumes)))


def test_every_secret_that_is_used_is_documented_and_no_role_uses_the_broker_user_of_another():
    text = (ROOT / "docs" / "deploying.md").read_text()
    used = {component(manifest): secret_names(manifest) for manifest in PODS}
    for name in {"scheduler-keda", *set.union(*used.values())}:
        assert f"create secret generic {name} " in text, name
    assert {role: secrets - {"scheduler-database"} for role, secrets in used.items()} == {
        "migrate": set(), "consumer": {"scheduler-amqp"}, "producer": {"scheduler-amqp"},
        "worker": {"scheduler-amqp-worker", "scheduler-webhooks"},
        "command-worker": {"scheduler-amqp-command-worker"}, "api": {"scheduler-amqp-api", "scheduler-api"},
    }
    for manifest in RENDERED["production"]:
        assert manifest["kind"] != "Secret"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_there_are_never_fewer_than_two_producers(overlay):
    [producer] = (each for each in of("Deployment", RENDERED[overlay]) if component(each) == "producer")
    scaled = [each["spec"]["minReplicaCount"] for each in of("ScaledObject", RENDERED[overlay])
              if each["metadata"]["name"] == "scheduler-producer"]
    assert min([producer["spec"].get("replicas", 2), *scaled]) >= 2
