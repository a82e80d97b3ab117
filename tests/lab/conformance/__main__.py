"""Print what became of the recorded requests, by format and preset: `python -m tests.lab.conformance`."""

from __future__ import annotations

from tests.conformance.recorded import presets, tally
from tests.conformance.table import CASES

for case in CASES.values():
    if case.traffic:
        for name in presets():
            print(f"{case.format:20} {name:12} {tally(case, name).row()}")
