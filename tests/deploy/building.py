"""The image is built without a registry of images: its base is a Debian of the machine's mirror, under the base's name.

Packages come as files from the machine's pip, whatever index that uses: the build itself has none. All that is made
lies in one folder.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.markers import Marker

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
IMAGE = "prompt-sidecar"
TOOLS = ("buildah", "debootstrap", "unshare", "nsenter", "setpriv")
NAMESPACES = ("--mount", "--net", "--pid", "--ipc", "--uts")
PATIENCE = 1_200.0
"""Seconds after which a step of the build has failed."""


@dataclass(frozen=True, slots=True)
class Image:
    """A built image, unpacked."""

    root: Path
    """Its file system."""
    config: dict[str, Any]
    """What a container of it runs, and how; as Docker writes it."""
    base_bytes: int
    added_bytes: int
    """What its layers add to the base's, unpacked."""


def need() -> None:
    """Skip the test where the image cannot be built."""
    if reason := _lacking():
        pytest.skip(reason)


def _lacking() -> str:
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"{', '.join(missing)} missing: .ci/install-image-tools installs what building the image needs"
    if os.geteuid():
        return "building the image needs root"
    if subprocess.run(["unshare", *NAMESPACES, "--fork", "true"], capture_output=True, check=False).returncode:
        return "building the image needs namespaces, which this machine does not give"
    release = platform.freedesktop_os_release()
    if release.get("ID") != "debian" or "VERSION_CODENAME" not in release:
        return "the image's base is made on a Debian that is released"
    return ""


def built(folder: Path) -> Image:
    """Build the image in an empty folder. Raises CalledProcessError; what a step said is in the test's output."""
    base = _base(folder / "base")
    version = _run("chroot", base, "python3", "-c", "import platform; print(platform.python_version())").strip()
    if version.rpartition(".")[0] != platform.python_version().rpartition(".")[0]:
        pytest.skip(f"the image's base has Python {version}, for which these tests' Python cannot choose packages")
    wheels = _wheels(folder / "wheels", version)
    configuration = folder / "pip.conf"
    configuration.write_text("[global]\nno-index = true\nfind-links = /wheels\n")

    store = ("--storage-driver", "vfs", "--root", folder / "store", "--runroot", folder / "run")
    buildah = partial(_run, "buildah", *store)
    container = buildah("from", "scratch").strip()
    buildah("copy", "--quiet", container, base, "/")
    name = _base_name()
    buildah("commit", "--quiet", container, name)
    buildah("rm", container)
    buildah(
        *("build", "--isolation", "chroot", "--pull-never", "--network", "host", "--format", "docker"),
        *("--layers=false", "--volume", f"{wheels}:/wheels:ro", "--volume", f"{configuration}:/etc/pip.conf:ro"),
        *("--file", DEPLOY / "Dockerfile", "--ignorefile", DEPLOY / "Dockerfile.dockerignore", "--tag", IMAGE, ROOT),
    )
    inspected = json.loads(buildah("inspect", "--type", "image", IMAGE))
    sizes = [layer["size"] for layer in json.loads(inspected["Manifest"])["layers"]]
    held = len(json.loads(json.loads(buildah("inspect", "--type", "image", name))["Manifest"])["layers"])
    root = Path(buildah("mount", buildah("from", "--pull-never", IMAGE).strip()).strip())
    return Image(root, inspected["Docker"]["config"], sum(sizes[:held]), sum(sizes[held:]))


def _base_name() -> str:
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    return next(line.split()[1] for line in lines if line.startswith("FROM "))


def _base(folder: Path) -> Path:
    """Unpack a small Debian with Python, of the machine's release and from its own mirror."""
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    targets = _run("apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages")
    mirrors = [line.split()[2] for line in targets.splitlines() if line.split()[:2] == [suite, "main"]]
    assert mirrors, f"apt has no source for {suite}"
    proxy = _run("apt-config", "dump", "--format", "%v%n", "Acquire::http::Proxy").strip()
    packages = "python3,python3-venv,python-is-python3"
    options = ("--variant=minbase", f"--include={packages}", suite, folder, mirrors[0])
    _run("debootstrap", *options, **({"http_proxy": proxy} if proxy else {}))
    _run("chroot", folder, "apt-get", "clean")
    return folder


def _wheels(folder: Path, version: str) -> Path:
    """Fetch the files that the image installs, each held against its hash.

    `version` is the Python of the image's base. It may be another patch release than that of the tests, and a
    package may be needed by that alone.
    """
    folder.mkdir()
    files: list[str | Path] = []
    for path in sorted(DEPLOY.glob("requirements/*.txt")):
        mine = folder.with_name(path.name)
        mine.write_text(_MARKER.sub(partial(_as_of, version), path.read_text(encoding="utf-8")), encoding="utf-8")
        files += ("--requirement", mine)
    options = ("--only-binary", ":all:", "--require-hashes", "--disable-pip-version-check", "--dest", folder)
    _run(sys.executable, "-m", "pip", "download", "--quiet", *options, *files)
    return folder


_MARKER: Final = re.compile(r"(?m) ; ([^\\\n]+?)(?= \\$)")
"""A requirement's marker, up to the backslash before its hashes."""


def _as_of(version: str, marker: re.Match[str]) -> str:
    """No marker where it holds for that Python, else the marker as it is."""
    return "" if Marker(marker[1]).evaluate({"python_full_version": version}) else marker[0]


def _run(*command: str | Path, **more: str) -> str:
    """Run a step and return what it writes; what it says is printed, for a test that fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        env=os.environ | more,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        print("$", *words)
        print(done.stdout[-4_000:], done.stderr[-8_000:], sep="\n")
        done.check_returncode()
    return done.stdout
