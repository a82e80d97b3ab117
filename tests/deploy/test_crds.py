"""Manifests of kinds that others define, held against those kinds' own schemas, which npm packages carry.

The packages are made from the sources of Envoy Gateway, the Gateway API, Istio and the Prometheus operator. They hold
types, by which TypeScript's compiler finds members that do not exist, and validators for what types cannot say.
agentgateway's kinds are in none; `tests/doors/envoy/test_manifests.py` looks at their shape.
"""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.integrations.npm import PATIENCE, installed

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = (ROOT / "deploy", ROOT / "dashboards" / "kubernetes")
PACKAGES: Final = {
    "gateway.envoyproxy.io": "@kubernetes-models/envoy-gateway",
    "gateway.networking.k8s.io": "@kubernetes-models/gateway-api",
    "monitoring.coreos.com": "@kubernetes-models/prometheus-operator",
    "networking.istio.io": "@kubernetes-models/istio",
}
"""Packages by API group."""
WITHOUT: Final = {"agentgateway.dev", "kustomize.config.k8s.io"}
"""Groups of which no package is known, and one whose files `kubectl kustomize` reads."""
KUBERNETES: Final = {"apps", "autoscaling", "networking.k8s.io", "policy", "batch", "rbac.authorization.k8s.io"}
"""Groups of Kubernetes' own, in addition to the one without a name."""

Manifest = dict[str, Any]


def manifests() -> Iterator[tuple[str, Manifest]]:
    """Yield every manifest of the repository that has an API group, and its file."""
    for path in sorted(path for folder in FOLDERS for path in folder.rglob("*.yaml")):
        if "templates" == path.parent.name:  # Helm's; test_chart.py has what they become
            continue
        for each in yaml.safe_load_all(path.read_text("utf-8")):
            if isinstance(each, dict) and "/" in str(each.get("apiVersion")):
                yield str(path.relative_to(ROOT)), each


def group(manifest: Manifest) -> str:
    """Return a manifest's API group."""
    found: str = manifest["apiVersion"].partition("/")[0]
    return found


def foreign() -> list[Manifest]:
    """Return the manifests whose schemas the packages have."""
    return [each for _, each in manifests() if group(each) in PACKAGES]


def of_kind(kind: str) -> Manifest:
    """Return a copy of the first manifest of a kind."""
    return copy.deepcopy(next(each for each in foreign() if each["kind"] == kind))


@pytest.fixture
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the packages are installed."""
    return installed(Path(__file__).parent / "crds", tmp_path_factory)


def refusals(folder: Path, scratch: Path, checked: Sequence[Manifest]) -> str:
    """Return what the compiler and the validators say against manifests; empty: nothing."""
    lines = []
    for number, each in enumerate(checked):
        kind, module = each["kind"], f"{PACKAGES[group(each)]}/{each['apiVersion']}/{each['kind']}"
        lines.append(f'import {{ {kind} as K{number}, type I{kind} as I{number} }} from "{module}";')
        lines.append(f"const m{number}: I{number} = {json.dumps(each)};")
        lines.append(
            f"try {{ new K{number}(m{number}).validate(); }} catch (error) {{ console.log(`{kind}: ${{error}}`); }}"
        )
    home = folder / scratch.name
    home.mkdir()
    (home / "manifests.mts").write_text("\n".join(lines), "utf-8")
    options = ["--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom", "--skipLibCheck"]
    compiler = folder / "node_modules" / "typescript" / "bin" / "tsc"
    commands = (["node", str(compiler), *options, "manifests.mts"], ["node", "manifests.mjs"])
    output = ""
    for command in commands:
        done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=PATIENCE, check=False)
        output += done.stdout + done.stderr
    return output


def test_no_kind_is_left_out() -> None:
    """Each group is one of Kubernetes', one of which the packages have schemas, or is known to have none."""
    assert set() == {group(each) for _, each in manifests()} - KUBERNETES - set(PACKAGES) - WITHOUT
    assert set(PACKAGES) == {group(each) for each in foreign()}


def test_manifests_fit_their_schemas(packages: Path, tmp_path: Path) -> None:
    """All of them, with no member that their kinds do not have."""
    assert "" == refusals(packages, tmp_path, foreign())


def _misspelt(manifest: Manifest) -> None:
    manifest["spec"]["extProc"][0]["failOpem"] = True


def _mistyped(manifest: Manifest) -> None:
    manifest["spec"]["extProc"][0]["failOpen"] = "yes"


def _malformed(manifest: Manifest) -> None:
    manifest["spec"]["extProc"][0]["messageTimeout"] = "five seconds"


def _unknown_patch(manifest: Manifest) -> None:
    manifest["spec"]["configPatches"][0]["applyTo"] = "HTTP_FILTERS"


def _without_selector(manifest: Manifest) -> None:
    del manifest["spec"]["selector"]


def _misspelt_rule(manifest: Manifest) -> None:
    manifest["spec"]["groups"][0]["rules"][0]["exp"] = "up"


def _without_host(manifest: Manifest) -> None:
    del manifest["spec"]["validation"]["hostname"]


@pytest.mark.parametrize(
    ("kind", "spoil", "named"),
    [
        ("EnvoyExtensionPolicy", _misspelt, "failOpem"),
        ("EnvoyExtensionPolicy", _mistyped, "boolean"),
        ("EnvoyExtensionPolicy", _malformed, "messageTimeout"),
        ("EnvoyFilter", _unknown_patch, "HTTP_FILTERS"),
        ("BackendTLSPolicy", _without_host, "hostname"),
        ("PodMonitor", _without_selector, "selector"),
        ("PrometheusRule", _misspelt_rule, "'\"exp\"'"),
    ],
)
def test_a_fault_is_found(
    packages: Path, tmp_path: Path, kind: str, spoil: Callable[[Manifest], None], named: str
) -> None:
    """The check sees what it is for."""
    manifest = of_kind(kind)
    spoil(manifest)

    assert named in refusals(packages, tmp_path, [manifest])
