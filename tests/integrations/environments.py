"""An environment for each framework, with its pinned versions: `python -m tests.integrations.environments` makes them.

They disagree with one another about versions, and agents have them without anything of the server's. `.ci/run` makes
them before the tests; where one is missing, its tests are skipped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.programs.peers.environments import ROOT, Environment, Unavailable, environment, planned
from tests.real.needing import lack

REQUIREMENTS: Final = Path(__file__).parent / "requirements"
CACHE: Final = ROOT / ".cache" / "integrations"
"""Not in the virtual environment, which is made again whenever a pin changes."""


def ready(name: str) -> Environment:
    """Return a framework's environment; without it the test is skipped, and fails in CI."""
    made = planned(REQUIREMENTS / f"{name}.txt", CACHE)
    if not made.is_ready:
        lack(f"needs the environment {name}: python -m tests.integrations.environments {name}")
    return made


def main(names: list[str]) -> int:
    """Make the environments of these names, or all; return the exit status."""
    missing = 0
    for name in names or sorted(path.stem for path in REQUIREMENTS.glob("*.txt")):
        try:
            made = environment(name, CACHE, REQUIREMENTS)
            print(f"{name}: {made.folder.relative_to(ROOT) if made.folder.is_relative_to(ROOT) else made.folder}")
        except Unavailable as error:
            missing = 1
            print(f"{name}: {error}", file=sys.stderr)
    return missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
