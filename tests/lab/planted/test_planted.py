"""Each fault can be planted in this tree, and there are enough of them, for every promise."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.lab.planted.faults import ROOT, Fault, NotApplicable, faults

FAULTS = faults()
LEAST = 30


def test_there_are_thirty_faults_and_more() -> None:
    """Each with a promise of its own."""
    assert len(FAULTS) >= LEAST
    assert len(FAULTS) == len({fault.name for fault in FAULTS})


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted(fault: Fault, tmp_path: Path) -> None:
    """What its patch changes is there; where it is not, the patch has to follow the code."""
    changed = {line[6:] for line in fault.path.read_text().splitlines() if line.startswith(("--- a/", "+++ b/"))}
    for name in changed:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    fault.plant(tmp_path)
    assert any((ROOT / name).read_bytes() != (tmp_path / name).read_bytes() for name in changed)
    for name in changed:
        compile((tmp_path / name).read_bytes(), name, "exec")
    assert all((ROOT / test).exists() for test in fault.tests)


def test_a_patch_that_no_longer_applies_says_so(tmp_path: Path) -> None:
    """By git's own words, not by a fault that was never there."""
    for line in FAULTS[0].path.read_text().splitlines():
        if line.startswith("--- a/"):
            (tmp_path / line[6:]).parent.mkdir(parents=True)
            (tmp_path / line[6:]).write_text("another code\n")
    with pytest.raises(NotApplicable):
        FAULTS[0].plant(tmp_path)


def test_a_file_without_a_promise_is_no_fault(tmp_path: Path) -> None:
    """Its first two lines are missing."""
    (tmp_path / "x.patch").write_text("--- a/x\n+++ b/x\n")
    with pytest.raises(ValueError, match="does not begin"):
        faults(tmp_path)
