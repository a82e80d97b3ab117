"""The package has one name, wherever Python is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_folder_of_the_source_is_no_package() -> None:
    """From the checkout's root `sidecar/` is importable as a namespace: a second copy of each module must not load."""
    ended = subprocess.run(
        [sys.executable, "-c", "import sidecar.prompt_sidecar.errors"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert 1 == ended.returncode
    assert "ImportError: import this package as prompt_sidecar" in ended.stderr


def test_the_installed_package_is_found_outside_the_checkout(tmp_path: Path) -> None:
    """An editable install puts `sidecar/` on the path, not the checkout's root."""
    ended = subprocess.run(
        [sys.executable, "-c", "import prompt_sidecar; print(prompt_sidecar.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert Path(ended.stdout.strip()) == ROOT / "sidecar" / "prompt_sidecar" / "__init__.py"
