"""Every Envoy file has the bounds, retries and times of the one table, and the real Envoy accepts each."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.doors.envoy.resilience import AT_ONCE, BREAKERS, EXT_PROC, GRPC, HTTP, PROVIDER
from tests.doors.envoy.through import CONFIGURATION, GATEWAY, REPLICAS, ROOT, chart_gateway, envoy_binary
from tests.real.needing import need

ISTIO: Final = CONFIGURATION.parent / "istio.yaml"
ENVOY_GATEWAY: Final = CONFIGURATION.parent / "envoy-gateway.yaml"
PLAIN: Final = {"envoy": CONFIGURATION, "replicas": REPLICAS, "chart": GATEWAY}
"""Files for Envoy itself."""
RETRIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "prompt-sidecars": GRPC,
    "grpc": GRPC,
    "http": HTTP,
    "openai": PROVIDER,
    "anthropic": PROVIDER,
}
"""What is repeated, by the cluster that a route leads to."""
_ENVOYS: Final = re.compile(
    r"load_assignment|circuit_breakers|retry_policy|gateway\.envoyproxy\.io|networking\.istio\.io|lb_policy"
)
"""What a configuration of Envoy's clusters or routes has."""
_BLOCKS: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_SUFFIXES: Final = {".yaml", ".yml", ".json", ".md", ".toml", ".tpl", ".txt"}


def whole(name: str) -> dict[str, Any]:
    """Return one of the files for Envoy itself."""
    if "chart" == name:
        return chart_gateway()
    found: dict[str, Any] = yaml.safe_load(PLAIN[name].read_text("utf-8"))
    return found


def managers(settings: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a configuration's HTTP connection managers."""
    for listener in settings["static_resources"]["listeners"]:
        yield listener["filter_chains"][0]["filters"][0]["typed_config"]


def routes(settings: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a configuration's routes that lead to a cluster."""
    for manager in managers(settings):
        for host in manager["route_config"]["virtual_hosts"]:
            yield from (route["route"] for route in host["routes"] if "route" in route)


def configuration_of(path: Path) -> str:
    """Return a file's text; of a page only what stands in its blocks of code."""
    text = path.read_text("utf-8")
    return "\n".join(_BLOCKS.findall(text)) if ".md" == path.suffix else text


def test_no_file_is_left_out() -> None:
    """Whatever in the repository is written for Envoy is one of the files that these tests hold against the table."""
    folders = (ROOT / "deploy", ROOT / "docs", ROOT / "dashboards", ROOT / "tests")
    paths = (path for folder in folders for path in folder.rglob("*") if path.suffix in _SUFFIXES and path.is_file())
    paths = (path for path in paths if not {"node_modules", "_build"} & {*path.parts})
    found = {path for path in (*paths, ROOT / "README.md") if _ENVOYS.search(configuration_of(path))}

    assert {*PLAIN.values(), ISTIO, ENVOY_GATEWAY} == found


@pytest.mark.parametrize("name", PLAIN)
def test_every_cluster_has_the_bounds(name: str) -> None:
    """Of Envoy's own, 1,024 requests and three retries at a time, calls of a killed sidecar would be lost."""
    clusters = whole(name)["static_resources"]["clusters"]

    assert clusters
    for cluster in clusters:
        assert [BREAKERS] == cluster["circuit_breakers"]["thresholds"], cluster["name"]
        assert "connect_timeout" in cluster, cluster["name"]


@pytest.mark.parametrize("name", PLAIN)
def test_every_route_repeats_what_it_may(name: str) -> None:
    """Calls to sidecars whatever becomes of them, calls of models only unseen; no time ends what takes long."""
    found = [*routes(whole(name))]

    assert found
    for route in found:
        assert dict(RETRIES[route["cluster"]]) == route["retry_policy"], route["cluster"]
        assert "0s" == route["timeout"], route["cluster"]


def test_a_stream_to_the_sidecar_begins_again() -> None:
    """In the filter of plain Envoy and in Istio's patch."""
    (manager,) = managers(whole("envoy"))
    istio = next(yaml.safe_load_all(ISTIO.read_text("utf-8")))["spec"]["configPatches"][0]["patch"]["value"]
    filters = (manager["http_filters"][0]["typed_config"], istio["typed_config"])

    assert [dict(EXT_PROC)] * 2 == [each["grpc_service"]["retry_policy"] for each in filters]


def test_istio_bounds_the_sidecars_host() -> None:
    """By a DestinationRule for the host that the patch calls."""
    patched, rule = yaml.safe_load_all(ISTIO.read_text("utf-8"))
    cluster = json.dumps(patched["spec"]["configPatches"][0])
    pool = rule["spec"]["trafficPolicy"]["connectionPool"]

    assert f"||{rule['spec']['host']}" in cluster
    assert AT_ONCE == pool["tcp"]["maxConnections"]
    assert {AT_ONCE} == {*pool["http"].values()}


def test_envoy_gateway_bounds_and_repeats() -> None:
    """The sidecar's streams and the calls of models, in its own words."""
    documents = {each["kind"]: each["spec"] for each in yaml.safe_load_all(ENVOY_GATEWAY.read_text("utf-8"))}
    streams = documents["EnvoyExtensionPolicy"]["extProc"][0]["backendSettings"]
    models = documents["BackendTrafficPolicy"]

    for each, policy in ((streams, EXT_PROC), (models, PROVIDER)):
        assert {AT_ONCE} == {*each["circuitBreaker"].values()}
        assert 4 == len(each["circuitBreaker"])
        assert policy["num_retries"] == each["retry"]["numRetries"]
        # It has no word for reset-before-request.
        triggers = [each for each in policy["retry_on"].split(",") if "reset-before-request" != each]
        assert triggers == each["retry"]["retryOn"]["triggers"]
    assert {"http": {"requestTimeout": "0s"}} == models["timeout"]
    assert "timeout" not in models["retry"].get("perRetry", {})


@pytest.mark.parametrize("name", PLAIN)
def test_envoy_accepts_it(name: str, tmp_path: Path) -> None:
    """As it stands in the repository."""
    file = tmp_path / "envoy.json"
    file.write_text(json.dumps(whole(name)))
    command = [str(need(envoy_binary)), "--mode", "validate", "--disable-hot-restart", "--config-path", str(file)]
    validated = subprocess.run(command, capture_output=True, text=True, check=False)

    assert 0 == validated.returncode, validated.stderr
