"""`make agents`: each row of the table runs here, installed as pinned, or with the newest versions of the registries.

One line a row as it goes, and at the end what is not as the table says. `python -m tests.agents NAME ...` runs some.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.agents.judging import faults
from tests.agents.programs import Start
from tests.agents.rows import ROWS, Row
from tests.agents.running import session
from tests.agents.versions import made, pinned
from tests.lab.harness.environments import Unavailable

SHOWN: Final = 3
"""Faults of a row that are printed, each by so many characters as the next says."""
LENGTH: Final = 500


def main() -> int:
    """Run rows; return how many are not as the table says."""
    parser = argparse.ArgumentParser(prog="python -m tests.agents", description=__doc__)
    parser.add_argument("names", nargs="*", help="rows by the names of their agents; none: all")
    parser.add_argument("--newest", action="store_true", help="the registries' newest versions, not the pinned ones")
    given = parser.parse_args()
    unknown = set(given.names) - {row.agent.name for row in ROWS}
    if unknown:
        parser.error(f"no such rows: {', '.join(sorted(unknown))}; there are {', '.join(r.agent.name for r in ROWS)}")
    logging.disable()
    rows = [row for row in ROWS if not given.names or row.agent.name in given.names]
    wrong: dict[str, list[str]] = {}
    for row in rows:
        began = time.monotonic()
        wrong[row.name] = tried(row, newest=given.newest)
        versions = _versions(row, newest=given.newest)
        words = "not as the table says" if wrong[row.name] else row.result
        print(f"{row.name} ({versions}): {words}, {time.monotonic() - began:.0f} s", flush=True)
    for name, found in wrong.items():
        if found:
            print(f"\n{name}:", *(f"  {each[:LENGTH]}" for each in found[:SHOWN]), sep="\n")
    count = sum(map(bool, wrong.values()))
    print(f"\n{len(rows) - count} of {len(rows)} rows are as the table says.")
    return min(count, 1)


def tried(row: Row, *, newest: bool = False) -> list[str]:
    """Install what a row needs and run it; return what is not as the table says."""
    try:
        made(row.environment, newest)
        with (
            tempfile.TemporaryDirectory() as home,
            session(row.script(row.agent), Path(home), start=_start(newest)) as work,
        ):
            work.run()
            return faults(work, *row.checks)
    except Unavailable as error:
        return [f"it does not start here: {error}"]
    except subprocess.TimeoutExpired:
        return ["it did not end"]


def _start(newest: bool) -> Start:
    start = Start(Path(), "", 0, "")
    if not newest:
        return start
    return replace(
        start, python=lambda name: made(name, newest).python, packages=lambda name: made(name, newest).folder
    )


def _versions(row: Row, *, newest: bool) -> str:
    try:
        old, new = pinned(row.environment), pinned(row.environment, newest)
    except FileNotFoundError:
        return "not installed"
    text = (
        f"{name} {new[name]}" + (f", pinned {old[name]}" if old[name] != new[name] else "") for name in row.packages
    )
    return "; ".join(text)


if __name__ == "__main__":
    sys.exit(main())
