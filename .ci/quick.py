"""Check what has changed, in half a minute: formatting, lint, imports, types, and the tests beside it.

What has changed is what differs from the branch `main`, or from the last commit where that is the branch in hand, and
what git does not know yet. Beside `sidecar/prompt_sidecar/trim/elide.py` is `tests/trim/test_elide.py`; where there is
no such file, the tests of that folder that import the module. `make test` runs the rest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

BIN = Path(sys.executable).parent
PACKAGE = Path("sidecar/prompt_sidecar")
MOST_TESTS = 8
"""Files of tests that run: half a minute has room for no more."""
GENERATED = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")
BASE = "main"


def git(*arguments: str) -> list[str]:
    """Run git; return the lines of its output, none if it fails."""
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed() -> list[Path]:
    """Return the files that have changed and are still there."""
    base = (git("merge-base", BASE, "HEAD") or ["HEAD"])[0]
    names = {*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")}
    return [path for name in sorted(names) if (path := Path(name)).is_file()]


def beside(path: Path) -> Iterator[Path]:
    """Return the files of tests beside a file."""
    if path.name.startswith("test_") and path.parts[0] == "tests":
        yield path
        return
    if not path.is_relative_to(PACKAGE) or path.name.endswith(GENERATED):
        return
    module = path.relative_to(PACKAGE).with_suffix("")
    folder = Path("tests", *module.parts[:-1])
    named = folder / f"test_{module.name}.py"
    if named.is_file():
        yield named
        return
    dotted = ".".join(["prompt_sidecar", *module.parts])
    for test in sorted(folder.glob("test_*.py")):
        if dotted in test.read_text(encoding="utf-8"):
            yield test


def checks(files: Sequence[Path]) -> Iterator[tuple[str, list[str]]]:
    """Return what is to run, by its name; each reads only."""
    code = [str(path) for path in files if path.suffix == ".py" and not path.name.endswith(GENERATED)]
    typed = [name for name in code if name.startswith(("sidecar", "tests", "dashboards", "deploy"))]
    tests = list(dict.fromkeys(str(test) for path in files for test in beside(path)))
    if code:
        yield "format", [str(BIN / "ruff"), "format", "--check", "--quiet", *code]
        yield "lint", [str(BIN / "ruff"), "check", "--quiet", "--output-format=concise", *code]
    if any(name.startswith(str(PACKAGE)) for name in code):
        yield "imports", [str(BIN / "lint-imports"), "--no-logo"]
    if typed:
        yield "types", [sys.executable, "-m", "mypy", *typed]
    if tests:
        chosen = tests[:MOST_TESTS]
        left = f" (and {len(tests) - MOST_TESTS} files are left to make test)" if len(tests) > MOST_TESTS else ""
        yield (
            f"tests of {len(chosen)} files{left}",
            [
                *(sys.executable, "-m", "pytest", "-q", "--no-header", "--lane=test", "--maxfail=5"),
                *(["-n", "2"] if len(chosen) > 1 else []),
                *chosen,
            ],
        )


def main() -> int:
    """Run the checks side by side; return the exit status."""
    files = changed()
    print(f"{len(files)} files have changed")
    running = [
        (name, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ))
        for name, command in checks(files)
    ]
    failed = False
    for name, process in running:
        output = process.communicate()[0]
        passed = process.returncode in {0, 5} if name.startswith("tests") else process.returncode == 0  # 5: none chosen
        failed |= not passed
        print(f"{name}: {'passed' if passed else 'FAILED'}")
        if not passed:
            print(output)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
