"""Which tools weigh most: a bounded list whose sums are those of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.config.settings import load
from prompt_sidecar.report.figures import ReportedRun, ReportRequest
from prompt_sidecar.report.tool_weights import MOST_TOOLS, OTHER, ToolWeight, bounded, over_runs, shown
from prompt_sidecar.report.work import Measurement, Measurer
from tests.report.transcripts.samples import answered, bodies, jsonl, result, rollout, session, use, user_line


def _run(path: Path, limit: float = 2_000.0) -> ReportedRun:
    job = Measurement(ReportRequest(limit=limit, presets=["cache_first"]), load({}, config=None, flags={}))
    (run,), skipped = Measurer(job).measure(path)
    assert [] == skipped
    return run


def _measured(path: Path) -> list[ToolWeight]:
    return list(_run(path).tools)


def test_a_tool_weighs_what_its_results_brought_in(tmp_path: Path) -> None:
    """Results find their tool by the call's id; what was trimmed of them is counted with them."""
    (tool,) = _measured(jsonl(tmp_path / "s.jsonl", session(calls=12, size=300)))
    assert ("Read", 12, 0) == (tool.tool, tool.calls, tool.repeats)
    assert 0 < tool.trimmed < tool.brought
    assert tool.kept + tool.trimmed == tool.brought
    assert tool.p95 <= tool.brought // 11


@pytest.mark.parametrize("lines", [bodies(20, size=100), session(calls=20, size=100), rollout(calls=20, size=100)])
def test_all_that_was_trimmed_of_results_is_the_tools(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    """With and without system messages, which the sidecar's indices do not count."""
    run = _run(jsonl(tmp_path / "s.jsonl", lines))
    trimmed = sum(cut.tokens for cut in run.cuts if cut.kind == "result")
    assert 0 < trimmed == sum(tool.trimmed for tool in run.tools)


def test_repeated_calls_are_counted(tmp_path: Path) -> None:
    """Those with the same arguments as an earlier one of that tool."""
    lines = [user_line("Go.", "u")]
    for at in range(4):  # the last is in no prompt
        lines.append(answered(use(f"c{at}", "Bash", command="ls"), f"m{at}", f"a{at}", "u"))
        lines.append(user_line([result(f"c{at}")], f"r{at}", f"a{at}"))
    (tool,) = _measured(jsonl(tmp_path / "s.jsonl", lines))
    assert ("Bash", 3, 2) == (tool.tool, tool.calls, tool.repeats)


def test_names_that_are_none_are_not_shown() -> None:
    """They come from the transcript."""
    assert ["mcp__a.b-c", OTHER, OTHER, OTHER] == [
        shown(name) for name in ("mcp__a.b-c", "<script>", "a" * 65, "two words")
    ]


def test_the_list_is_bounded_and_loses_nothing() -> None:
    """Beyond the heaviest, tools are one."""
    many = [ToolWeight(f"t{at}", 1, 0, at, 1, 0, at) for at in range(40)]
    kept = bounded(many)
    assert MOST_TOOLS + 1 == len(kept)
    assert ("t39", OTHER) == (kept[0].tool, kept[-1].tool)
    assert sum(one.brought for one in many) == sum(one.brought for one in kept)
    twice = over_runs([kept, kept])
    assert 2 * sum(one.brought for one in many) == sum(one.brought for one in twice)
    assert MOST_TOOLS + 1 == len(twice)
