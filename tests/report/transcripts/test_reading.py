"""Every kind of file is recognised by its content, and what is none is named with the place of the fault."""

from __future__ import annotations

import gzip
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.report.transcripts import files
from prompt_sidecar.report.transcripts.model import TranscriptError
from prompt_sidecar.report.transcripts.reading import read_transcripts
from tests.report.transcripts.samples import bodies, chat, jsonl, rollout, session

UI = [
    {"id": "1", "role": "user", "parts": [{"type": "text", "text": "Look."}]},
    {
        "id": "2",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {
                "type": "tool-look",
                "toolCallId": "c1",
                "state": "output-available",
                "input": {"at": 1},
                "output": "found",
            },
            {"type": "step-start"},
            {"type": "text", "text": "Done."},
        ],
    },
]
MODEL_MESSAGES = [
    {"role": "user", "content": "Look."},
    {
        "role": "assistant",
        "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "look", "input": {"at": 1}}],
    },
    {
        "role": "tool",
        "content": [
            {
                "type": "tool-result",
                "toolCallId": "c1",
                "toolName": "look",
                "output": {"type": "text", "value": "found"},
            }
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
]


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("lines", "form"),
    [(session(), "anthropic_messages"), (rollout(), "openai_responses"), (bodies(), "openai_chat")],
)
def test_kinds_are_recognised_by_their_content(
    tmp_path: Path, lines: list[dict[str, Any]], form: str, *, zipped: bool
) -> None:
    """Whatever the file is called, gzipped or not."""
    path = jsonl(tmp_path / "any.txt", lines)
    if zipped:
        path.write_bytes(gzip.compress(path.read_bytes()))
    (run,) = read_transcripts(path)
    assert (form, 3 + (form != "openai_chat")) == (run.form, len(run.prompts))


@pytest.mark.parametrize("messages", [UI, MODEL_MESSAGES])
def test_the_ai_sdks_messages_are_read(tmp_path: Path, messages: list[Any]) -> None:
    """Those that a chat stores become those that its model got."""
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(messages, indent=2))
    (run,) = read_transcripts(path)
    assert "ai_sdk" == run.form
    read_back = [json.loads(message) for message in run.prompts[-1].messages]
    assert MODEL_MESSAGES[1:] == read_back[1:]
    assert [1, 3, 4] == [len(prompt.messages) for prompt in run.prompts]


def test_messages_one_a_line_are_a_run(tmp_path: Path) -> None:
    """As some agents write them; the bytes of what a message holds are kept."""
    lines = [{**message, "type": "message"} for message in chat(2)]
    (run,) = read_transcripts(jsonl(tmp_path / "m.jsonl", lines))
    assert lines == [json.loads(message) for message in run.prompts[-1].messages]


@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_is_read(tmp_path: Path, packed: bool) -> None:
    """As the shell's `<(...)` makes one, packed or not."""
    made = b'[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]'
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(gzip.compress(made) if packed else made,))
    writer.start()
    try:
        (run,) = read_transcripts(path, "openai_chat")
    finally:
        writer.join()
    assert 2 == len(run.prompts)


def test_a_broken_line_is_named_by_its_number(tmp_path: Path) -> None:
    """And not by its text."""
    path = jsonl(tmp_path / "s.jsonl", session())
    lines = path.read_text().splitlines()
    lines[3] = '{"type": "user", "secret words'
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(TranscriptError, match=r"s\.jsonl, line 4: it is not a JSON object") as raised:
        read_transcripts(path)
    assert "secret" not in str(raised.value)


def test_a_last_line_that_is_cut_off_is_left_out(tmp_path: Path) -> None:
    """As of a session that runs or was killed; the run says so."""
    path = jsonl(tmp_path / "s.jsonl", session())
    path.write_text(path.read_text() + '{"type": "assistant", "mess')
    (run,) = read_transcripts(path)
    assert any("is cut off" in sentence for sentence in run.missing)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"  \n\n", "is empty"),
        (b"once upon a time", "not a run"),
        (b'{"a": 1}\n{"a": 2}\n', "not a run"),
        (b'{"messages": "none"}', "not a run"),
        (b'[{"parts": 1}]', "not a run"),
        (b'{"messages": []}\n{"messages": []}\n', "no request with messages"),
        (b'{"type": "user", "uuid": "u", "message": {"role": "user", "content": "x"}}\n', "no call of a model"),
        (b"[" * 100_000, "not a run"),
        (b"\xff\xfe{", "not a run"),
    ],
)
def test_what_is_no_transcript_is_reported(tmp_path: Path, content: bytes, words: str) -> None:
    """With the file's name and what would be accepted."""
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(TranscriptError, match=words) as raised:
        read_transcripts(path)
    assert str(path) in str(raised.value)


def test_a_huge_line_is_named_by_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line has a bound, and so has a file, unpacked."""
    path = jsonl(tmp_path / "s.jsonl", session(size=2_000))
    monkeypatch.setattr(files, "LINE_BYTES", 10_000)
    with pytest.raises(TranscriptError, match=r"line 5: it has more than 10,000 bytes"):
        read_transcripts(path)
    path.write_bytes(gzip.compress(path.read_bytes()))
    monkeypatch.setattr(files, "FILE_BYTES", 10_000)
    with pytest.raises(TranscriptError, match="more than 10,000 bytes, which is the most"):
        read_transcripts(path)
