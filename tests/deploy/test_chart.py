"""The Helm chart, installed by Helm itself into an API of Kubernetes that only keeps what it is sent.

What would run in the pods runs here as processes with the environment that the chart gives them: the sidecar, and the
gateway's Envoy in front of two of them. No cluster has run it.
"""

from __future__ import annotations

import base64
import http.client
import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from prompt_sidecar.config.settings import SETTINGS, variable
from tests.cli.running import PATIENCE, Program, program
from tests.client.provider import Says
from tests.deploy.chart import STANDALONE, rendered
from tests.deploy.helm import CHART, Refused, Release, install
from tests.deploy.test_kubernetes import FOREIGN, RESOURCE, VERSIONS
from tests.doors.envoy.through import Envoy, before_pods, chart_gateway, envoy, envoy_binary
from tests.doors.http.upstream import Upstream
from tests.lab.harness.components import ROOT
from tests.real.needing import need

EVERYTHING: Final[Mapping[str, Any]] = {
    "doors": {"envoy": {"enabled": True}},
    "gateway": {"enabled": True},
    "store": {"valkey": {"enabled": True}},
    "admin": {"enabled": True, "tokensSecret": "people"},
    "settings": {"policy.condense": "safe", "limits.stash_bytes": "128MiB", "guard.fail_closed": True},
    "monitoring": {
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True},
    },
}
_SECRET: Final = "/api/v1/namespaces/default/secrets/prompt-sidecar-"


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The chart as it is."""
    return install({}, tmp_path_factory.mktemp("default"))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The chart with all that it can add."""
    return install(EVERYTHING, tmp_path_factory.mktemp("everything"))


@pytest.fixture(params=["default", "everything"])
def release(request: pytest.FixtureRequest) -> Release:
    """Each of them."""
    made: Release = request.getfixturevalue(request.param)
    return made


def found(release: Release, kind: str, name: str = "prompt-sidecar") -> Mapping[str, Any]:
    """Return an object of a release."""
    return next(each for each in release.objects if (kind, name) == (each["kind"], each["metadata"]["name"]))


