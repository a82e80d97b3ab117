"""Answers that pass through a door, cut into pieces anywhere, and broken ones."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.answers.frames import frame
from prompt_sidecar.answers.restored_answers import RestoredStream, RestoredWhole, whole_restored
from prompt_sidecar.answers.sse import Event
from prompt_sidecar.answers.table import DIALECTS
from prompt_sidecar.facts.envoy_calls import MasksStay
from prompt_sidecar.guard.restoring import restore
from prompt_sidecar.guard.vault import Value
from tests.client.provider import SHAPES, Says
from tests.doors.http.path_models import WAYS, Way, hear, pieces
from tests.doors.http.streams import EVENTS
from tests.doors.http.upstream import FORMATS
from tests.integrations.test_httpx_masks import _pieced

MASK = "⟦github_token:aaaaaaaaaa⟧"
VALUE = "ghp_value"
MOST = 8_388_608
ANSWER = Says("Now.", [("c1", "deploy", {"token": f"a {MASK} b", "more": [MASK]}), ("c2", "print", {"text": "x"})])


def _restore(tool: str, arguments: str) -> str:
    known = Value("github_token", "aaaaaaaaaa", VALUE, "github_token", 0)
    done = restore(arguments.encode(), tool, ["deploy:github_token"], lambda each: known if each == known.id else None)
    return done.arguments.decode()


def _stream(path: str, says: Says = ANSWER) -> bytes:
    return b"".join(EVENTS[path](SHAPES[path](says, 1), {"stream_options": {"include_usage": True}}))


def _fed(path: str, whole: bytes, size: int, most_bytes: int = MOST) -> bytes:
    stream = RestoredStream(DIALECTS[FORMATS[path]], _restore, most_bytes)
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

    assert event == RestoredStream(DIALECTS["openai_chat"], _restore, MOST).feed(event)


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
    broken = RestoredStream(DIALECTS["bedrock_converse"], _restore, MOST)

    assert long == _fed("messages", long, 100, most_bytes=300)
    assert frames * 2 == broken.feed(frames) + broken.feed(frames, last=True)


@pytest.mark.parametrize(
    "body", [b"", b"[1]", b"{", b'{"choices": 5}', b'{"choices": [{"message": {"tool_calls": [7]}}]}']
)
def test_whole_answers_that_hold_no_calls_pass(body: bytes) -> None:
    """Whatever they are."""
    assert whole_restored(DIALECTS["openai_chat"], body, _restore).body is None


def test_a_failure_costs_no_answer() -> None:
    """The masks stay, and the answer is the provider's."""

    def fails(*_: str) -> str:
        raise RuntimeError

    whole = json.dumps(SHAPES["messages"](ANSWER, 1)).encode()
    stream = RestoredStream(DIALECTS["anthropic_messages"], fails, MOST)
    answer = stream.feed(_stream("messages")) + stream.feed(b"", last=True)

    assert RestoredWhole(None, MasksStay.FAILED) == whole_restored(DIALECTS["anthropic_messages"], whole, fails)
    assert MasksStay.FAILED == stream.stay
    assert _arguments(_stream("messages")) == _arguments(answer)


@pytest.mark.parametrize("name", ["gemini-sse", "gemini-array", "bedrock-stream"])
@pytest.mark.parametrize("size", [1, 61, 100_000])
def test_streams_of_other_forms_are_restored_too(name: str, size: int) -> None:
    """Gemini gives a call's arguments whole, in events or elements of an array, Bedrock in frames with checksums."""
    way = WAYS[name]
    dialect = DIALECTS[way.format]
    whole = b"".join(pieces(way, Says("Now.", [("c1", "deploy", {"token": MASK})])))
    stream = RestoredStream(dialect, _restore, MOST, array=name == "gemini-array")
    cut = [stream.feed(whole[at : at + size]) for at in range(0, len(whole), size)]
    answer = b"".join([*cut, stream.feed(b"", last=True)])

    assert [("deploy", {"token": VALUE})] == [call[1:] for call in _calls(way, answer)]


