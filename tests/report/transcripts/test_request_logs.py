"""Logs of requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.report.transcripts.model import CallUsage
from prompt_sidecar.report.transcripts.reading import read_transcripts
from tests.report.transcripts.samples import bodies, chat, jsonl


@pytest.mark.parametrize("wrapped", ["", "request", "body", "text"])
def test_bodies_and_pairs_are_read(tmp_path: Path, wrapped: str) -> None:
    """Each request is a prompt, with its other members; messages that stand in several are the same object."""
    lines = [
        {"body": json.dumps(body)} if wrapped == "text" else {wrapped: body} if wrapped else body for body in bodies(3)
    ]
    (run,) = read_transcripts(jsonl(tmp_path / "log.jsonl", lines))
    assert ("openai_chat", "gpt-4o") == (run.form, run.model)
    assert [4, 6, 8] == [len(prompt.messages) for prompt in run.prompts]
    assert run.prompts[0].messages[2] is run.prompts[2].messages[2]
    assert [json.loads(prompt.body(run.form)) for prompt in run.prompts] == [
        {"model": "gpt-4o", "temperature": 0, "messages": body["messages"]} for body in bodies(3)
    ]


def test_requests_of_several_runs_are_distinguished(tmp_path: Path) -> None:
    """Each continues the run that it has most messages in common with, whatever stands between."""
    other = [{**body, "messages": [{"role": "user", "content": "Else."}, *body["messages"][2:]]} for body in bodies(3)]
    mixed = [body for pair in zip(bodies(3), other, strict=True) for body in pair]
    runs = read_transcripts(jsonl(tmp_path / "log.jsonl", mixed))
    assert [[4, 6, 8], [3, 5, 7]] == [[len(prompt.messages) for prompt in run.prompts] for run in runs]


@pytest.mark.parametrize("mark", ["cache_control", "prompt_cache_breakpoint"])
def test_marks_of_where_to_cache_make_no_other_message(tmp_path: Path, mark: str) -> None:
    """They move from request to request."""

    def marked(count: int) -> list[dict[str, Any]]:
        texts = [{"type": "text", "text": f"word {at}"} for at in range(count)]
        return [
            {"role": "assistant" if at % 2 else "user", "content": [block | {mark: {"type": "ephemeral"}}]}
            if at == count - 1
            else {"role": "assistant" if at % 2 else "user", "content": [block]}
            for at, block in enumerate(texts)
        ]

    lines = [{"model": "claude-3", "system": "S", "messages": marked(count)} for count in (1, 3, 5)]
    (run,) = read_transcripts(jsonl(tmp_path / "log.jsonl", lines))
    assert ("anthropic_messages", 3) == (run.form, len(run.prompts))
    assert run.prompts[1].messages[2] is run.prompts[2].messages[2]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}},
            CallUsage(9, 4, 0, 2),
        ),
        ({"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}, CallUsage(9, 4, 0, 2)),
        (
            {"input_tokens": 1, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 3, "output_tokens": 2},
            CallUsage(9, 5, 3, 2),
        ),
        (
            {"inputTokens": 1, "cacheReadInputTokens": 5, "cacheWriteInputTokens": 3, "outputTokens": 2},
            CallUsage(9, 5, 3, 2),
        ),
    ],
)
def test_what_the_provider_counted_is_read(tmp_path: Path, usage: dict[str, Any], expected: CallUsage) -> None:
    """As each provider writes it."""
    lines = [{"request": body, "response": {"usage": usage}} for body in bodies(2)]
    (run,) = read_transcripts(jsonl(tmp_path / "log.jsonl", lines))
    assert [expected, expected] == [prompt.usage for prompt in run.prompts]


def test_a_single_request_is_a_whole_history(tmp_path: Path) -> None:
    """It is replayed turn by turn, as there is no other prompt of its run."""
    (run,) = read_transcripts(jsonl(tmp_path / "log.jsonl", [{"request": {"messages": chat(3)}}]))
    assert [2, 4, 6, 8] == [len(prompt.messages) for prompt in run.prompts]


def test_lines_that_are_no_requests_are_reported(tmp_path: Path) -> None:
    """They are passed over; so is what an earlier response held."""
    lines = [*bodies(2), {"note": "restarted"}, {"model": "gpt-5", "input": "Go on.", "previous_response_id": "r1"}]
    first, second = read_transcripts(jsonl(tmp_path / "log.jsonl", lines))
    assert any("1 lines" in sentence for sentence in first.missing)
    assert any("1 requests refer" in sentence for sentence in second.missing)
    assert "openai_responses" == second.form


def test_half_a_character_is_no_damage(tmp_path: Path) -> None:
    """A model wrote it, or a stream was cut in it; whole pairs stay what they are."""
    contents = ["x", "\ud83d half", "\U0001f600 whole, \\ud83d as text"]
    messages = [
        {"role": role, "content": text} for role, text in zip(("user", "assistant", "user"), contents, strict=True)
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps({"model": "m", "messages": messages[:count]}) for count in (1, 3)) + "\n")
    (run,) = read_transcripts(log)

    texts = [json.loads(each)["content"] for each in run.prompts[1].messages]
    assert ["x", "\ufffd half", "\U0001f600 whole, \\ud83d as text"] == texts
