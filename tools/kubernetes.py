"""Render and check the Kubernetes manifests and the alert rules among them, for `make lint` and tests.

The manifests use few features of kustomize, so this module renders them itself and the check runs on any machine.
If `kubectl kustomize` is installed, its result is compared.
"""
# ruff: noqa: S603, S607 - fixed programs of the system, with arguments of our own

import shutil
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
FILES = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("small", "production")
RULES = FILES / "components" / "monitoring" / "rules.yaml"
# The oldest and the newest that are in use; the schemas come with kubernetes-validate.
VERSIONS = ("1.28", "1.34")
_CUSTOM = ("monitoring.coreos.com/", "keda.sh/", "kustomize.config.k8s.io/")
_SUPPORTED = {
    "apiVersion", "kind", "namespace", "resources", "components", "patches", "images", "replicas",
    "configMapGenerator",
}

Manifest = dict[str, Any]


def documents(path: Path) -> list[Manifest]:
    """Return the documents of a YAML file."""
    return [document for document in YAML(typ="safe").load_all(path) if document]


def render(directory: Path) -> list[Manifest]:
    """Render a kustomization, without the hashes in the names of its ConfigMaps."""
    [plan] = documents(directory / "kustomization.yaml")
    unknown = set(plan) - _SUPPORTED
    if unknown:
        raise ValueError(f"{directory.name}: {', '.join(unknown)} is not supported here; add it, or avoid it")
    manifests = [manifest for name in plan.get("resources", ()) for manifest in _resource(directory / name)]
    _generate(directory, plan, manifests)
    for name in plan.get("components", ()):
        component = directory / name
        manifests += [manifest for manifest in render(component) if manifest not in manifests]
        _patch(component, manifests)
    _patch(directory, manifests)
    for manifest in manifests:
        _transform(plan, manifest)
    return manifests


def _resource(path: Path) -> list[Manifest]:
    return render(path) if path.is_dir() else documents(path)


def _generate(directory: Path, plan: Manifest, manifests: list[Manifest]) -> None:
    for generator in plan.get("configMapGenerator", ()):
        data = dict(line.split("=", 1) for line in generator.get("literals", ()))
        data |= {name: (directory / name).read_text(encoding="utf-8") for name in generator.get("files", ())}
        if generator.get("behavior") == "merge":
            [existing] = (manifest for manifest in manifests if _is(manifest, "ConfigMap", generator["name"]))
            existing["data"] |= data
        else:
            meta = {"name": generator["name"]}
            manifests.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})


def _is(manifest: Manifest, kind: str, name: str) -> bool:
    return bool((manifest["kind"], manifest["metadata"]["name"]) == (kind, name))


def _patch(directory: Path, manifests: list[Manifest]) -> None:
    [plan] = documents(directory / "kustomization.yaml")
    for patch in (patch for entry in plan.get("patches", ()) for patch in documents(directory / entry["path"])):
        for manifest in manifests:
            if _is(manifest, patch["kind"], patch["metadata"]["name"]):
                _merge(manifest, patch)


def _merge(into: Manifest, patch: Manifest) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _transform(plan: Manifest, manifest: Manifest) -> None:
    if "namespace" in plan:
        manifest["metadata"]["namespace"] = plan["namespace"]
    tags = {image["name"]: image["newTag"] for image in plan.get("images", ())}
    for container in containers(manifest):
        if container["image"] in tags:
            container["image"] += f":{tags[container['image']]}"
    counts = {entry["name"]: entry["count"] for entry in plan.get("replicas", ())}
    if manifest["kind"] == "Deployment" and manifest["metadata"]["name"] in counts:
        manifest["spec"]["replicas"] = counts[manifest["metadata"]["name"]]


def pod(manifest: Manifest) -> Manifest | None:
    """Return the pod specification of a manifest, if it has one."""
    if manifest["kind"] not in ("Deployment", "Job"):
        return None
    spec: Manifest = manifest["spec"]["template"]["spec"]
    return spec


def containers(manifest: Manifest) -> list[Manifest]:
    """Return the containers of a manifest's pods."""
    return list((pod(manifest) or {}).get("containers", ()))


def kubectl(directory: Path) -> list[Manifest] | None:
    """Render a kustomization with kubectl; None if kubectl is missing or too old."""
    if shutil.which("kubectl") is None:
        return None
    done = subprocess.run(["kubectl", "kustomize", str(directory)], capture_output=True, text=True, check=False)
    if done.returncode and "unknown field" in done.stderr:
        return None
    if done.returncode:
        raise ValueError(f"kubectl kustomize {directory.name}: {done.stderr.strip()}")
    return [document for document in YAML(typ="safe").load_all(done.stdout) if document]


def problems(manifests: list[Manifest]) -> Iterator[str]:
    """Yield violations of the Kubernetes schemas."""
    for manifest in manifests:
        if manifest["apiVersion"].startswith(_CUSTOM):
            continue
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(manifest, version, strict=True)
            except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
                yield f"{manifest['kind']} {manifest['metadata']['name']}, Kubernetes {version}: {error}"


def rules() -> str:
    """Return the alert and recording rules of prometheus/rules as a PrometheusRule."""
    groups = [group for path in sorted((ROOT / "prometheus" / "rules").glob("*.yml"))
              for document in documents(path) for group in document["groups"]]
    labels = {"app.kubernetes.io/name": "scheduler"}
    manifest = {
        "apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
        "metadata": {"name": "scheduler", "namespace": "scheduler", "labels": labels}, "spec": {"groups": groups},
    }
    text = StringIO("")
    yaml = YAML()
    yaml.width = 1000
    yaml.dump(manifest, text)
    return f"# Made by `make dashboards` from prometheus/rules.\n{text.getvalue()}"


def check() -> int:
    """Check every overlay, for `make lint`."""
    found = [problem for name in OVERLAYS for problem in problems(render(FILES / "overlays" / name))]
    for name in OVERLAYS:
        made = kubectl(FILES / "overlays" / name)
        if made is None:
            print("deploy/kubernetes/ read without kubectl, which is not here or too old")  # noqa: T201 - `make lint`
            break
        found += problems(made)
    for problem in found:
        print(problem)  # noqa: T201 - `make lint` shows it
    return 1 if found else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["rules"]:
        RULES.write_text(rules(), encoding="utf-8")
    else:
        sys.exit(check())