def _calls(way: Way, answer: bytes) -> list[tuple[str, str, Any]]:
    if way is not WAYS["gemini-array"]:
        return hear(way, answer, {}).calls
    parts = [part for each in json.loads(answer) for part in each["candidates"][0]["content"]["parts"]]
    return [
        ("", each["functionCall"]["name"], each["functionCall"]["args"]) for each in parts if "functionCall" in each
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 50, 100_000])
def test_an_array_without_masks_stays_as_it_is(size: int) -> None:
    """Byte by byte; each element goes on when it is whole, and what stands between two does not wait."""
    answers = [{"text": 'a "quoted\\" [one]', "of": [{}, [1]]}, {"n": 1}, {"text": "\\"}]
    whole = b" [" + b"\n,\r\n".join(json.dumps(each).encode() for each in answers) + b"\n]\n"
    stream = RestoredStream(DIALECTS["gemini_contents"], _restore, MOST, array=True)
    gone, ends = b"", {whole.index(json.dumps(each).encode()) + len(json.dumps(each)) for each in answers}
    for at in range(0, len(whole), size):
        gone += stream.feed(whole[at : at + size])
        if at + size in ends:
            assert not stream.waits
            assert len(gone) == at + size

    assert whole == gone + stream.feed(b"", last=True)
    assert stream.stay is None


@pytest.mark.parametrize("body", [b'{"error": {"code": 400}}', b"]]]", b'[{"a": 1}]{"b": 2}'])
def test_what_is_no_array_passes(body: bytes) -> None:
    """It is counted, and nothing of it is lost."""
    stream = RestoredStream(DIALECTS["gemini_contents"], _restore, MOST, array=True)

    assert body == stream.feed(body) + stream.feed(b"", last=True)
    assert MasksStay.UNREADABLE is stream.stay


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_masks_before_the_end_of_what_is_an_array_are_restored(size: int) -> None:
    """However the stream is cut: what follows goes on as it came."""
    part = {"functionCall": {"name": "deploy", "args": {"token": MASK}}}
    element = json.dumps({"candidates": [{"content": {"parts": [part]}}]}).encode()
    whole = b"[" + element + b"]] and more"
    stream = RestoredStream(DIALECTS["gemini_contents"], _restore, MOST, array=True)
    made = b"".join([*(stream.feed(whole[at : at + size]) for at in range(0, len(whole), size))])
    made += stream.feed(b"", last=True)

    assert VALUE.encode() in made
    assert made.endswith(b"]] and more")
    assert MasksStay.UNREADABLE is stream.stay


def _chunk(*choices: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"id": "c", "model": "m", "choices": choices}).encode() + b"\n\n"


def _several(count: int, *, together: bool) -> bytes:
    """A stream in which each of several choices calls two tools, piece by piece."""
    texts = [json.dumps({"token": f"{number} {MASK}"}, ensure_ascii=False) for number in range(count)]
    made = []

    def send(entries: list[dict[str, Any]]) -> None:
        made.extend([_chunk(*entries[::-1])] if together else [_chunk(each) for each in entries])

    for call, tool in enumerate(("deploy", "print")):
        begun = {"index": call, "id": f"c{call}", "type": "function", "function": {"name": tool, "arguments": ""}}
        send([{"index": number, "delta": {"tool_calls": [begun]}, "finish_reason": None} for number in range(count)])
        for at in range(0, max(map(len, texts)), 5):
            pieces = [{"index": call, "function": {"arguments": text[at : at + 5]}} for text in texts]
            send(
                [
                    {"index": number, "delta": {"tool_calls": [each]}, "finish_reason": None}
                    for number, each in enumerate(pieces)
                ]
            )
    send([{"index": number, "delta": {}, "finish_reason": "tool_calls"} for number in range(count)])
    return b"".join(made) + b"data: [DONE]\n\n"


