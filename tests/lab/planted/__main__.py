"""`make planted`: plant each fault in a copy of the tree, run the tests of `make test`, and print which one caught it.

Tests beside the fault run first, then the rest; the first failure ends the run. A fault that no test catches, or that
no longer applies, fails the program: the tests have a gap, or the patch has to follow the code.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.lab.planted.faults import ROOT, Fault, NotApplicable, faults

_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_WIDTH: Final = 30


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant them; 0: each was caught."""
    parser = argparse.ArgumentParser(prog="make planted", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults to plant; none: all")
    parser.add_argument("--list", action="store_true", help="list the faults")
    parser.add_argument("--workers", default="auto", help="workers of pytest; default: one a core")
    parser.add_argument("--beside", action="store_true", help="run only the tests that a fault names")
    asked = parser.parse_args(arguments)
    chosen = [fault for fault in faults() if not asked.names or fault.name in asked.names]
    if missing := set(asked.names) - {fault.name for fault in chosen}:
        parser.error(f"there is no fault {', '.join(sorted(missing))}; --list lists them")
    if asked.list:
        for fault in chosen:
            print(f"{fault.name:{_WIDTH}} {fault.promise}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        tree = copied(Path(folder))
        missed = [fault.name for fault in chosen if not _try(fault, tree, asked.workers, beside=asked.beside)]
    print(f"{len(chosen) - len(missed)} of {len(chosen)} faults are caught")
    return int(bool(missed))


def copied(folder: Path) -> Path:
    """A copy of the files that git knows or would take, with the same packages and recorded data."""
    tree = folder / "tree"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    subprocess.run(["git", "init", "--quiet"], cwd=tree, check=True)
    (tree / ".venv").symlink_to(ROOT / ".venv")
    if (ROOT.parent / "shared").is_dir():
        (folder / "shared").symlink_to(ROOT.parent / "shared")
    return tree


def _try(fault: Fault, tree: Path, workers: str, *, beside: bool) -> bool:
    """Plant one fault; return whether a test failed."""
    try:
        fault.plant(tree)
    except NotApplicable as error:
        print(f"{fault.name:{_WIDTH}} DOES NOT APPLY: {error}", flush=True)
        return False
    try:
        found = failing(tree, fault.tests, workers) or ([] if beside else failing(tree, ("tests",), workers))
    finally:
        fault.take_back(tree)
    print(f"{fault.name:{_WIDTH}} {found[0] if found else 'NOT CAUGHT: ' + fault.promise}", flush=True)
    return bool(found)


def failing(tree: Path, tests: Sequence[str], workers: str) -> list[str]:
    """The tests of `make test` that fail in a tree, up to the first."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    variables["PYTHONPATH"] = str(tree / "sidecar")  # before the package that is installed, which is the tree's origin
    options = ["-q", "-x", "--lane=test", "-n", workers, "-p", "no:cacheprovider"]
    # The patches themselves are no test of the code.
    command = [sys.executable, "-m", "pytest", *options, "--ignore=tests/lab/planted", *tests]
    done = subprocess.run(command, cwd=tree, env=variables, capture_output=True, text=True, check=False)
    found = _FAILED.findall(done.stdout)
    if done.returncode and not found:
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}")
    return found


if __name__ == "__main__":
    sys.exit(main())
