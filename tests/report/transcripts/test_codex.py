"""Session files of Codex."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prompt_sidecar.report.transcripts.model import CallUsage
from prompt_sidecar.report.transcripts.reading import read_transcripts
from tests.report.transcripts.samples import GPT, jsonl, rollout


def _user(words: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}


def _line(kind: str, payload: Any) -> dict[str, Any]:
    return {"timestamp": "t", "type": kind, "payload": payload}


def test_a_session_is_a_run_with_a_prompt_for_each_answer(tmp_path: Path) -> None:
    """Items are as they were sent; instructions, model and what the provider counted go with the prompts."""
    (run,) = read_transcripts(jsonl(tmp_path / "rollout-1.jsonl", rollout(calls=2)))
    assert ("openai_responses", [1, 3, 5]) == (run.form, [len(prompt.messages) for prompt in run.prompts])
    assert {"model": GPT, "instructions": "You help."} == json.loads(run.prompts[0].head)
    assert [CallUsage(100, 50, 0, 9), CallUsage(200, 100, 0, 9), CallUsage(300, 150, 0, 9)] == [
        one.usage for one in run.prompts
    ]


def test_counts_that_come_again_are_of_no_other_call(tmp_path: Path) -> None:
    """Codex repeats them when only rate limits changed."""
    lines = rollout(calls=1)
    counted = [line for line in lines if line["payload"].get("type") == "token_count"]
    at = lines.index(counted[0])
    (run,) = read_transcripts(jsonl(tmp_path / "a.jsonl", [*lines[: at + 2], counted[0], *lines[at + 2 :]]))
    assert [100, 200] == [prompt.usage.input for prompt in run.prompts if prompt.usage]


def test_after_a_compaction_the_history_is_what_the_file_says(tmp_path: Path) -> None:
    """With a replacement it is that; without one the users' words and the summary, and the run says so."""
    replaced = _line("compacted", {"message": "", "replacement_history": [_user("Summary.")]})
    guessed = _line("compacted", {"message": "Short."})
    answer = _line("response_item", {"type": "message", "role": "assistant", "content": []})
    (exact,) = read_transcripts(jsonl(tmp_path / "a.jsonl", [*rollout(1), replaced, answer]))
    (rough,) = read_transcripts(jsonl(tmp_path / "b.jsonl", [*rollout(1), guessed, answer]))
    assert [_user("Summary.")] == [json.loads(item) for item in exact.prompts[-1].messages]
    assert [_user("Look."), _user("Short.")] == [json.loads(item) for item in rough.prompts[-1].messages]
    assert any("taken for" in sentence for sentence in rough.missing)


def test_turns_that_were_rolled_back_are_gone(tmp_path: Path) -> None:
    """The history ends before the last user's words."""
    again = [
        _line("response_item", _user("More.")),
        _line("response_item", {"type": "message", "role": "assistant", "content": []}),
        _line("event_msg", {"type": "thread_rolled_back", "num_turns": 1}),
        _line("response_item", _user("Other.")),
        _line("response_item", {"type": "message", "role": "assistant", "content": []}),
    ]
    (run,) = read_transcripts(jsonl(tmp_path / "a.jsonl", [*rollout(1), *again]))
    assert [b"More." in raw or b"Other." in raw for raw in run.prompts[-1].messages][-1:] == [True]
    assert not any(b"More." in raw for raw in run.prompts[-1].messages)


def test_files_of_bare_items_are_read(tmp_path: Path) -> None:
    """Codex wrote them without envelopes at first."""
    lines = [
        {"id": "x", "timestamp": "t", "instructions": "Help."},
        _user("Look."),
        {"record_type": "state"},
        {"type": "message", "role": "assistant", "content": []},
    ]
    (run,) = read_transcripts(jsonl(tmp_path / "a.jsonl", lines))
    assert [[_user("Look.")]] == [[json.loads(item) for item in prompt.messages] for prompt in run.prompts]
    assert {"instructions": "Help."} == json.loads(run.prompts[0].head)


def test_a_session_has_its_project_and_date(tmp_path: Path) -> None:
    """Of the folder that it began in the last part; a time that is none gives no date."""
    lines = [_line("session_meta", {"cwd": r"C:\work\budget"}), *rollout(1)]
    (run,) = read_transcripts(jsonl(tmp_path / "a.jsonl", lines))
    assert ("budget", "2026-11-01") == (run.project, run.date)
    answer = {"type": "message", "role": "assistant", "content": []}
    without = [lines[0], _line("response_item", _user("Hi.")), _line("response_item", answer)]
    (other,) = read_transcripts(jsonl(tmp_path / "b.jsonl", without))
    assert ("budget", "") == (other.project, other.date)
