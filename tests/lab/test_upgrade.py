"""The program finds nothing wrong between a version and itself, and says what it cannot do."""

from __future__ import annotations

import subprocess

import pytest

from tests.lab import upgrade
from tests.lab.harness.components import ROOT


@pytest.fixture(autouse=True)
def _git() -> None:
    known = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, check=False).returncode
    if known:
        pytest.skip("needs the repository's history in git")


def test_the_last_commit_and_this_tree(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Side by side on one store: every prompt answered, every original given back."""
    monkeypatch.setattr(upgrade, "RUNS", 1)
    monkeypatch.setattr(upgrade, "ITERATIONS", 12)
    assert 0 == upgrade.main(["HEAD"])
    assert "wrong bytes" in capsys.readouterr().out


def test_an_unknown_commit(capsys: pytest.CaptureFixture[str]) -> None:
    """By git's own words."""
    assert 2 == upgrade.main(["no-such-commit"])
    assert "no-such-commit" in capsys.readouterr().err
