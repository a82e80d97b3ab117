"""Packages for agents in Node, installed once for all tests of a session."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

PATIENCE: Final = 300.0
"""Seconds for an installation; it takes ten."""
_NO_REGISTRY: Final = re.compile(r"\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|ETIMEDOUT)\b")


def installed(source: Path, factory: pytest.TempPathFactory) -> Path:
    """Return a copy of a folder with its packages beside it; the first that asks installs them.

    Skips the test where there is no Node, or, on a developer's machine, where the registry does not answer.
    """
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs node and npm: .ci/install-clients")
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    name = f"npm-{source.parent.name}-{source.name}"
    folder, output = base / name, base / f"{name}.log"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not output.exists():
            shutil.copytree(source, folder, ignore=shutil.ignore_patterns("node_modules"))
            command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            ended = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
            )  # fmt: skip
            output.write_text(f"{ended.returncode}\n{ended.stdout}{ended.stderr}")
    code, _, printed = output.read_text().partition("\n")
    if code != "0" and not os.environ.get("CI") and _NO_REGISTRY.search(printed):
        pytest.skip("the npm registry does not answer")
    assert "0" == code, printed
    return folder
