"""Print what became of the recorded requests, by format and preset: `python -m tests.programs.conformance`."""

from __future__ import annotations

from tests.programs.conformance.recorded import presets, tally
from tests.programs.conformance.table import CASES

for case in CASES.values():
    if case.traffic:
        for name in presets():
            print(f"{case.format:20} {name:12} {tally(case, name).row()}")
