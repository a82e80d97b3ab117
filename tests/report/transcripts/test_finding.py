"""Transcripts are found in folders and in the usual places, and links lead nowhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prompt_sidecar.report.transcripts import finding
from prompt_sidecar.report.transcripts.finding import files_of, find_sessions
from prompt_sidecar.report.transcripts.model import TranscriptError


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}\n")
    return path


def test_sessions_are_found_where_agents_keep_them(tmp_path: Path) -> None:
    """Those of Claude Code, its subagents' too, and of Codex; nothing else of these folders."""
    wanted = [
        _made(tmp_path / ".claude/projects/p/s.jsonl"),
        _made(tmp_path / ".claude/projects/p/s/subagents/agent-1.jsonl"),
        _made(tmp_path / ".codex/sessions/2026/11/01/rollout-1.jsonl"),
    ]
    _made(tmp_path / ".codex/sessions/2026/11/01/notes.jsonl")
    _made(tmp_path / ".claude/projects/p/memory.md")
    _made(tmp_path / ".claude/history.jsonl")
    assert sorted(wanted) == find_sessions(tmp_path)


def test_links_are_not_followed(tmp_path: Path) -> None:
    """Neither to files nor to folders, nor where the usual folder itself is one."""
    outside = _made(tmp_path / "outside/s.jsonl")
    home = tmp_path / "home"
    kept = _made(home / ".claude/projects/p/own.jsonl")
    (home / ".claude/projects/p/link.jsonl").symlink_to(outside)
    (home / ".claude/projects/q").symlink_to(outside.parent)
    (home / ".codex").symlink_to(outside.parent)
    _made(tmp_path / "outside/sessions/rollout-2.jsonl")
    assert [kept] == find_sessions(home)


def test_a_home_without_sessions_is_reported(tmp_path: Path) -> None:
    """With the folders that were looked in."""
    with pytest.raises(TranscriptError, match=r"~/\.claude/projects"):
        find_sessions(tmp_path)


def test_how_many_and_how_deep_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest are taken."""
    monkeypatch.setattr(finding, "MOST_FILES", 2)
    for at in range(4):
        os.utime(_made(tmp_path / f"{at}.json"), (at, at))
    _made(tmp_path / Path(*"abcdefghijkl") / "deep.json")
    assert ["2.json", "3.json"] == [path.name for path in files_of(tmp_path)]
