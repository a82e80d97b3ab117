"""Answers that pass through a door, cut into pieces anywhere, and broken ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from prompt_sidecar.guard.restoring import restore
from prompt_sidecar.guard.vault import Value
from prompt_sidecar.serving.dialects.table import DIALECTS
from prompt_sidecar.serving.restored_answers import RestoredStream, whole_restored
from tests.client.provider import SHAPES, Says
from tests.http.path_models import WAYS, hear, pieces
from tests.http.streams import EVENTS
from tests.http.upstream import FORMATS

MASK = "⟦github_token:aaaaaaaaaa⟧"
VALUE = "ghp_value"
ANSWER = Says("Now.", [("c1", "deploy", {"token": f"a {MASK} b", "more": [MASK]}), ("c2", "print", {"text": "x"})])


def _restore(tool: str, arguments: str) -> str:
    known = Value("github_token", "aaaaaaaaaa", VALUE, "github_token", 0)
    done = restore(arguments.encode(), tool, ["deploy:github_token"], lambda each: known if each == known.id else None)
    return done.arguments.decode()


def _stream(path: str, says: Says = ANSWER) -> bytes:
    return b"".join(EVENTS[path](SHAPES[path](says, 1), {"stream_options": {"include_usage": True}}))


def _fed(path: str, whole: bytes, size: int, **options: int) -> bytes:
    stream = RestoredStream(DIALECTS[FORMATS[path]], _restore, **options)
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    return b"".join([*(stream.feed(piece) for piece in pieces), stream.feed(b"", last=True)])


def _arguments(answer: bytes) -> Sequence[str]:
    """The arguments in a stream's pieces, joined, by the order of their calls."""
    found: dict[Any, str] = {}
    for line in answer.splitlines():
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        for choice in event.get("choices") or []:
            for call in choice["delta"].get("tool_calls") or []:
                found[call["index"]] = found.get(call["index"], "") + call["function"].get("arguments", "")
        if event.get("type") == "response.function_call_arguments.delta":
            found[event["output_index"]] = found.get(event["output_index"], "") + event["delta"]
        if event.get("type") == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
            found[event["index"]] = found.get(event["index"], "") + event["delta"]["partial_json"]
    return [text for _, text in sorted(found.items())]


@pytest.mark.parametrize("path", FORMATS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 61, 100_000])
def test_masks_are_restored_wherever_a_stream_is_cut(path: str, size: int) -> None:
    """Pieces end within a mask, within a character, within the end of an event."""
    answer = _fed(path, _stream(path), size)

    assert [{"token": f"a {VALUE} b", "more": [VALUE]}, {"text": "x"}] == [
        json.loads(each) for each in _arguments(answer)
    ]
    assert "github_token" not in answer.decode()


@pytest.mark.parametrize("path", FORMATS)
def test_a_stream_without_masks_stays_as_it_is(path: str) -> None:
    """Byte by byte, thinking and usage included."""
    whole = _stream(path, Says("Well.", [("c1", "deploy", {"token": "none"})]))

    assert whole == _fed(path, whole, 11)


def test_thinking_is_not_kept_waiting() -> None:
    """No turn can be hidden here, so each event goes on when it is whole."""
    chunk = {"id": "1", "choices": [{"index": 0, "delta": {"reasoning_content": "Hm."}, "finish_reason": None}]}
    event = b"data: " + json.dumps(chunk).encode() + b"\n\n"

    assert event == RestoredStream(DIALECTS["openai_chat"], _restore).feed(event)


def _up_to_half_a_mask(path: str) -> bytes:
    """The beginning of a stream, whole events, in whose arguments a mask has begun."""
    whole = _stream(path)
    events = whole.split(b"\n\n")
    for count in range(len(events)):
        begun = b"\n\n".join([*events[:count], b""])
        if any("github" in each for each in _arguments(begun)):
            return begun
    raise AssertionError("there is no mask")


@pytest.mark.parametrize("path", ["chat/completions", "messages"])
def test_a_stream_that_is_cut_off_loses_nothing(path: str) -> None:
    """What waited in the middle of a mask goes on at its end."""
    begun = _up_to_half_a_mask(path)

    assert _arguments(begun) == _arguments(_fed(path, begun, 5))


@pytest.mark.parametrize("path", ["chat/completions", "messages"])
def test_a_stream_beyond_its_bound_goes_on_with_its_masks(path: str) -> None:
    """Nothing of it is lost, though a mask had begun."""
    begun, whole = _up_to_half_a_mask(path), _stream(path)
    answer = _fed(path, whole, 50, most_bytes=len(begun))

    assert _arguments(whole) == _arguments(answer)


def test_what_cannot_be_read_passes() -> None:
    """Events that are too long, a stream that is too long, and frames with a wrong checksum."""
    long = b"data: " + b"x" * 500 + b"\n\n"
    frames = bytes(range(256))
    broken = RestoredStream(DIALECTS["bedrock_converse"], _restore)

    assert long == _fed("messages", long, 100, most_bytes=300)
    assert frames * 2 == broken.feed(frames) + broken.feed(frames, last=True)


@pytest.mark.parametrize(
    "body", [b"", b"[1]", b"{", b'{"choices": 5}', b'{"choices": [{"message": {"tool_calls": [7]}}]}']
)
def test_whole_answers_that_hold_no_calls_pass(body: bytes) -> None:
    """Whatever they are."""
    assert whole_restored(DIALECTS["openai_chat"], body, _restore) is None


def test_a_failure_costs_no_answer() -> None:
    """The masks stay, and the answer is the provider's."""

    def fails(*_: str) -> str:
        raise RuntimeError

    whole = json.dumps(SHAPES["messages"](ANSWER, 1)).encode()
    stream = RestoredStream(DIALECTS["anthropic_messages"], fails)
    answer = stream.feed(_stream("messages")) + stream.feed(b"", last=True)

    assert whole_restored(DIALECTS["anthropic_messages"], whole, fails) is None
    assert _arguments(_stream("messages")) == _arguments(answer)


@pytest.mark.parametrize("name", ["gemini-sse", "bedrock-stream"])
@pytest.mark.parametrize("size", [1, 61, 100_000])
def test_streams_of_other_forms_are_restored_too(name: str, size: int) -> None:
    """Gemini gives a call's arguments whole, Bedrock in frames with checksums."""
    way = WAYS[name]
    dialect = DIALECTS[way.format]
    whole = b"".join(pieces(way, Says("Now.", [("c1", "deploy", {"token": MASK})])))
    stream = RestoredStream(dialect, _restore)
    cut = [stream.feed(whole[at : at + size]) for at in range(0, len(whole), size)]
    answer = b"".join([*cut, stream.feed(b"", last=True)])

    assert [("deploy", {"token": VALUE})] == [call[1:] for call in hear(way, answer, {}).calls]