def container(release: Release) -> Mapping[str, Any]:
    """Return the sidecar's container."""
    (only,) = found(release, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def given(release: Release) -> Mapping[str, str]:
    """Return the settings that the chart gives, by name."""
    names = {variable(name): name for name in SETTINGS}
    return {
        names[each["name"]]: each["value"]
        for each in container(release)["env"]
        if each["name"] in names and "value" in each
    }


def test_the_kustomization_is_the_charts() -> None:
    """deploy/kubernetes/standalone is what `make chart` makes of it."""
    assert {name: (STANDALONE / name).read_text("utf-8") for name in rendered()} == rendered()


def test_versions_are_the_projects() -> None:
    """Chart, image and package have one version."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    assert (project["version"], project["version"]) == (chart["version"], chart["appVersion"])


def test_objects_are_valid(release: Release) -> None:
    """Strictly, in two versions of Kubernetes; and no two have one name."""
    assert release.objects
    for each in release.objects:
        if each["apiVersion"] not in FOREIGN:
            for version in VERSIONS:
                kubernetes_validate.validate(each, version, strict=True)
    names = [(each["kind"], each["metadata"]["name"]) for each in release.objects]
    assert len(names) == len(set(names))


def test_settings_are_accepted(release: Release) -> None:
    """Each variable names a setting and has a value that the sidecar takes."""
    env = {each["name"] for each in container(release)["env"]}
    known = {variable(name) for name in SETTINGS}

    assert {RESOURCE} == {name for name in env - known if not name.startswith("K8S_")}
    for name, value in given(release).items():
        SETTINGS[name].kind.read(value)


def test_settings_of_the_user_reach_the_container(everything: Release) -> None:
    """By their names in docs/settings.md."""
    assert {"policy.condense": "safe", "limits.stash_bytes": "128MiB", "guard.fail_closed": "true"}.items() <= given(
        everything
    ).items()
    assert "valkey://prompt-sidecar-valkey:6379/0" == given(everything)["store.url"]


def test_every_container_is_hardened(release: Release) -> None:
    """The sidecar's, Envoy's and Valkey's: no root, nothing written, a limit of memory, a probe."""
    for each in release.objects:
        if "Deployment" == each["kind"]:
            spec = each["spec"]["template"]["spec"]
            assert spec["securityContext"]["runAsNonRoot"]
            assert spec["automountServiceAccountToken"] is False
            for one in spec["containers"]:
                assert one["securityContext"]["readOnlyRootFilesystem"], one["name"]
                assert {"drop": ["ALL"]} == one["securityContext"]["capabilities"]
                assert one["resources"]["limits"]["memory"]
                assert "readinessProbe" in one


def test_a_pod_ends_within_its_grace(release: Release) -> None:
    """The pause before SIGTERM and the sidecar's own time are less than what the kubelet gives."""
    spec = found(release, "Deployment")["spec"]["template"]["spec"]
    pause = int(container(release)["lifecycle"]["preStop"]["exec"]["command"][1])
    grace = max(SETTINGS[name].kind.read(given(release)[name]) for name in ("server.grace", "http.stream_grace"))

    assert pause + grace + 5 <= spec["terminationGracePeriodSeconds"]


def test_rules_and_boards_are_the_repositorys(everything: Release) -> None:
    """Those of dashboards/, by the link in the chart."""
    rule = yaml.safe_load((ROOT / "dashboards" / "kubernetes" / "prometheus-rule.yaml").read_text("utf-8"))
    boards = {path.name: path.read_text("utf-8") for path in (ROOT / "dashboards").glob("*.json")}
    maps = [
        each
        for each in everything.objects
        if "ConfigMap" == each["kind"] and "grafana_dashboard" in each["metadata"]["labels"]
    ]

    assert rule["spec"] == found(everything, "PrometheusRule")["spec"]
    assert boards == {name: text for each in maps for name, text in each["data"].items()}


def test_secrets_are_kept_at_an_upgrade(default: Release, tmp_path: Path) -> None:
    """A second rendering finds the key and the token of the first in the cluster, and draws no others."""
    kept = {each["metadata"]["name"]: each for each in default.objects if "Secret" == each["kind"]}
    again = install({}, tmp_path, {_SECRET + name.rpartition("-")[2]: each for name, each in kept.items()})
    drawn = yaml.safe_load_all(again.manifest)

    assert {"prompt-sidecar-key", "prompt-sidecar-tokens"} == set(kept)
    assert {name: each["data"] for name, each in kept.items()} == {
        each["metadata"]["name"]: each["data"] for each in drawn if each and "Secret" == each["kind"]
    }


def test_notes_say_where_and_with_what(default: Release) -> None:
    """Base URL, address, the label that the network policy asks for, and how to read the token."""
    assert "http://prompt-sidecar.default.svc:7780/v1" in default.notes
    assert "prompt-sidecar.default.svc:7717" in default.notes
    assert "prompt-sidecar.dev/client" in default.notes
    assert "get secret prompt-sidecar-tokens" in default.notes


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"door": {}}, "door"),
        ({"doors": {"http": {"enabled": "yes"}}}, "boolean"),
        ({"settings": {"Policy": 1}}, "Policy"),
        ({"doors": {name: {"enabled": False} for name in ("grpc", "http")}}, "no agent could reach"),
        ({"auth": {"tokens": {"create": False}}}, "nobody would be authenticated"),
        ({"auth": {"tls": {"clientCertificates": True}}}, "needs auth.tls.existingSecret"),
        ({"key": {"create": False}}, "pods need one key"),
        ({"store": {"url": "valkey://a:1", "valkey": {"enabled": True}}}, "two stores"),
        ({"store": {"url": "valkey://user:word@a:1"}}, "store"),
        ({"admin": {"enabled": True}}, "admin.tokensSecret"),
        ({"shutdown": {"terminationSeconds": 10}}, "at least preStopSeconds"),
        ({"gateway": {"enabled": True}, "auth": {"tls": {"existingSecret": "a"}}}, "without TLS"),
    ],
)
def test_values_that_cannot_work_are_refused(values: Mapping[str, Any], words: str, tmp_path: Path) -> None:
    """Before anything is installed, with what to set."""
    with pytest.raises(Refused, match=words):
        install(values, tmp_path)


