"""Reading requests without copies, beside the slow twin: slices of typed messages, and a body without its request."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.doors.grpc.conversion.wire import length_delimited, lift_body, read_request, write_slices
from prompt_sidecar.errors import DeadlinePassed, TooLarge
from prompt_sidecar.v1 import conversation_pb2, trim_pb2

texts = st.text(max_size=40)


counts = st.integers(0, 2**31 - 1)


parts = st.one_of(
    st.builds(lambda text: conversation_pb2.Part(text=text), texts),
    st.builds(
        lambda a, b, c: conversation_pb2.Part(tool_call=conversation_pb2.ToolCall(id=a, name=b, arguments_json=c)),
        texts,
        texts,
        texts,
    ),
    st.builds(
        lambda a, b: conversation_pb2.Part(tool_result=conversation_pb2.ToolResult(call_id=a, text=b)), texts, texts
    ),
)


messages = st.lists(
    st.builds(
        lambda role, parts: conversation_pb2.Message(role=role, parts=parts),
        st.sampled_from([number for number in conversation_pb2.Role.values() if number]),
        st.lists(parts, max_size=3),
    ),
    max_size=6,
)


@given(messages)
def test_slices_are_the_bytes_of_each_message(sent: list[conversation_pb2.Message]) -> None:
    """Reading a typed prompt gives each message's encoding, as serialising the parsed messages would."""
    request = trim_pb2.TrimPromptRequest(run_id="r", conversation=conversation_pb2.Conversation(messages=sent))
    read, slices = read_request(request.SerializeToString())
    assert "r" == read.run_id
    assert [message.SerializeToString() for message in sent] == list(slices or ())


@given(messages)
def test_written_slices_parse_as_a_conversation(sent: list[conversation_pb2.Message]) -> None:
    """Writing slices gives a Conversation of the messages that they encode."""
    written = write_slices([message.SerializeToString() for message in sent])
    assert conversation_pb2.Conversation(messages=sent) == conversation_pb2.Conversation.FromString(written)


def test_unusual_encodings_survive() -> None:
    """Unknown fields, fields out of order and over-long varints come out as they came in."""
    odd = b"\x12\x04\x0a\x02hi" + b"\x08\x82\x00" + b"\xfa\x3f\x03new"
    conversation = b"".join(length_delimited(1, odd))
    raw = b"".join((*length_delimited(1, b"r"), *length_delimited(3, conversation)))
    assert (odd,) == read_request(raw)[1]
    assert conversation == write_slices([odd])


def test_a_json_prompt_has_no_slices() -> None:
    """Slices are None where the prompt is not typed, and empty where it is typed and empty."""
    as_json = trim_pb2.TrimPromptRequest(json=trim_pb2.JsonPrompt(body=b"[]"))
    empty = trim_pb2.TrimPromptRequest(conversation=conversation_pb2.Conversation())
    assert (None, ()) == (read_request(as_json.SerializeToString())[1], read_request(empty.SerializeToString())[1])


@pytest.mark.parametrize("raw", [b"\xff", b"\x0a\xff", b"\x0a\x02\xff\xfe", b"\x12\x05ab"])
def test_bytes_that_are_no_request_are_refused(raw: bytes) -> None:
    """Broken tags, lengths and UTF-8 raise DecodeError."""
    with pytest.raises(DecodeError):
        read_request(raw)


def _request(body: bytes, model: str, window: int) -> trim_pb2.TrimPromptRequest:
    return trim_pb2.TrimPromptRequest(
        run_id="run",
        json=trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=body),
        model=model,
        context_window=window,
    )


@given(st.binary(max_size=300), st.text(max_size=5), st.integers(0, 2**31 - 1))
def test_a_lifted_body_is_the_parsed_one(body: bytes, model: str, window: int) -> None:
    """Taking the body out of the encoding gives what a parse gives, and leaves the rest as it is."""
    request = _request(body, model, window)
    lifted, rest = lift_body(request.SerializeToString())
    left = trim_pb2.TrimPromptRequest.FromString(rest)
    assert body == (lifted or left.json.body)
    left.json.body = body
    assert request == left


