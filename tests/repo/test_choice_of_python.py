"""`.ci/python` names an interpreter that can make a virtual environment, or says plainly what is missing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "python"

# What stands in for an interpreter: it is asked two questions, one about its version and one about its modules.
FIT = "exit 0"
NOT_INSTALLED = "echo 'command not found' >&2; exit 127"
TOO_OLD = 'case "$2" in *version_info*) exit 3;; esac'
NO_ENSUREPIP = 'case "$2" in *print*) echo 3.12;; *ensurepip*) exit 1;; esac'


def choose(folder: Path, interpreters: dict[str, str], asked: str = "") -> subprocess.CompletedProcess[str]:
    """Run the script where only these interpreters are on the PATH."""
    for name, body in interpreters.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    shell = shutil.which("sh") or "/bin/sh"
    return subprocess.run(
        [shell, str(SCRIPT), *([asked] if asked else [])],
        env={"PATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("interpreters", "chosen"),
    [
        ({"python3.11": FIT, "python3.13": FIT, "python3": FIT}, "python3.11"),
        ({"python3.12": FIT, "python3": TOO_OLD}, "python3.12"),
        ({"python3": FIT}, "python3"),
        ({"python3.11": NOT_INSTALLED, "python3.13": FIT}, "python3.13"),
        ({"python3.11": NO_ENSUREPIP, "python3.12": FIT}, "python3.12"),
    ],
)
def test_the_first_that_is_fit_is_chosen(tmp_path: Path, interpreters: dict[str, str], chosen: str) -> None:
    """One that is absent, a shim without a version behind it, or short of a module is passed over."""
    result = choose(tmp_path, interpreters)

    assert (chosen, 0) == (result.stdout.strip(), result.returncode)


def test_one_that_is_asked_for_is_taken(tmp_path: Path) -> None:
    """`make PYTHON=...` is obeyed, and no other is tried."""
    result = choose(tmp_path, {"python3.11": FIT, "mine": FIT}, asked="mine")

    assert ("mine", 0) == (result.stdout.strip(), result.returncode)


def test_one_that_is_asked_for_and_unfit_is_an_error(tmp_path: Path) -> None:
    """Another that is fit does not quietly take its place."""
    result = choose(tmp_path, {"python3.11": FIT, "mine": TOO_OLD}, asked="mine")

    assert ("", 1) == (result.stdout, result.returncode)
    assert "No Python 3.11, 3.12 or 3.13 found as mine." in result.stderr


def test_none_at_all_is_reported(tmp_path: Path) -> None:
    """The message says which versions would do and how to name one."""
    result = choose(tmp_path, {"python3": TOO_OLD})

    assert 1 == result.returncode
    assert "No Python 3.11, 3.12 or 3.13 found." in result.stderr
    assert "make PYTHON=" in result.stderr


def test_a_missing_ensurepip_is_reported(tmp_path: Path) -> None:
    """The message names the interpreter and the package that mends it on Debian."""
    result = choose(tmp_path, {"python3.12": NO_ENSUREPIP})

    assert 1 == result.returncode
    assert "python3.12 is Python 3.12 but cannot make a virtual environment" in result.stderr
    assert "python3.12-venv" in result.stderr
