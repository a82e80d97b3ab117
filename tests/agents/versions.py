"""Which versions of packages a row's environment has: the pinned ones, and how the newest are had."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import uv

from tests.integrations.environments import CACHE, NPM, REQUIREMENTS, npm_environment
from tests.lab.harness.environments import Environment, Unavailable, environment, first_line

NEWEST: Final = CACHE.parent / "agents-newest"
"""The folder of the newest versions' pins and environments."""
SECONDS: Final = 300.0
"""Patience with a registry."""


def pinned(name: str, newest: bool = False) -> Mapping[str, str]:
    """Return the versions in an environment's pins."""
    if name in NPM:
        folder = NEWEST / "packages" / name if newest else NPM[name]
        found: dict[str, str] = json.loads((folder / "package.json").read_text(encoding="utf-8"))["dependencies"]
        return found
    requirements = NEWEST / "requirements" if newest else REQUIREMENTS
    return dict(re.findall(r"(?m)^([\w.-]+)==([\w.]+)", (requirements / f"{name}.txt").read_text(encoding="utf-8")))


@functools.cache
def made(name: str, newest: bool = False) -> Environment:
    """Return an environment of this name, made if it is not there.

    Raises:
        Unavailable: it cannot be installed.
    """
    if not newest:
        return npm_environment(name) if name in NPM else environment(name, CACHE, REQUIREMENTS)
    if name in NPM:
        return npm_environment(name, NEWEST, _newest_packages(name))
    return environment(name, NEWEST, _newest_requirements(name))


def _newest_requirements(name: str) -> Path:
    """Pin the newest versions that an environment's requirements allow; return the folder of the pins."""
    folder = NEWEST / "requirements"
    folder.mkdir(parents=True, exist_ok=True)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    words = ["--python-version", version, "--generate-hashes", "--no-header", "--no-annotate", "--quiet", "--upgrade"]
    _output_of([uv.find_uv_bin(), "pip", "compile", str(REQUIREMENTS / f"{name}.in"), *words,
           "--output-file", str(folder / f"{name}.txt")])  # fmt: skip
    return folder


def _newest_packages(name: str) -> Path:
    """Write a `package.json` with the newest version of each package; return its folder."""
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is not on the PATH")
    folder = NEWEST / "packages" / name
    folder.mkdir(parents=True, exist_ok=True)
    package = json.loads((NPM[name] / "package.json").read_text(encoding="utf-8"))
    package["dependencies"] = {each: _output_of([npm, "view", each, "version"]) for each in package["dependencies"]}
    (folder / "package.json").write_text(json.dumps(package, indent=2), encoding="utf-8")
    return folder


def _output_of(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"the registry took more than {SECONDS:.0f} s") from None
    if done.returncode:
        raise Unavailable(f"the registry has no answer: {first_line(done.stderr)}")
    return done.stdout.strip()
