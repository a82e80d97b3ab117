"""Responses to TrimPrompt put together from pieces, beside their slow twin, one message built field by field."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.doors.grpc.conversion.pieces import TrimAnswers
from prompt_sidecar.facts.trim_calls import (
    CacheFigures,
    Edit,
    EditOperation,
    NoFit,
    OwnText,
    OwnTextKind,
    OwnTextPlace,
    Phases,
    ReturnedPrompt,
    RevisionUse,
    StashEntry,
    TokenFigures,
    Trim,
    TrimAnswer,
    Trimmed,
)
from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.trim.entries import Action, Reason
from prompt_sidecar.v1 import conversation_pb2, trim_pb2
from tests.doors.grpc.conversion.test_wire import counts, messages, texts

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
    prompt=st.builds(
        ReturnedPrompt,
        body=st.none() | st.binary(max_size=400),
        messages=st.none(),
        edits=st.lists(st.builds(Edit, st.sampled_from(EditOperation), texts, st.binary(max_size=20)), max_size=2),
        own_text=st.lists(
            st.builds(OwnText, st.sampled_from(OwnTextKind), st.sampled_from(OwnTextPlace), st.integers(-1, 99), texts),
            max_size=3,
        ),
        revision=st.binary(max_size=20),
    ),
    trimmed=st.builds(Trimmed, trims, entries, st.booleans(), counts),
    tokens=st.builds(TokenFigures, counts, counts, counts, texts, st.booleans(), st.floats(0.5, 2), counts),
    no_fit=st.none() | st.sampled_from(NoFit),
    revision_use=st.sampled_from(RevisionUse),
    cache=st.builds(CacheFigures, st.integers(-1, 99), counts, counts, st.booleans(), counts),
    iteration=counts,
    model=texts,
    phases=st.just(Phases()),
)


@given(answers, st.none() | messages)
def test_the_pieces_parse_as_the_whole(answer: TrimAnswer, typed: list[conversation_pb2.Message] | None) -> None:
    """The concatenated pieces are the encoding of the response that a plain conversion builds."""
    if answer.prompt.body is None and typed is not None:
        answer = replace(
            answer, prompt=replace(answer.prompt, messages=[message.SerializeToString() for message in typed])
        )
    writer = TrimAnswers()
    expected = whole(answer)
    for _ in range(2):  # The second time from what was kept.
        assert expected == trim_pb2.TrimPromptResponse.FromString(writer.write("c", "r", answer))


@given(answers, trims, entries)
def test_kept_pieces_follow_the_facts(answer: TrimAnswer, later: list[Trim], registry: list[StashEntry]) -> None:
    """New trims or entries are written anew, whatever was kept; also when there is no room to keep anything."""
    for room in (1 << 20, 3):
        writer = TrimAnswers(room)
        changed = replace(answer.trimmed, trims=later)
        both = replace(changed, stash_entries=registry)
        for turn in (answer, replace(answer, trimmed=changed), replace(answer, trimmed=both)):
            assert whole(turn) == trim_pb2.TrimPromptResponse.FromString(writer.write("c", "r", turn))
        writer.forget("c", "r")
        assert whole(answer) == trim_pb2.TrimPromptResponse.FromString(writer.write("c", "r", answer))


@given(answers)
def test_pieces_of_other_runs_go_where_there_is_no_room(answer: TrimAnswer) -> None:
    """That is counted, and so are the bytes that are kept; one run alone evicts nothing."""
    reached: list[str] = []
    trim = Trim(0, 0, ItemKind.RESULT, Action.CLIPPED, Reason.AGE, 7, "abcdefghij", 1)
    answers_of = {run: replace(answer, trimmed=Trimmed([trim])) for run in ("one", "two")}
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
        revision=answer.prompt.revision,
        compacted=answer.trimmed.compacted,
        iteration=answer.iteration,
        not_stashable=answer.trimmed.not_stashable,
        untrimmed=answer.untrimmed or "",
    )
    if answer.prompt.body is not None:
        response.json_body = answer.prompt.body
    elif answer.prompt.messages is not None:
        response.conversation.SetInParent()
        for message in answer.prompt.messages:
            response.conversation.messages.add().MergeFromString(message)
    for edit in answer.prompt.edits:
        operation = trim_pb2.EditOperation.Value("EDIT_OPERATION_" + edit.operation.upper())
        response.edits.add(operation=operation, pointer=edit.pointer, value=edit.value)
    for trim in answer.trimmed.trims:
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
    for entry in answer.trimmed.stash_entries:
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
    for own in answer.prompt.own_text:
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