def _of_choices(answer: bytes) -> dict[tuple[int, int], str]:
    found: dict[tuple[int, int], str] = {}
    over: set[int] = set()
    for line in answer.splitlines():
        if line.startswith(b"data: {"):
            for choice in json.loads(line[6:])["choices"]:
                assert choice["index"] not in over, "a choice goes on after its end"
                for call in choice["delta"].get("tool_calls") or []:
                    key = choice["index"], call["index"]
                    found[key] = found.get(key, "") + call["function"]["arguments"]
                if choice["finish_reason"]:
                    over.add(choice["index"])
    return found


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("size", [1, 61, 100_000])
def test_masks_in_each_choice_are_restored(size: int, *, together: bool) -> None:
    """With `n` above 1, whether choices come one in a chunk or together, in any order."""
    answer = _fed("chat/completions", _several(3, together=together), size)

    assert {
        (number, call): {"token": f"{number} {VALUE if call == 0 else MASK}"} for number in range(3) for call in (0, 1)
    } == {key: json.loads(text) for key, text in _of_choices(answer).items()}


def test_choices_that_are_cut_off_lose_nothing() -> None:
    """What waited in the middle of a mask goes on at the end."""
    whole = _several(3, together=False)
    begun = whole[: whole.index(b"_toke")].rpartition(b"data: ")[0]

    assert _of_choices(begun) == _of_choices(_fed("chat/completions", begun, 7))


def test_masks_in_each_choice_of_a_whole_answer_are_restored() -> None:
    """As in a stream."""
    call = {"id": "c", "type": "function", "function": {"name": "deploy", "arguments": json.dumps({"token": MASK})}}
    answer = {"choices": [{"index": number, "message": {"tool_calls": [call]}} for number in range(3)]}
    made = whole_restored(DIALECTS["openai_chat"], json.dumps(answer).encode(), _restore).body

    assert made is not None
    assert 3 == made.count(VALUE.encode())


@pytest.mark.parametrize("path", FORMATS)
@pytest.mark.parametrize("size", [1, 7])
def test_what_waits_is_known(path: str, size: int) -> None:
    """Whenever nothing waits, what went on and the rest as the provider sends it are the whole answer."""
    whole = _stream(path)
    stream = RestoredStream(DIALECTS[FORMATS[path]], _restore, MOST)
    gone, found = b"", []
    for at in range(0, len(whole), size):
        gone += stream.feed(whole[at : at + size])
        if not stream.waits:
            found.append([json.loads(each) for each in _arguments(gone + whole[at + size :])])

    whole_or_not = {(f"a {token} b", more, "x") for token in (VALUE, MASK) for more in (VALUE, MASK)}
    assert [] == [each for each in found if (each[0]["token"], *each[0]["more"], each[1]["text"]) not in whole_or_not]
    assert 2 <= len({each[0]["token"] + each[0]["more"][0] for each in found})


