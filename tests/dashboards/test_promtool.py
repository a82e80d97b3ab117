"""The script that finds promtool takes the one on the PATH, and where there is none and none can be had it says so."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.dashboards.tools import ROOT

SCRIPT = ROOT / ".ci" / "promtool"
NEEDED = ("bash", "dirname", "env")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A checkout that holds the script only, and a folder `bin` with what it needs to run at all."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(SCRIPT, tmp_path / ".ci" / "promtool")
    (tmp_path / "bin").mkdir()
    for name in NEEDED:
        found = shutil.which(name)
        assert found, name
        (tmp_path / "bin" / name).symlink_to(found)
    return tmp_path


def _run(home: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PATH": str(home / "bin")}
    return subprocess.run(
        [home / ".ci" / "promtool"], env=environment, capture_output=True, text=True, check=False, cwd=home
    )


def test_the_one_on_the_path_is_taken(home: Path) -> None:
    """Nothing is fetched then."""
    tool = home / "bin" / "promtool"
    tool.write_text("#!/bin/sh\n", encoding="utf-8")
    tool.chmod(0o755)

    assert (0, f"{tool}\n", "") == ((done := _run(home)).returncode, done.stdout, done.stderr)
    assert not (home / ".cache").exists()


def test_without_debian_it_says_what_to_install(home: Path) -> None:
    """And prints no path."""
    done = _run(home)

    assert (1, "") == (done.returncode, done.stdout)
    assert [
        "promtool: not on the PATH, and this is no Debian to get it from.",
        "Install Prometheus, which brings it, and see that promtool is on the PATH.",
    ] == done.stderr.splitlines()
