"""The Kubernetes manifests build, match the schemas of the API, and correspond to the compose file."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from benchmarks.topology.compose import ROOT, compose
from speciate.settings import FILE_SUFFIX

FOLDER = ROOT / "deploy" / "kubernetes"
VERSION = "1.34"
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Manifest]:
    """The manifests of the example overlay, with secrets made by the script that makes them."""
    home = tmp_path_factory.mktemp("kubernetes")
    shutil.copytree(FOLDER, home / "kubernetes")
    overlay = home / "kubernetes" / "overlays" / "example"
    subprocess.run([ROOT / "deploy" / "make-secrets.sh", overlay / "secrets"], check=True)
    result = subprocess.run(["kubectl", "kustomize", overlay], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(result.stdout)}


def _pods(built: dict[tuple[str, str], Manifest]) -> dict[str, Manifest]:
    """The specification of every pod, whatever kind of thing makes it."""
    return {name: pod for (_, name), manifest in built.items() if (pod := _pod(manifest))}


def _pod(manifest: Manifest) -> Manifest | None:
    spec: Manifest = manifest.get("spec", {})
    if "containers" in spec:
        return spec
    spec = spec.get("jobTemplate", spec)
    return _pod(spec) if "spec" in spec else _pod(spec["template"]) if "template" in spec else None


@pytest.mark.parametrize("path", sorted((FOLDER / "base").glob("*.yaml")), ids=lambda path: path.stem)
def test_files_match_the_schemas(path: Path) -> None:
    if path.stem in {"kustomization", "hardening"}:
        assert yaml.safe_load(path.read_text())
        return
    for manifest in yaml.safe_load_all(path.read_text()):
        kubernetes_validate.validate(manifest, VERSION, strict=True)


@needs_kubectl
def test_built_manifests_match_the_schemas(built: dict[tuple[str, str], Manifest]) -> None:
    assert len(built) > 15
    for (kind, _), manifest in built.items():
        if kind != "ScaledObject":  # KEDA's own; looked at below
            kubernetes_validate.validate(manifest, VERSION, strict=True)
        assert kind == "Namespace" or manifest["metadata"]["namespace"] == "speciate"
    broken = built["Deployment", "api"] | {"spec": {"replica": 3}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSION, strict=True)


@needs_kubectl
def test_pods_are_restricted_and_monitored(built: dict[tuple[str, str], Manifest]) -> None:
    pods = _pods(built)
    assert set(pods) == {"migrate", "api", "generate", "evaluate", "control", "policies"}
    for name, pod in pods.items():
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        assert container["resources"]["limits"]["memory"]
        assert container["image"].rpartition(":")[2] not in {"", "latest"}
        assert name == "migrate" or {"startupProbe", "livenessProbe"} <= set(container)
    secrets = {
        item["key"] for volume in pods["evaluate"]["volumes"] for item in volume.get("secret", {}).get("items", ())
    }
    assert secrets == {"database_url", "redis_url"}


@needs_kubectl
def test_files_named_by_variables_are_mounted(built: dict[tuple[str, str], Manifest]) -> None:
    looked_at = set()
    for name, pod in _pods(built).items():
        items = {
            volume["name"]: [item["path"] for item in volume["secret"]["items"]]
            for volume in pod["volumes"]
            if "secret" in volume
        }
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            mounted = {
                f"{mount['mountPath']}/{path}"
                for mount in container["volumeMounts"]
                for path in items.get(mount["name"], ())
            }
            named = {variable["name"]: variable.get("value", "") for variable in container.get("env", ())}
            for source in container.get("envFrom", ()):
                named |= built["ConfigMap", source["configMapRef"]["name"]]["data"]
            files = {variable: path for variable, path in named.items() if variable.endswith(FILE_SUFFIX)}
            # A setting reads its file whether the command needs it or not, and ends where it is not there.
            assert set(files.values()) <= mounted, (name, files)
            looked_at |= {name for _ in files}
    assert looked_at == {"migrate", "api", "generate", "evaluate", "control", "policies"}


@needs_kubectl
def test_the_processes_are_those_of_the_compose_file(built: dict[tuple[str, str], Manifest]) -> None:
    services = compose(environment={})["services"]
    for name, pod in _pods(built).items():
        (container,) = pod["containers"]
        # How many slots a worker has is each deployment's own affair.
        theirs, ours = container["args"], services[name]["command"]
        if name == "policies":
            ours = ours[: ours.index("--learned")]  # there is no learn worker whose versions it would load
        assert [each for each in ours if each not in {"-c", "8", "2"}] == [
            each for each in theirs if each not in {"-c", "8", "4", "2"}
        ], name
        files = {variable for variable in services[name]["environment"] if variable.endswith("_FILE")}
        config = built["ConfigMap", _generated(built, "ConfigMap")]["data"] if "envFrom" in container else {}
        given = {each["name"] for each in container.get("env", ())} | set(config)
        assert files <= given, name


@needs_kubectl
def test_references_resolve(built: dict[tuple[str, str], Manifest]) -> None:
    labels = [
        (each["spec"]["template"]["metadata"]["labels"], each["spec"]["template"]["spec"])
        for (kind, _), each in built.items()
        if kind == "Deployment"
    ]
    for (kind, name), each in built.items():
        wanted: dict[str, str] = {}
        match kind:
            case "Service":
                wanted = each["spec"]["selector"]
                ports = {
                    p["name"]
                    for found, pod in labels
                    if wanted.items() <= found.items()
                    for p in pod["containers"][0]["ports"]
                }
                assert {port["targetPort"] for port in each["spec"]["ports"]} <= ports
            case "PodDisruptionBudget":
                wanted = each["spec"]["selector"]["matchLabels"]
            case "NetworkPolicy":
                wanted = each["spec"]["podSelector"]["matchLabels"]
            case "ScaledObject" | "HorizontalPodAutoscaler":
                scaled = built["Deployment", each["spec"]["scaleTargetRef"]["name"]]
                assert "replicas" not in scaled["spec"], "every apply would undo what the autoscaler set"
            case "Ingress":
                backend = each["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
                assert ("Service", backend["name"]) in built
        assert not wanted or any(wanted.items() <= found.items() for found, _ in labels), name


@needs_kubectl
def test_ingress_matches_the_public_url(built: dict[tuple[str, str], Manifest]) -> None:
    config = built["ConfigMap", _generated(built, "ConfigMap")]["data"]
    host = built["Ingress", "speciate"]["spec"]["rules"][0]["host"]
    assert config["SPECIATE_URL"] == f"https://{host}"
    assert config["SPECIATE_POLICY_URL"], "what the base says is left out"


def test_autoscaling_uses_existing_metrics() -> None:
    text = (FOLDER / "overlays" / "example" / "autoscaling.yaml").read_text()
    scaled = [each for each in yaml.safe_load_all(text) if each["kind"] == "ScaledObject"]
    metrics = (ROOT / "service" / "metrics.py").read_text()
    for each in scaled:
        (trigger,) = each["spec"]["triggers"]
        assert trigger["type"] == "prometheus"
        assert "speciate_queue_units" in trigger["metadata"]["query"]
        assert '"speciate_queue_units"' in metrics
        assert float(trigger["metadata"]["threshold"]) > 0
        assert each["spec"]["minReplicaCount"] >= 1


def _generated(built: dict[tuple[str, str], Manifest], kind: str) -> str:
    (name,) = [name for of_kind, name in built if of_kind == kind]
    return name


def test_workers_use_their_time_to_end() -> None:
    (drain,) = re.findall(r"SPECIATE_DRAIN_S=(\d+)", (FOLDER / "base" / "kustomization.yaml").read_text())
    graces = re.findall(r"GracePeriodSeconds: (\d+)", (FOLDER / "base" / "workers.yaml").read_text())
    assert all(int(grace) / 2 < int(drain) < int(grace) - 5 for grace in graces)