_NAMES = st.sampled_from(
    [
        "choices", "index", "delta", "tool_calls", "function", "arguments", "name", "finish_reason", "usage",
        "type", "content_block", "contentBlockIndex", "start", "toolUse", "input", "item", "response",
        "output_index", "candidates", "content", "parts", "functionCall", "args", "message", "partial_json"
    ]
)  # fmt: skip
_TYPES = st.sampled_from(
    [
        "content_block_start", "content_block_delta", "content_block_stop", "response.output_item.added",
        "response.completed", "response.function_call_arguments.delta", "response.function_call_arguments.done"
    ]
)  # fmt: skip
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([MASK, MASK[:9], "\\", "deploy", "x"]) | _TYPES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(
    format=st.sampled_from(sorted(DIALECTS)),
    values=st.lists(_VALUES, max_size=8),
    kinds=st.lists(
        st.sampled_from(["contentBlockStart", "contentBlockDelta", "contentBlockStop", "other"]), min_size=8
    ),
    size=st.integers(1, 200),
    array=st.booleans(),
)
def test_nothing_that_a_provider_sends_breaks_a_stream(
    format: str, values: list[Any], kinds: list[str], size: int, *, array: bool
) -> None:
    """Members of any type in any place: the stream goes on to its end, and nothing of it waits there."""
    if array:
        whole = json.dumps(values).encode()
    elif format == "bedrock_converse":
        whole = b"".join(frame(value, kind) for value, kind in zip(values, kinds, strict=False))
    else:
        whole = b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)
    stream = RestoredStream(DIALECTS[format], _restore, MOST, array=array)
    gone = b"".join(stream.feed(whole[at : at + size]) for at in range(0, len(whole), size))
    gone += stream.feed(b"", last=True)

    assert not stream.waits
    assert not (whole and not gone)


def _cut_events(path: str, texts: Sequence[str]) -> bytes:
    """One call whose arguments come in these pieces of JSON text, which may be lone surrogates."""
    if path == "chat/completions":
        names = [{"id": "c1", "function": {"name": "deploy", "arguments": ""}}]
        pieces: list[Any] = [*names, *({"function": {"arguments": text}} for text in texts)]
        events: list[Any] = [
            {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **each}]}}]} for each in pieces
        ]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    elif path == "messages":
        block = {"type": "tool_use", "id": "c1", "name": "deploy", "input": {}}
        events = [{"type": "content_block_start", "index": 0, "content_block": block}]
        for text in texts:
            delta = {"type": "input_json_delta", "partial_json": text}
            events.append({"type": "content_block_delta", "index": 0, "delta": delta})
        events.append({"type": "content_block_stop", "index": 0})
    else:
        item = {"type": "function_call", "id": "i", "call_id": "c1", "name": "deploy", "arguments": ""}
        where, whole = {"output_index": 0, "item_id": "i"}, "".join(texts)
        events = [{"type": "response.output_item.added", "output_index": 0, "item": item}]
        events += [{"type": "response.function_call_arguments.delta", **where, "delta": text} for text in texts]
        events.append({"type": "response.function_call_arguments.done", **where, "arguments": whole})
        item = {**item, "arguments": whole}
        events.append({"type": "response.output_item.done", "output_index": 0, "item": item})
        events.append({"type": "response.completed", "response": {"status": "completed", "output": [item]}})
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


CUT: Final = {
    "a character": ('{"a":"x\ud83d', "\ude00y", f"{MASK}", 'z"}'),
    "behind a mask": (f'{{"a":"{MASK}\ud83d', '\ude00"}'),
    "before one": ('{"a":"\ud83d', f'\ude00{MASK}"}}'),
    "in JSON in a string": ('{"a":"{\\"b\\":\\"\ud83d', f'\ude00{MASK}\\"}}"}}'),
    "first alone": ('{"a":"\ud83d', f'-{MASK}"}}'),
    "second alone": (f'{{"a":"{MASK}', '\ude00-"}'),
    "as escapes": ('{"a":"\\ud83d', f'\\ude00{MASK}"}}'),
}


@pytest.mark.parametrize("path", FORMATS)
@pytest.mark.parametrize("how", CUT)
def test_characters_may_be_cut(path: str, how: str) -> None:
    """Their halves stay in order, and masks around them become values."""
    whole = _cut_events(path, CUT[how])
    answer = _fed(path, whole, 100_000)

    wanted = json.loads(
        "".join(CUT[how]).replace(MASK, VALUE).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    )
    found = json.loads(_arguments(answer)[0].encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass"))
    assert wanted == found
    if path == "responses":
        assert [found] * 3 == [json.loads(each) for each in _repeated(answer)]


def _repeated(answer: bytes) -> Sequence[str]:
    """The arguments as events of a response repeat them."""
    events = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith(b"data: {")]
    done = {event["type"]: event for event in events}
    return [
        done["response.function_call_arguments.done"]["arguments"],
        done["response.output_item.done"]["item"]["arguments"],
        done["response.completed"]["response"]["output"][0]["arguments"],
    ]


