"""What stands in the repository is what the generator makes, and a board with a gap is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dashboards.generate.__main__ import HOME, files, main, stale
from dashboards.generate.overview import OVERVIEW
from dashboards.generate.panels import Row
from dashboards.generate.render import render


def test_files_are_current() -> None:
    """`make dashboards` was run after the last change."""
    assert [] == stale(HOME)


def test_generation_is_repeatable() -> None:
    """The same board makes the same bytes."""
    assert files() == files()


def test_the_check_tells_what_is_not_current(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is missing, one that was edited, one that nothing makes."""
    assert 0 == main(["--into", str(tmp_path)])
    assert 0 == main(["--check", "--into", str(tmp_path)])
    (tmp_path / "recall.json").unlink()
    (tmp_path / "health.json").write_text("{}", encoding="utf-8")
    (tmp_path / "old.json").write_text("{}", encoding="utf-8")

    assert 1 == main(["--check", "--into", str(tmp_path)])
    assert [
        "dashboards: recall.json is not there",
        "dashboards: old.json is made by nothing",
        "dashboards: health.json is not what dashboards/generate makes",
        "Run make dashboards, and commit what it wrote.",
    ] == capsys.readouterr().err.splitlines()


def test_runbooks_may_stand_elsewhere(tmp_path: Path) -> None:
    """An operator's alerts link to where they keep the pages."""
    main(["--into", str(tmp_path), "--runbooks", "https://wiki.example.com/"])
    alerts = (tmp_path / "rules" / "alerts.yaml").read_text(encoding="utf-8")

    assert "runbook_url: https://wiki.example.com/PromptSidecarDown.md\n" in alerts
    assert "docs/runbooks" not in alerts


@pytest.mark.parametrize("kept", [slice(0, 5), slice(0, 0, -1)], ids=["a line ends early", "heights differ"])
def test_a_row_with_a_gap_is_refused(kept: slice) -> None:
    """Grafana would close it in its own way, and the reader would wonder."""
    first = OVERVIEW.rows[0].panels
    panels = first[kept] or (first[0], replace(first[1], height=5))

    with pytest.raises(ValueError, match=r"row 'gap'"):
        render(replace(OVERVIEW, rows=(Row("gap", panels),)))


def test_links_to_runs_lead_where_documented() -> None:
    """In boards, rules, and the rules for Kubernetes; by default to this machine."""
    made = files(admin="https://runs.example.com")
    with_links = {name for name, content in made.items() if "https://runs.example.com" in content}

    assert {*made} - {"rules/recorded.yaml"} == with_links
    assert not [name for name, content in made.items() if "127.0.0.1:7719" in content]
