"""Recorded results: what is told to be readable from the text is, and nothing is reduced twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from prompt_sidecar.trim.condense.condensing import REDUCTIONS, Level, reduced
from prompt_sidecar.trim.condense.output import Output
from tests.lab.condensing.measuring import results_of
from tests.lab.evidence.recordings import paths, recorded
from tests.trim.condense.reading_back import INVERSES, original

REVERSIBLE = [reduction for reduction in REDUCTIONS if reduction.name in INVERSES]


@pytest.mark.parametrize("path", paths().values(), ids=str)
def test_recorded_results(path: Path) -> None:
    """With the call and without it."""
    for result in results_of(recorded(path).in_chat().messages):
        for call in (result.call, None):
            reduction = reduced(Output(result.text, call), Level.EXACT, (), REVERSIBLE)
            if reduction is not None:
                names = [saving.reduction for saving in reduction.savings]
                assert original(reduction.text, names) == result.text
            made = reduced(Output(result.text, call), Level.FULL)
            assert made is None or reduced(Output(made.text, call), Level.FULL) is None