@pytest.mark.parametrize("path", FORMATS)
def test_cut_characters_stay_unchanged_without_masks(path: str) -> None:
    """In calls and in texts."""
    text = {"choices": [{"index": 0, "delta": {"content": "\ud83d"}}]}
    whole = b"data: " + json.dumps(text).encode() + b"\n\n"

    assert whole == _fed(path, whole, 100_000)


def _shared(choice: int, *, together: bool) -> bytes:
    """Two calls with one index in a choice."""
    calls = [
        {"index": 0, "id": call_id, "function": {"name": "deploy", "arguments": arguments}}
        for call_id, arguments in (("a", f'{{"t":"{MASK}"}}%'), ("b", f'{{"t":"{MASK}","n":2}}'))
    ]
    deltas = [calls] if together else [[each] for each in calls]
    chunks: list[Any] = [{"choices": [{"index": choice, "delta": {"tool_calls": each}}]} for each in deltas]
    chunks.append({"choices": [{"index": choice, "delta": {}, "finish_reason": "tool_calls"}]})
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("choice", [0, 1])
def test_calls_with_one_index_are_distinguished(choice: int, *, together: bool) -> None:
    """What waits of the first goes on before the second begins, in each choice."""
    answer = _fed("chat/completions", _shared(choice, together=together), 100_000)
    chunks = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith(b"data: {")]
    pieces = [each for one in chunks for each in one["choices"][0]["delta"].get("tool_calls", [])]
    joined: list[str] = []
    for piece in pieces:
        if piece.get("id"):
            joined.append("")
        joined[-1] += piece["function"]["arguments"]

    assert [f'{{"t":"{VALUE}"}}%', f'{{"t":"{VALUE}","n":2}}'] == joined


@pytest.mark.parametrize("choice", [0, 1])
def test_a_name_in_endless_pieces_is_not_pieced_together(choice: int) -> None:
    """Each piece would cost as much as all before it. They all go on to the agent."""
    names = [f"{number}{'x' * 300}" for number in range(20)]
    asked: list[str] = []

    def restore_noting(tool: str, arguments: str) -> str:
        asked.append(tool)
        return arguments

    stream = RestoredStream(DIALECTS["openai_chat"], restore_noting, MOST)
    calls = [{"index": 0, "function": {"name": name}} for name in names]
    calls.append({"index": 0, "function": {"arguments": json.dumps({"token": MASK}, ensure_ascii=False)}})
    whole = b"".join(_chunk({"index": choice, "delta": {"tool_calls": [call]}}) for call in calls)

    assert whole == stream.feed(whole) + stream.feed(b"", last=True)
    assert ["".join(names[:4])] == asked


@pytest.mark.parametrize("choice", [0, 1])
@pytest.mark.parametrize("begun", [[], ['{"token": "']])
def test_what_waits_of_a_last_piece_goes_behind_the_piece(choice: int, begun: Sequence[str]) -> None:
    """Some servers send the reason to finish with the last piece of a call; here it was cut off within a mask."""
    texts = [*begun, ('{"token": "' if not begun else "") + "a " + MASK[:-4]]
    reasons = [*(None for _ in begun), "length"]
    whole = b"".join(
        _chunk(
            {
                "index": choice,
                "delta": {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "deploy", "arguments": text}}]},
                "finish_reason": reason,
            }
        )
        for text, reason in zip(texts, reasons, strict=True)
    )

    calls = [
        call
        for line in _fed("chat/completions", whole, len(whole)).splitlines()
        if line.startswith(b"data: {")
        for each in json.loads(line[6:])["choices"]
        for call in each["delta"].get("tool_calls") or []
    ]

    assert calls[0]["id"] == "c1"
    assert "".join(texts) == "".join(call["function"]["arguments"] for call in calls)


