"""Session files of Claude Code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prompt_sidecar.report.transcripts.model import CallUsage, RecordedPrompt, Transcript
from prompt_sidecar.report.transcripts.reading import read_transcripts
from tests.report.transcripts.samples import CLAUDE, answered, jsonl, result, session, text, use, user_line


def _read(tmp_path: Path, lines: Sequence[Mapping[str, Any]]) -> list[Transcript]:
    return read_transcripts(jsonl(tmp_path / "s.jsonl", lines))


def _messages(prompt: RecordedPrompt) -> list[Any]:
    return [json.loads(message) for message in prompt.messages]


def test_a_session_is_a_run_with_a_prompt_for_each_answer(tmp_path: Path) -> None:
    """Titles and queues are no part of it; each answer has its prompt, its model and what the provider counted."""
    (run,) = _read(tmp_path, session(calls=2))
    assert ("anthropic_messages", "Claude Code session") == (run.form, run.source)
    assert [1, 3, 5] == [len(prompt.messages) for prompt in run.prompts]
    assert {CLAUDE} == {prompt.model for prompt in run.prompts}
    assert CallUsage(input=123, cached=100, written=20, output=7) == run.prompts[0].usage
    assert any("system prompt" in sentence for sentence in run.missing)


def test_parallel_calls_are_one_message_and_so_are_their_results(tmp_path: Path) -> None:
    """Lines of one answer with results between them become one message, and its results the next."""
    (run,) = _read(
        tmp_path,
        [
            user_line("Look.", "u"),
            answered(text("I look."), "m1", "a1", "u"),
            answered(use("c1"), "m1", "a2", "a1"),
            user_line([result("c1")], "r1", "a2"),
            answered(use("c2"), "m1", "a3", "a2"),
            user_line([result("c2")], "r2", "a3"),
            user_line("Faster.", "u2", "r2"),
            answered(text("Done."), "m2", "a4", "u2"),
        ],
    )
    assert 2 == len(run.prompts)
    first, model, results = _messages(run.prompts[1])
    assert {"role": "user", "content": [text("Look.")]} == first
    assert [text("I look."), use("c1"), use("c2")] == model["content"]
    assert [result("c1"), result("c2"), text("Faster.")] == results["content"]


def test_a_subagent_is_a_run_of_its_own(tmp_path: Path) -> None:
    """Lines of sidechains leave the session's prompts as they are."""
    lines = session(calls=1)
    side = [
        user_line("Do a part.", "x1", None, isSidechain=True, agentId="ag"),
        answered(text("It is done."), "side", "x2", "x1", isSidechain=True, agentId="ag"),
    ]
    (alone,) = _read(tmp_path, lines)
    main, agent = _read(tmp_path, [*lines[:4], *side, *lines[4:]])
    assert alone.prompts == main.prompts
    assert "subagent" in agent.name
    assert [[{"role": "user", "content": [text("Do a part.")]}]] == [_messages(one) for one in agent.prompts]


def test_sidechains_without_an_agents_name_are_distinguished_by_their_parents(tmp_path: Path) -> None:
    """Older files do not name the agent of a line."""
    lines = [
        user_line("One.", "x1", None, isSidechain=True),
        user_line("Two.", "y1", None, isSidechain=True),
        answered(text("1"), "m1", "x2", "x1", isSidechain=True),
        answered(text("2"), "m2", "y2", "y1", isSidechain=True),
    ]
    runs = _read(tmp_path, lines)
    assert [["One."], ["Two."]] == [
        [block["text"] for message in _messages(run.prompts[0]) for block in message["content"]] for run in runs
    ]


def test_after_a_compaction_the_history_begins_anew(tmp_path: Path) -> None:
    """The next prompt has the summary alone."""
    lines = session(calls=2)
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": None}
    after = [user_line("A summary.", "s1", "b", isCompactSummary=True), answered(text("On."), "m9", "z9", "s1")]
    (run,) = _read(tmp_path, [*lines, boundary, *after])
    assert [{"role": "user", "content": [text("A summary.")]}] == _messages(run.prompts[-1])
    assert any("summaries" in sentence for sentence in run.missing)


def test_after_a_rewind_the_abandoned_answers_are_gone(tmp_path: Path) -> None:
    """Words whose parent the model has answered otherwise go on from that parent."""
    (run,) = _read(
        tmp_path,
        [
            user_line("One.", "u1"),
            answered(text("1"), "m1", "a1", "u1"),
            user_line("Wrong.", "u2", "a1"),
            answered(text("2"), "m2", "a2", "u2"),
            user_line("Right.", "u3", "a1"),
            answered(text("3"), "m3", "a3", "u3"),
        ],
    )
    texts = [block["text"] for message in _messages(run.prompts[-1]) for block in message["content"]]
    assert ["One.", "1", "Right."] == texts


def test_queued_words_are_sent_and_errors_are_not(tmp_path: Path) -> None:
    """An attachment with queued words is the user's; what Claude Code wrote itself in the model's name is not sent."""
    own = answered(text("API Error"), "e", "a0", "u1", isApiErrorMessage=True)
    queued = {"type": "attachment", "uuid": "q", "parentUuid": "u1"}
    queued["attachment"] = {"type": "queued_command", "prompt": "And this."}  # type: ignore[assignment]
    (run,) = _read(tmp_path, [user_line("One.", "u1"), own, queued, answered(text("1"), "m1", "a1", "q")])
    assert [{"role": "user", "content": [text("One."), text("And this.")]}] == _messages(run.prompts[0])


def test_words_that_look_like_a_result_stay_words(tmp_path: Path) -> None:
    """Only a block's type makes a result."""
    words = 'a "tool_result" in words'
    (run,) = _read(tmp_path, [user_line(words, "u1"), answered(text("1"), "m1", "a1", "u1")])
    assert [text(words)] == _messages(run.prompts[0])[0]["content"]
