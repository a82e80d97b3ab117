"""Manifests for Kubernetes: valid for two of its versions, hardened, in step with settings, rules and dashboards."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from dashboards.generate.render import GROUPINGS
from prompt_sidecar.config.settings import SETTINGS, variable
from tests.real.needing import lack

ROOT = Path(__file__).parents[2]
HOME = ROOT / "deploy" / "kubernetes"
VERSIONS = ("1.36", "1.37")
FOREIGN = ("monitoring.coreos.com/v1", "kustomize.config.k8s.io/v1beta1", "kustomize.config.k8s.io/v1alpha1")
"""Kinds whose schemas do not come with kubernetes-validate; `test_crds.py` has those of Prometheus."""
RESOURCE = "OTEL_RESOURCE_ATTRIBUTES"
BUILDS = {
    "standalone": HOME / "standalone",
    "example": HOME / "example",
    "dashboards": ROOT / "dashboards",
}


def documents(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a file."""
    return [each for each in yaml.safe_load_all(path.read_text("utf-8")) if each]


def built(folder: Path) -> list[dict[str, Any]]:
    """Return what a kustomization makes."""
    kubectl = shutil.which("kubectl", path=str(Path(sys.executable).parent))
    if kubectl is None:
        lack("no kubectl: its package is for Linux on x86_64 alone")
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def manifests() -> Iterator[Any]:
    """Every manifest of the repository that is one by itself."""
    for path in sorted(HOME.rglob("*.yaml")):
        if path.name != "socket.yaml":  # a patch: half a container
            for number, document in enumerate(documents(path)):
                if document.get("apiVersion") not in FOREIGN:
                    yield pytest.param(document, id=f"{path.relative_to(HOME)}-{number}")


