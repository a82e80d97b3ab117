"""An environment for each framework, with its pinned versions: `python -m tests.integrations.environments` makes them.

They disagree with one another about versions, and agents have them without anything of the server's. Agents that are
npm packages have one together, or one of their own. `.ci/run` makes them before the tests;
where one is missing, its tests are skipped.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.lab.harness.components import ROOT
from tests.lab.harness.environments import Environment, Unavailable, environment, first_line, planned
from tests.real.needing import lack

REQUIREMENTS: Final = Path(__file__).parent / "requirements"
AGENTS: Final = "agents"
"""The name of the environment of Claude Code, Codex and OpenCode."""
NPM: Final[Mapping[str, Path]] = {
    AGENTS: Path(__file__).parent / AGENTS,
    "ai_sdk": Path(__file__).parent / "ai_sdk",
    **{
        name: Path(__file__).parents[1] / "agents" / "packages" / name for name in ("gemini-cli", "mastra", "qwen-code")
    },
}
"""The folders with the pins of environments of npm packages."""
IN_CI: Final = (AGENTS, "ai_sdk")
"""Those of them that CI makes; `make agents` makes the others."""
NOT_IN_CI: Final = frozenset({"adk", "agent-framework", "autogen", "crewai", "llama-index", "smolagents", "strands"})
"""Environments of Python packages that `make agents` alone needs, and makes."""
NPM_SECONDS: Final = 600.0
"""Patience with an installation: of `AGENTS` it is 1 GB, in a minute on a quiet machine."""
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
    return packages(AGENTS)


def packages(name: str) -> Path:
    """Return the folder of npm packages of this name, as `agents` does."""
    try:
        return npm_environment(name).folder
    except Unavailable as error:
        lack(f"needs the environment {name}: {error}")


def npm_environment(name: str, cache: Path = CACHE, source: Path | None = None) -> Environment:
    """Return an environment of npm packages, made if it is not there, by one process at a time.

    Args:
        name: one of `NPM`.
        cache: the folder that it is kept in.
        source: the folder with its `package.json`, and mostly its pins; None: that of `NPM`.

    Raises:
        Unavailable: it cannot be installed.
    """
    source = NPM[name] if source is None else source
    pins = source / "npm-shrinkwrap.json"
    wanted = (pins if pins.is_file() else source / "package.json").read_bytes()
    made = Environment(cache / f"{name}-{hashlib.sha256(wanted).hexdigest()[:12]}")
    if not made.is_ready:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.is_ready:
                _install(source, made.folder)
    return made


def _install(source: Path, folder: Path) -> None:
    """Install npm packages. Their own install scripts are not run.

    Not by `npm ci`: it wants pins for all platforms, and not every registry has the packages of all.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is not on the PATH")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("node_modules"))
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-save"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=NPM_SECONDS, check=False
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Unavailable(f"the installation took more than {NPM_SECONDS:.0f} s") from None
    if done.returncode:
        raise Unavailable(f"the installation failed: {first_line(done.stderr)}")
    (folder / "ready").touch()


def _is_too_new(name: str) -> bool:
    return name in BEFORE and sys.version_info >= BEFORE[name]


def _too_new(name: str) -> str:
    return f"{name} needs a Python before {'.'.join(map(str, BEFORE[name]))}"


def main(names: list[str]) -> int:
    """Make the environments of these names, or all that CI needs; return the exit status."""
    missing = 0
    of_python = {path.stem for path in REQUIREMENTS.glob("*.txt")}
    for name in names or sorted({*IN_CI, *of_python} - NOT_IN_CI):
        if _is_too_new(name):
            print(f"{name}: {_too_new(name)}")
            continue
        try:
            made = npm_environment(name) if name in NPM else environment(name, CACHE, REQUIREMENTS)
            print(f"{name}: {made.folder.relative_to(ROOT) if made.folder.is_relative_to(ROOT) else made.folder}")
        except Unavailable as error:
            missing = 1
            print(f"{name}: {error}", file=sys.stderr)
    return missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
