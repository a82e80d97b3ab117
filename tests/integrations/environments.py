"""An environment for each framework, with its pinned versions: `python -m tests.integrations.environments` makes them.

They disagree with one another about versions, and agents have them without anything of the server's. Agents that are
npm packages have one together. `.ci/run` makes them before the tests; where one is missing, its tests are skipped.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.lab.harness.components import ROOT
from tests.lab.harness.environments import Environment, Unavailable, environment, first_line, planned
from tests.real.needing import lack

REQUIREMENTS: Final = Path(__file__).parent / "requirements"
AGENTS: Final = "agents"
"""The name of the environment of Claude Code, Codex and OpenCode."""
AGENTS_PINS: Final = Path(__file__).parent / AGENTS
AGENTS_SECONDS: Final = 600.0
"""Patience with their installation: 1 GB, in a minute on a quiet machine."""
BEFORE: Final = {"aider": (3, 13)}
"""Versions of Python that a framework does not run on yet; its tests are skipped from there on."""
CACHE: Final = ROOT / ".cache" / "integrations"
"""Not in the virtual environment, which is made again whenever a pin changes."""


def ready(name: str) -> Environment:
    """Return a framework's environment; without it the test is skipped, and fails in CI."""
    if _is_too_new(name):
        pytest.skip(_too_new(name))
    made = planned(REQUIREMENTS / f"{name}.txt", CACHE)
    if not made.is_ready:
        lack(f"needs the environment {name}: python -m tests.integrations.environments {name}")
    return made


def agents() -> Path:
    """Return the folder with the agents' `node_modules`; the first test that asks for it has them installed.

    Without npm, or where the registry does not answer, the test is skipped, and fails in CI.
    """
    try:
        return _agents_installed().folder
    except Unavailable as error:
        lack(f"needs the environment {AGENTS}: {error}")


def _agents_folder() -> Path:
    pins = (AGENTS_PINS / "npm-shrinkwrap.json").read_bytes()
    return CACHE / f"{AGENTS}-{hashlib.sha256(pins).hexdigest()[:12]}"


def _agents_installed() -> Environment:
    """Return the agents' environment, made if it is not there, by one process at a time.

    Raises:
        Unavailable: it cannot be installed.
    """
    made = Environment(_agents_folder())
    if not made.is_ready:
        CACHE.mkdir(parents=True, exist_ok=True)
        with (CACHE / f"{AGENTS}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.is_ready:
                _install_agents(made.folder)
    return made


def _install_agents(folder: Path) -> None:
    """Install the agents. Their own install scripts are not run.

    Not by `npm ci`: it wants pins for all platforms, and not every registry has the packages of all.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is not on the PATH")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(AGENTS_PINS, folder, ignore=shutil.ignore_patterns("node_modules"))
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-save"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=AGENTS_SECONDS, check=False
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Unavailable(f"the installation took more than {AGENTS_SECONDS:.0f} s") from None
    if done.returncode:
        raise Unavailable(f"the installation failed: {first_line(done.stderr)}")
    (folder / "ready").touch()


def _is_too_new(name: str) -> bool:
    return name in BEFORE and sys.version_info >= BEFORE[name]


def _too_new(name: str) -> str:
    return f"{name} needs a Python before {'.'.join(map(str, BEFORE[name]))}"


def main(names: list[str]) -> int:
    """Make the environments of these names, or all; return the exit status."""
    missing = 0
    for name in names or sorted([AGENTS, *(path.stem for path in REQUIREMENTS.glob("*.txt"))]):
        if _is_too_new(name):
            print(f"{name}: {_too_new(name)}")
            continue
        try:
            made = _agents_installed() if name == AGENTS else environment(name, CACHE, REQUIREMENTS)
            print(f"{name}: {made.folder.relative_to(ROOT) if made.folder.is_relative_to(ROOT) else made.folder}")
        except Unavailable as error:
            missing = 1
            print(f"{name}: {error}", file=sys.stderr)
    return missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
