"""The wire's fast paths beside their slow twins: slices of typed messages, and answers put together from pieces."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.facts.trim_calls import (
    CacheFigures,
    Edit,
    EditOperation,
    NoFit,
    OwnText,
    OwnTextKind,
    OwnTextPlace,
    Phases,
    RevisionUse,
    StashEntry,
    TokenFigures,
    Trim,
    TrimAnswer,
)
from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.server.answers import TrimAnswers
from prompt_sidecar.server.wire import length_delimited, lift_body, read_request, write_slices
from prompt_sidecar.trim.entries import Action, Reason
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

trims = st.lists(
    st.builds(
        Trim,
        counts,
        counts,
        st.sampled_from(ItemKind),
        st.sampled_from(Action),
        st.sampled_from(Reason),
        counts,
        texts,
        counts,
    ),
    max_size=4,
)
entries = st.lists(st.builds(StashEntry, texts, st.sampled_from(ItemKind), texts, texts, counts, counts), max_size=4)
answers = st.builds(
    TrimAnswer,
    body=st.none() | st.binary(max_size=400),
    messages=st.none(),
    edits=st.lists(st.builds(Edit, st.sampled_from(EditOperation), texts, st.binary(max_size=20)), max_size=2),
    trims=trims,
    stash_entries=entries,
    tokens=st.builds(TokenFigures, counts, counts, counts, texts, st.booleans(), st.floats(0.5, 2), counts),
    fits=st.booleans(),
    no_fit=st.none() | st.sampled_from(NoFit),
    revision=st.binary(max_size=20),
    revision_use=st.sampled_from(RevisionUse),
    cache=st.builds(CacheFigures, st.integers(-1, 99), counts, counts, st.booleans(), counts),
    own_text=st.lists(
        st.builds(OwnText, st.sampled_from(OwnTextKind), st.sampled_from(OwnTextPlace), st.integers(-1, 99), texts),
        max_size=3,
    ),
    compacted=st.booleans(),
    iteration=counts,
    not_stashable=counts,
    phases=st.just(Phases()),
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


@given(answers, st.none() | messages)
def test_the_pieces_parse_as_the_whole(answer: TrimAnswer, typed: list[conversation_pb2.Message] | None) -> None:
    """The concatenated pieces are the encoding of the response that a plain conversion builds."""
    if answer.body is None and typed is not None:
        answer = replace(answer, messages=[message.SerializeToString() for message in typed])
    writer = TrimAnswers()
    expected = whole(answer)
    for _ in range(2):  # The second time from what was kept.
        assert expected == trim_pb2.TrimPromptResponse.FromString(writer.write("c", "r", answer))


@given(answers, trims, entries)
def test_kept_pieces_follow_the_facts(answer: TrimAnswer, later: list[Trim], registry: list[StashEntry]) -> None:
    """New trims or entries are written anew, whatever was kept; also when there is no room to keep anything."""
    for room in (1 << 20, 3):
        writer = TrimAnswers(room)
        for turn in (answer, replace(answer, trims=later), replace(answer, trims=later, stash_entries=registry)):
            assert whole(turn) == trim_pb2.TrimPromptResponse.FromString(writer.write("c", "r", turn))
        writer.forget("c", "r")
        assert whole(answer) == trim_pb2.TrimPromptResponse.FromString(writer.write("c", "r", answer))


@given(answers)
def test_pieces_of_other_runs_go_where_there_is_no_room(answer: TrimAnswer) -> None:
    """That is counted, and what is kept is told; of one run alone nothing goes."""
    reached: list[str] = []
    trim = Trim(0, 0, ItemKind.RESULT, Action.CLIPPED, Reason.AGE, 7, "abcdefghij", 1)
    answers_of = {run: replace(answer, trims=[trim], stash_entries=()) for run in ("one", "two")}
    writer = TrimAnswers(600, reached.append)
    for _ in range(2):
        writer.write("c", "one", answers_of["one"])
    assert [] == reached
    assert 400 < writer.kept_bytes <= 600
    writer.write("c", "two", answers_of["two"])
    assert ["server.answer_parts"] == reached
    assert 400 < writer.kept_bytes <= 600


def whole(answer: TrimAnswer) -> trim_pb2.TrimPromptResponse:
    """The slow twin: one message built field by field."""
    response = trim_pb2.TrimPromptResponse(
        fits=answer.fits,
        revision=answer.revision,
        compacted=answer.compacted,
        iteration=answer.iteration,
        not_stashable=answer.not_stashable,
    )
    if answer.body is not None:
        response.json_body = answer.body
    elif answer.messages is not None:
        response.conversation.SetInParent()
        for message in answer.messages:
            response.conversation.messages.add().MergeFromString(message)
    for edit in answer.edits:
        operation = trim_pb2.EditOperation.Value("EDIT_OPERATION_" + edit.operation.upper())
        response.edits.add(operation=operation, pointer=edit.pointer, value=edit.value)
    for trim in answer.trims:
        response.trims.add(
            message_index=trim.message_index,
            item_index=trim.item_index,
            kind=trim_pb2.ItemKind.Value("ITEM_KIND_" + trim.kind.upper()),
            action=trim_pb2.TrimAction.Value("TRIM_ACTION_" + trim.action.upper()),
            reason=trim_pb2.TrimReason.Value("TRIM_REASON_" + trim.reason.upper()),
            tokens_saved=trim.tokens_saved,
            stash_id=trim.stash_id,
            decided_iteration=trim.decided_iteration,
        )
    for entry in answer.stash_entries:
        response.stash_entries.add(
            stash_id=entry.stash_id,
            kind=trim_pb2.ItemKind.Value("ITEM_KIND_" + entry.kind.upper()),
            tool=entry.tool,
            arguments_summary=entry.arguments,
            iteration=entry.iteration,
            original_bytes=entry.original_bytes,
        )
    tokens, cache = answer.tokens, answer.cache
    response.tokens.CopyFrom(
        trim_pb2.TokenFigures(
            before=tokens.before,
            after=tokens.after,
            limit=tokens.limit,
            encoding=tokens.encoding,
            exact=tokens.exact,
            calibration_factor=tokens.factor,
            own_text=tokens.own_text,
        )
    )
    response.cache.CopyFrom(
        trim_pb2.CacheFigures(
            first_changed_message=cache.first_changed,
            kept_prefix_tokens=cache.kept,
            rewritten_tokens=cache.rewritten,
            batch_point=cache.batch_point,
            batch_points=cache.batch_points,
        )
    )
    for own in answer.own_text:
        response.own_text.add(
            kind=trim_pb2.OwnTextKind.Value("OWN_TEXT_KIND_" + own.kind.upper()),
            place=trim_pb2.OwnTextPlace.Value("OWN_TEXT_PLACE_" + own.place.upper()),
            message_index=own.message_index,
            text=own.text,
        )
    if answer.no_fit is not None:
        response.no_fit_reason = trim_pb2.NoFitReason.Value("NO_FIT_REASON_" + answer.no_fit.upper())
    if answer.revision_use is not RevisionUse.NONE:
        response.revision_use = trim_pb2.RevisionUse.Value("REVISION_USE_" + answer.revision_use.upper())
    return response


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