def whole(document: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest with what only a patch leaves out."""
    if document["kind"] == "Deployment":
        document["spec"].setdefault("selector", {})
        document["spec"]["template"]["spec"].setdefault("containers", [{"name": "agent", "image": "agent"}])
    return document


def own_containers() -> Iterator[Any]:
    """The sidecar's container, in each of its manifests."""
    for path in (HOME / "sidecar" / "container.yaml", HOME / "standalone" / "deployment.yaml"):
        for document in documents(path):
            if document["kind"] == "Deployment":
                spec = document["spec"]["template"]["spec"]
                found = [*spec.get("initContainers", ()), *spec.get("containers", ())]
                yield pytest.param(
                    next(each for each in found if each["name"] == "prompt-sidecar"), id=path.parent.name
                )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("document", list(manifests()))
def test_manifests_are_valid(document: dict[str, Any], version: str) -> None:
    """Strictly: a member that Kubernetes does not know is a fault."""
    kubernetes_validate.validate(whole(document), version, strict=True)


@pytest.mark.parametrize("name", BUILDS)
def test_kustomizations_build(name: str) -> None:
    """What they make is valid, and holds no image without an address."""
    for document in built(BUILDS[name]):
        if document["apiVersion"] not in FOREIGN:
            for version in VERSIONS:
                kubernetes_validate.validate(document, version, strict=True)
        assert "image: prompt-sidecar\n" not in yaml.safe_dump(document)


def test_the_component_adds_a_native_sidecar() -> None:
    """The agent's container stays as it is; the sidecar's is an init container that keeps running."""
    agent = next(each for each in built(HOME / "example") if each["kind"] == "Deployment")["spec"]["template"]["spec"]

    assert ["agent"] == [each["name"] for each in agent["containers"]]
    assert [("prompt-sidecar", "Always")] == [(each["name"], each["restartPolicy"]) for each in agent["initContainers"]]


def test_the_socket_is_in_place_of_loopback(tmp_path: Path) -> None:
    """Both components together."""
    beside = tmp_path / "kubernetes"
    shutil.copytree(HOME, beside, ignore=shutil.ignore_patterns("example", "standalone"))
    (beside / "agent.yaml").write_text((HOME / "example" / "agent.yaml").read_text("utf-8"), encoding="utf-8")
    (beside / "kustomization.yaml").write_text("resources: [agent.yaml]\ncomponents: [sidecar, socket]\n")
    spec = built(beside)[0]["spec"]["template"]["spec"]
    variables = {each["name"]: each.get("value") for each in spec["initContainers"][0]["env"]}

    assert ("", "0660") == (variables["PROMPT_SIDECAR_SERVER__LISTEN"], variables["PROMPT_SIDECAR_SERVER__SOCKET_MODE"])
    assert "0.0.0.0:7718" == variables["PROMPT_SIDECAR_SERVER__HEALTH_LISTEN"]
    assert 20000 == spec["securityContext"]["fsGroup"]
    assert {"prompt-sidecar-socket", "prompt-sidecar-tmp", "agent"} == {each["name"] for each in spec["volumes"]}


@pytest.mark.parametrize("container", list(own_containers()))
def test_the_container_is_hardened_bounded_and_probed(container: dict[str, Any]) -> None:
    """No root, no capabilities, nothing written, a memory limit, and probes that cost nothing."""
    security = container["securityContext"]

    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert {"drop": ["ALL"]} == security["capabilities"]
    assert "memory" in container["resources"]["limits"]
    assert {"/startupz", "/readyz", "/healthz"} == {
        container[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")
    }


@pytest.mark.parametrize("container", list(own_containers()))
def test_the_container_sets_settings_that_exist(container: dict[str, Any]) -> None:
    """A variable that names no setting keeps the sidecar from starting; each value is one that is accepted."""
    known = {variable(name): setting for name, setting in SETTINGS.items()}

    others = {each["name"] for each in container["env"]} - set(known)
    assert {RESOURCE} == {name for name in others if not name.startswith("K8S_")}
    for each in container["env"]:
        if "value" in each and each["name"] in known:
            known[each["name"]].kind.read(each["value"])


@pytest.mark.parametrize("container", list(own_containers()))
def test_the_container_says_who_it_is(container: dict[str, Any]) -> None:
    """By attributes of its resource that the Fleet dashboard groups by, which the cluster fills in."""
    given = {each["name"]: each for each in container["env"]}
    names = list(given)
    attributes = dict(part.split("=") for part in given[RESOURCE]["value"].split(","))
    wanted = {label: name for name, label in GROUPINGS if label.startswith("k8s_")}

    assert set(wanted) <= {name.replace(".", "_") for name in attributes}
    assert "$(K8S_POD_UID)" == attributes["service.instance.id"]
    for value in attributes.values():
        name = value.removeprefix("$(").removesuffix(")")
        assert given[name]["valueFrom"]["fieldRef"]["fieldPath"].startswith(("metadata.", "spec."))
        assert names.index(name) < names.index(RESOURCE), "Kubernetes expands only what stands before"


def test_rules_and_boards_are_those_of_the_repository() -> None:
    """The operator's rules are the files of rules; every board is a ConfigMap."""
    rule = documents(ROOT / "dashboards" / "kubernetes" / "prometheus-rule.yaml")[0]
    groups = [
        group
        for name in ("recorded.yaml", "alerts.yaml")
        for group in documents(ROOT / "dashboards" / "rules" / name)[0]["groups"]
    ]
    boards = documents(ROOT / "dashboards" / "kustomization.yaml")[0]["configMapGenerator"]

    assert groups == rule["spec"]["groups"]
    assert {path.name for path in (ROOT / "dashboards").glob("*.json")} == {each["files"][0] for each in boards}


def test_the_monitor_scrapes_what_the_pods_mark() -> None:
    """Label and port are those of the pods, the job is the one that rules ask for."""
    monitor = documents(ROOT / "dashboards" / "kubernetes" / "pod-monitor.yaml")[0]["spec"]
    deployment = next(
        each for each in documents(HOME / "standalone" / "deployment.yaml") if each["kind"] == "Deployment"
    )
    template = deployment["spec"]["template"]
    ports = {each["name"] for each in template["spec"]["containers"][0]["ports"]}

    assert monitor["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert {each["port"] for each in monitor["podMetricsEndpoints"]} <= ports
    assert {"targetLabel": "job", "replacement": "prompt-sidecar"} in monitor["podMetricsEndpoints"][0]["relabelings"]


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    """By systemd's own check, with programs that exist here."""
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("no systemd-analyze: the package systemd is not installed")
    text = (ROOT / "deploy" / "systemd" / "prompt-sidecar.service").read_text("utf-8")
    unit = tmp_path / "prompt-sidecar.service"
    unit.write_text(text.replace("/opt/prompt-sidecar/bin/prompt-sidecar", "/bin/true"), encoding="utf-8")
    done = subprocess.run([verify, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stderr)