@contextmanager
def running(release: Release, folder: Path, upstream: Upstream) -> Iterator[tuple[Program, int]]:
    """Run a pod's sidecar as the chart would, with ports and files of this machine; and the port of its HTTP door."""
    tokens = folder / "tokens"
    tokens.write_bytes(base64.b64decode(found(release, "Secret", "prompt-sidecar-tokens")["data"]["tokens"]))
    tokens.chmod(0o600)
    key = base64.b64decode(found(release, "Secret", "prompt-sidecar-key")["data"]["key"]).decode()
    address = f"http://127.0.0.1:{upstream.port}"
    values = dict(given(release)) | {
        "key": key,
        "server.tokens_file": str(tokens),
        "http.openai_upstream": address,
        "limits.default_window": "8000",
        "log.format": "text",
    }
    for name in ("server.listen", "http.listen", "server.health_listen", "telemetry.metrics_listen"):
        values[name] = "127.0.0.1:0"
    settings = {variable(name).removeprefix("PROMPT_SIDECAR_"): value for name, value in values.items()}
    with program(**settings) as server:
        port = int(server.wait_for(r"ready: .*http://127\.0\.0\.1:(\d+)")[1])
        server.keep_reading()
        yield server, port


def asked(port: int, token: str, run: str) -> tuple[int, Mapping[str, str]]:
    """Send a long prompt; return the status and the sidecar's headers."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": run}]
    for index in range(20):
        call = {"id": f"c{index}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        lines = "".join(f"line {line} of file {index}\n" for line in range(200))
        messages.append({"role": "tool", "tool_call_id": f"c{index}", "content": lines})
    body = json.dumps({"model": "unlisted", "messages": messages})
    headers = {
        "content-type": "application/json",
        "x-prompt-sidecar-token": token,
        "x-prompt-sidecar-run": run,
        "authorization": "Bearer sk-test",
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("POST", "/v1/chat/completions", body, headers)
    with connection.getresponse() as answer:
        answer.read()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}


def test_a_pods_sidecar_trims_over_http(default: Release, tmp_path: Path) -> None:
    """With the environment, the key and the token of the chart; without the token it refuses."""
    token = base64.b64decode(found(default, "Secret", "prompt-sidecar-tokens")["data"]["tokens"]).decode().strip()
    with Upstream(lambda _: Says("Done.")) as upstream, running(default, tmp_path, upstream) as (_, port):
        status, headers = asked(port, token.partition(":")[2], "one")
        assert (200, "true") == (status, headers["x-prompt-sidecar-fits"])
        assert int(headers["x-prompt-sidecar-tokens-after"]) < int(headers["x-prompt-sidecar-tokens-before"])
        assert 401 == asked(port, "another", "one")[0]


def gateway(release: Release, doors: list[int]) -> dict[str, Any]:
    """Return the gateway's Envoy configuration for HTTP, with pods at these ports of this machine."""
    whole: dict[str, Any] = yaml.safe_load(found(release, "ConfigMap", "prompt-sidecar-gateway")["data"]["envoy.yaml"])
    assert chart_gateway() == whole
    return before_pods(whole, doors)


def test_the_gateway_keeps_a_run_with_its_pod(everything: Release, tmp_path: Path) -> None:
    """A run's requests all go to one of two sidecars, both have runs; one that is killed is done without."""
    need(envoy_binary)
    plain = install({"gateway": {"enabled": True}}, tmp_path)
    token = base64.b64decode(found(plain, "Secret", "prompt-sidecar-tokens")["data"]["tokens"]).decode().strip()
    token = token.partition(":")[2]
    runs = [f"run-{number}" for number in range(12)]
    with ExitStack() as stack:
        upstreams = [stack.enter_context(Upstream(lambda _: Says("Done."))) for _ in range(2)]
        pods = []
        for number, upstream in enumerate(upstreams):
            folder = tmp_path / str(number)
            folder.mkdir()
            pods.append(stack.enter_context(running(plain, folder, upstream)))
        between: Envoy = stack.enter_context(envoy(tmp_path, gateway(everything, [port for _, port in pods])))
        for run in runs * 2:
            assert 200 == asked(between.port, token, run)[0]
        counts = [Counter(sent.body["messages"][0]["content"] for sent in each.sent) for each in upstreams]
        assert [{2}, {2}] == [set(each.values()) for each in counts]
        assert set(runs) == {*counts[0], *counts[1]}
        pods[0][0].process.kill()
        pods[0][0].process.wait(PATIENCE)
        assert {200} == {asked(between.port, token, run)[0] for run in runs}
