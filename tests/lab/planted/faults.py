"""Faults as files: a line with the promise that it breaks, one with the tests to try first, then the patch."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parents[2]
_PROMISE, _TESTS = "Promise: ", "Tests: "


class NotApplicable(Exception):
    """A patch does not apply to this tree."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that can be planted."""

    path: Path
    promise: str
    """What it breaks."""
    tests: tuple[str, ...]
    """Where it is most likely caught: these tests are tried before the rest."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.path.stem

    def plant(self, tree: Path, *, check: bool = False) -> None:
        """Change a tree; `check`: only find out whether it can be.

        Raises NotApplicable: what the patch changes is not there any more.
        """
        how = ["--check"] if check else []
        # Lines may have moved; the line before and the one after must be as they were.
        command = ["git", "apply", "--unidiff-zero", "--recount", *how, str(self.path)]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotApplicable(done.stderr.strip())

    def take_back(self, tree: Path) -> None:
        """Undo the change."""
        subprocess.run(["git", "apply", "--recount", "--reverse", str(self.path)], cwd=tree, check=True)


def faults(folder: Path = FOLDER) -> list[Fault]:
    """All faults, by name.

    Raises ValueError: a file does not begin with its promise and its tests.
    """
    return [_read(path) for path in sorted(folder.glob("*.patch"))]


def _read(path: Path) -> Fault:
    promise, tests = path.read_text(encoding="utf-8").splitlines()[:2]
    if not (promise.startswith(_PROMISE) and tests.startswith(_TESTS)):
        raise ValueError(f"{path.name} does not begin with a line `{_PROMISE}…` and a line `{_TESTS}…`")
    return Fault(path, promise.removeprefix(_PROMISE), tuple(tests.removeprefix(_TESTS).split()))