def _event(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("announced", ["nothing", "begun", "pieces", "all but the end"])
def test_a_response_that_no_event_has_completed_is_restored(announced: str, *, numbered: bool) -> None:
    """What pieces were kept waiting goes on before the last event, which holds what the agent was sent."""
    text = json.dumps({"token": f"a {MASK}"}, ensure_ascii=False)
    call = {"type": "function_call", "id": "f", "call_id": "c", "name": "deploy"}
    message: dict[str, Any] = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Now."}]}
    events: list[tuple[str, dict[str, Any]]] = []
    if announced != "nothing":
        added = {"output_index": 1, "item": {**call, "arguments": "", "status": "in_progress"}}
        events.append(("response.output_item.added", added))
    if announced == "pieces":
        cut = text.index("⟦") + 5
        events += [
            ("response.function_call_arguments.delta", {"output_index": 1, "item_id": "f", "delta": each})
            for each in (text[:cut], text[cut:-3])
        ]
    if announced == "all but the end":
        delta = {"output_index": 1, "item_id": "f", "delta": text}
        events.append(("response.function_call_arguments.delta", delta))
    output: list[dict[str, Any]] = [message, {**call, "arguments": text, "status": "completed"}]
    events.append(("response.completed", {"response": {"id": "r", "status": "completed", "output": output}}))
    numbers = [{"sequence_number": number} if numbered else {} for number in range(len(events))]
    whole = b"".join([_event(kind, **each, **number) for (kind, each), number in zip(events, numbers, strict=True)])

    made = RestoredStream(DIALECTS["openai_responses"], _restore, MOST).feed(whole, last=True)

    got = [json.loads(line[6:]) for line in made.splitlines() if line.startswith(b"data: ")]
    restored = text.replace(MASK, VALUE)
    assert [message, {**output[1], "arguments": restored}] == got[-1]["response"]["output"]
    pieces = "".join([each["delta"] for each in got if "delta" in each])
    assert {"pieces": text[:-3], "all but the end": restored}.get(announced, "") == pieces
    assert (list(range(len(got))) if numbered else []) == [
        each["sequence_number"] for each in got if "sequence_number" in each
    ]


def test_all_chunks_of_an_answer_have_one_id() -> None:
    """Also what has waited in a later turn's call."""
    events = DIALECTS["openai_chat"].filter({"recall"}, None)
    events.restore = _restore
    made = b""
    for number, (name, text) in enumerate([("recall", "{}"), ("deploy", '{"token":"⟦github_')]):
        events.begin()
        call = {"index": 0, "id": f"c{number}", "function": {"name": name, "arguments": text}}
        deltas: list[tuple[Any, str | None]] = [({"content": "."}, None), ({"tool_calls": [call]}, None)]
        for delta, finish in [*deltas, ({}, "tool_calls")]:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            data = json.dumps({"id": f"provider {number}", "choices": [choice]}).encode()
            made += events.feed(Event(b"data: " + data + b"\n\n", data=data))

    chunks = [json.loads(line[6:]) for line in made.splitlines() if line.startswith(b"data: ")]
    assert {"provider 0"} == {each["id"] for each in chunks}
    assert "⟦github_" in json.dumps(chunks, ensure_ascii=False)


ODD = (
    '{"n":1E400,"token":"%s"}',
    '{"token":"%s","n":1,"n":"%s"}',
    '{"half":"\\ud83d","body":"{\\"n\\":1E400,\\"m\\":\\"%s\\"}"}',
)
"""Arguments, as text, that two parsers may read differently."""


@pytest.mark.parametrize("arguments", ODD)
@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_arguments_that_parsers_read_differently(path: str, arguments: str) -> None:
    """Values stand in place of masks, whole and streamed, and nothing else of the text changes."""
    masked = arguments.replace("%s", MASK)
    answer = SHAPES[path](Says("", [("c1", "deploy", {"token": "here"})]), 1)
    whole = json.dumps(answer).replace(json.dumps('{"token": "here"}'), json.dumps(masked)).encode()
    stream = b"".join(EVENTS[path](json.loads(whole), {"stream_options": {"include_usage": True}}))
    made = whole_restored(DIALECTS[FORMATS[path]], whole, _restore).body

    assert masked.replace(MASK, VALUE) in _strings(json.loads(made or b"null"))
    assert [masked.replace(MASK, VALUE)] == _arguments(_fed(path, stream, 7))


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in _strings(each)]


