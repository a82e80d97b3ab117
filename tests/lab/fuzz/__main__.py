"""`python -m tests.lab.fuzz`: fuzz for some minutes, print what was tried and what was found."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Sequence
from typing import Any

from tests.lab.fuzz.mixing import mixed_to
from tests.lab.fuzz.mixing_at_door import CASES_TOGETHER, PATHS, cases_at_door
from tests.lab.fuzz.requests import JSON_FORMATS, Place, sweep, swept
from tests.lab.fuzz.target import Findings, chance_case, in_process, quiet, sweep_case
from tests.lab.harness.tables import options

_SHOWN = 20
ABOUT = """\
Send odd requests of every RPC, and odd prompts of every format, to the servicer. No input may give INTERNAL or UNKNOWN,
and every returned body is JSON. Agents that mix their history with what came back are answered alike when they ask
again, with no new defect and every original there. Behind the HTTP door they get no error of its own, and their prompts
go on trimmed, with no new defect.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 1 if anything was found."""
    parser = options("make fuzz FUZZ=...", ABOUT)
    add = parser.add_argument
    add("--minutes", type=float, default=3.0, help="how long, the sweep included; default 3")
    add("--seed", type=int, default=None, help="of the chance cases; default: another each time, printed")
    add("--case", type=int, default=None, help="run this one case only, and show where it fails")
    add("--sweep", choices=JSON_FORMATS, default=None, help="with --case: a case of this format's sweep")
    add("--mixed", type=int, default=None, help="run this one case of a mixed history only")
    behind = "with --case: a mixed history behind the HTTP door, after those that its door served before"
    add("--door", choices=PATHS, default=None, help=behind)
    add("--no-sweep", action="store_true", help="chance cases only")
    asked = parser.parse_args(arguments)
    seed = secrets.randbelow(1_000_000) if asked.seed is None else asked.seed
    found = Findings()
    if asked.case is not None:
        if asked.door:
            # With those that the door served before it, on which it may depend.
            cases_at_door(asked.door, seed, range(asked.case - asked.case % CASES_TOGETHER, asked.case + 1), found)
        elif asked.sweep:
            _sweep(asked.sweep, asked.case, list(sweep(asked.sweep))[asked.case], found)
        else:
            chance_case(in_process(), seed, asked.case, found)
        return _reported(found, seed)
    if asked.mixed is not None:
        mixed_to(found, seed, asked.mixed)
        return _reported(found, seed)
    quiet()
    end = time.monotonic() + 60 * asked.minutes
    for format in () if asked.no_sweep else JSON_FORMATS:
        for number, case in enumerate(sweep(format)):
            if time.monotonic() > end:
                break
            _sweep(format, number, case, found)
    number = 0
    while time.monotonic() < end:
        chance_case(in_process(), seed, number, found)
        mixed_to(found, seed, number)
        number += 1
        if number % CASES_TOGETHER == 0:
            for path in PATHS:
                cases_at_door(path, seed, range(number - CASES_TOGETHER, number), found)
    print(f"{number:,} chance cases and as many mixed histories, with the HTTP door and without; --seed {seed}")
    return _reported(found, seed)


def _sweep(format: str, number: int, case: tuple[int, Place, Any], found: Findings) -> None:
    sweep_case(in_process(), f"--sweep {format} --case {number}", swept(format, case), found)


def _reported(found: Findings, seed: int) -> int:
    statuses = ", ".join(f"{count:,} {status}" for status, count in sorted(found.statuses.items()))
    print(f"{found.calls:,} calls: {statuses}; seed {seed}; {len(found.faults)} faults")
    for fault in found.faults[:_SHOWN]:
        print(f"  {fault}")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