@given(st.binary(max_size=60), st.integers(0, 80), st.binary(max_size=8))
def test_an_odd_request_is_left_to_the_parse(body: bytes, at: int, junk: bytes) -> None:
    """Whatever is done to the encoding, the body and the rest together parse as the whole does, or both do not."""
    raw = _request(body, "m", 1).SerializeToString()
    odd = raw[:at] + junk + raw[at:]
    lifted, rest = lift_body(odd)
    try:
        whole = trim_pb2.TrimPromptRequest.FromString(odd)
    except DecodeError:
        with pytest.raises(DecodeError):
            trim_pb2.TrimPromptRequest.FromString(rest)
        return
    left = trim_pb2.TrimPromptRequest.FromString(rest)
    if lifted:
        left.json.body = lifted
    assert whole == left


def test_two_prompts_are_left_to_the_parse() -> None:
    """Protobuf merges a field that comes twice; so does the sidecar, which then takes nothing out itself."""
    raw = _request(b"[1]", "m", 1).SerializeToString() + _request(b"[2]", "m", 1).SerializeToString()
    assert (b"", raw) == lift_body(raw)


def _many(field: int, content: bytes = b"") -> bytes:
    """A million fields."""
    return b"".join(length_delimited(field, content)) * 1_000_000


ANNOTATIONS = trim_pb2.TrimPromptRequest.ANNOTATIONS_FIELD_NUMBER


def test_fields_are_counted_without_a_call_for_each() -> None:
    """To refuse a million annotations takes a few calls of functions: other calls wait for them."""
    raw = _request(b"[]", "m", 1).SerializeToString() + _many(ANNOTATIONS)
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        with pytest.raises(TooLarge):
            lift_body(raw)
    finally:
        sys.setprofile(None)
    assert calls < 1_000


def test_counting_fields_ends_with_the_call() -> None:
    """A call that nobody waits for ends after some thousand fields."""
    asked = 0

    def passed() -> None:
        nonlocal asked
        asked += 1
        raise DeadlinePassed("the deadline has passed")

    with pytest.raises(DeadlinePassed):
        lift_body(_many(ANNOTATIONS), passed)
    assert 1 == asked
    lift_body(_request(b"[]", "m", 1).SerializeToString(), passed)
    assert 1 == asked


@pytest.mark.parametrize("odd", [b"", b"\x73\x74", b"\x79\0\0\0\0\0\0\0\0", b"\x78\x01"])
def test_no_field_hides_a_million_others(odd: bytes) -> None:
    """Behind a group, a number or nothing, annotations are counted; so are messages."""
    with pytest.raises(TooLarge):
        lift_body(odd + _many(ANNOTATIONS))
    with pytest.raises(TooLarge):
        read_request(odd + b"".join(length_delimited(3, _many(1))))


def test_messages_of_all_conversations_are_counted() -> None:
    """The parser makes one conversation of several."""
    one = b"".join(length_delimited(3, b"".join(length_delimited(1)) * 150_000))
    assert 150_000 == len(read_request(one)[1] or ())
    with pytest.raises(TooLarge):
        read_request(one * 2)


def test_a_long_policy_is_refused_before_it_is_parsed() -> None:
    """Its lists could have millions of elements; several policies are one."""
    prefixes = b"".join(length_delimited(1, b"".join(length_delimited(1)) * 200_000))
    policy = b"".join(length_delimited(trim_pb2.TrimPromptRequest.POLICY_FIELD_NUMBER, prefixes))
    read_request(policy)
    with pytest.raises(TooLarge, match="policy has"):
        read_request(policy * 3)


@pytest.mark.parametrize("name", ["json", "policy", "annotations"])
def test_the_collector_frees_no_class_of_a_message_within(name: str) -> None:
    """Another thread may be about to use it."""
    request = trim_pb2.TrimPromptRequest(run_id="r", json=trim_pb2.JsonPrompt(body=b"{}"))
    request.policy.SetInParent()
    request.annotations.add()

    def class_within() -> weakref.ref[type]:
        found = getattr(read_request(request.SerializeToString())[0], name)
        return weakref.ref(type(found[0] if name == "annotations" else found))

    kept = class_within()
    gc.collect()
    assert kept() is not None
