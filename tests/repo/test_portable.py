"""`.ci/check-portable.py` finds registry hosts and machine paths, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "check-portable.py"

# Put together here, so that this file holds none of them.
HOST = ".".join(["files", "pythonhosted", "org"])
HOME = "/".join(["", "home", "somebody", "src"])
CHECKOUT = "/".join(["", "work", "main", "x.py"])


def check(path: Path) -> tuple[int, str]:
    """Run the script on one file; return its exit status and what it printed."""
    result = subprocess.run([sys.executable, str(SCRIPT), str(path)], capture_output=True, text=True, check=True)
    return result.returncode, result.stdout


def check_failing(path: Path) -> str:
    """Run the script on one file that it must reject; return what it printed."""
    with pytest.raises(subprocess.CalledProcessError) as caught:
        check(path)
    assert 1 == caught.value.returncode
    return str(caught.value.stdout)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (f"# from https://{HOST}/packages/x", "a registry's host"),
        ("--extra" + "-index-url https://example.com/simple", "a registry option"),
        (f"DATA = '{HOME}/data'", "a machine's path"),
        (f"see {CHECKOUT}", "a machine's path"),
    ],
)
def test_what_ties_a_file_to_a_machine_is_found(tmp_path: Path, line: str, what: str) -> None:
    """The report gives file, line and kind."""
    path = tmp_path / "file.txt"
    path.write_text(f"first\n{line}\n")

    assert f"{path}:2: {what}\n" == check_failing(path)


@pytest.mark.parametrize("name", ["uv.lock", "pylock.toml", "pylock.dev.toml"])
def test_lock_files_are_refused(tmp_path: Path, name: str) -> None:
    """They record registry addresses whatever their content is today."""
    path = tmp_path / name
    path.write_text("")

    assert f"{path}: a lock file" in check_failing(path)


@pytest.mark.parametrize(
    "line",
    [
        "unix:///run/prompt-sidecar.sock",
        "https://example.com/home/page",
        "docs/work/plan.md",
        "#!/usr/bin/env bash",
        "pip install prompt-sidecar",
    ],
)
def test_ordinary_text_passes(tmp_path: Path, line: str) -> None:
    """Addresses and paths that mean the same on every machine are no finding."""
    path = tmp_path / "file.txt"
    path.write_text(line)

    assert (0, "") == check(path)