MARK = b"\xef\xbb\xbf"
"""A byte order mark, which some servers write before what they send."""


@pytest.mark.parametrize("path", ["chat/completions", "messages", "responses"])
@pytest.mark.parametrize("size", [1, 2, 100_000])
def test_a_byte_order_mark_before_a_stream(path: str, size: int) -> None:
    """It stays where it was, and the stream is read as it is without it."""
    whole = MARK + _stream(path)
    answer = _fed(path, whole, size)

    assert answer == MARK + _fed(path, whole.removeprefix(MARK), size)
    assert VALUE.encode() in answer


def test_a_byte_order_mark_before_the_event_with_a_call() -> None:
    """Google gives a call whole, in what may be the first event."""
    call = {"functionCall": {"name": "deploy", "args": {"token": MASK}}}
    event = json.dumps({"candidates": [{"content": {"parts": [call]}}]}, ensure_ascii=False).encode()
    stream = RestoredStream(DIALECTS["gemini_contents"], _restore, MOST)

    made = stream.feed(MARK + b"data: " + event + b"\r\n\r\n", last=True)
    assert MARK + b"data: " + event.replace(MASK.encode(), VALUE.encode()) + b"\r\n\r\n" == made


@pytest.mark.parametrize("path", FORMATS)
def test_a_byte_order_mark_before_a_whole_answer(path: str) -> None:
    """Values come, and all that precedes them stays."""
    whole = MARK + json.dumps(SHAPES[path](ANSWER, 1), indent=1, ensure_ascii=False).encode()
    made = whole_restored(DIALECTS[FORMATS[path]], whole, _restore).body or b""

    assert made.startswith(MARK + b"{\n")
    assert VALUE.encode() in made
    assert MASK.encode() not in made


@pytest.mark.parametrize("path", FORMATS)
@pytest.mark.parametrize("size", [1, 3, 8])
def test_an_event_that_fails_is_taken_back(path: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is: what has waited before it goes on once, and the event and all behind it as they came."""
    masked = json.dumps(
        {"token": f"{MASK} and {MASK}", "body": json.dumps({"a": MASK}, ensure_ascii=False)}, ensure_ascii=False
    )
    splitter = DIALECTS[FORMATS[path]].splitter(MOST)
    whole = b"".join(_pieced(path, [masked[at : at + size] for at in range(0, len(masked), size)]))
    events = splitter.feed(whole)
    for place in range(len(events)):
        stream = RestoredStream(DIALECTS[FORMATS[path]], _restore, MOST)
        feed, fed = stream._events.feed, itertools.count()  # noqa: SLF001  # what is to fail

        def failing(event: Event, feed: Any = feed, fed: Any = fed, place: int = place) -> bytes:
            made: bytes = feed(event)
            if next(fed) == place:
                raise LookupError
            return made

        monkeypatch.setattr(stream._events, "feed", failing)  # noqa: SLF001  # as above
        answer = stream.feed(whole) + stream.feed(b"", last=True)

        assert [masked] == [each.replace(VALUE, MASK) for each in _arguments(answer)]
        assert MasksStay.FAILED == stream.stay
