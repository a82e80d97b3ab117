"""TrimPrompt: its request, and the parts of its response. `pieces.py` puts the response together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prompt_sidecar.calls.checks import check_length, check_number, checked_run_id
from prompt_sidecar.doors.grpc.conversion.comparison import comparison_message
from prompt_sidecar.doors.grpc.conversion.enums import enum_name, enum_numbers
from prompt_sidecar.doors.grpc.conversion.guard import finding_message
from prompt_sidecar.doors.grpc.conversion.wire import ASK_EVERY, lift_body, read_request
from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.facts.history_size import HistorySize, SizeKind
from prompt_sidecar.facts.trim_calls import (
    Annotation,
    CacheFigures,
    EditOperation,
    NoFit,
    OwnTextKind,
    OwnTextPlace,
    RevisionUse,
    StashEntry,
    TokenFigures,
    Trim,
    TrimAnswer,
    TrimCall,
)
from prompt_sidecar.guard.ceilings import CeilingAction, CeilingKind, CeilingScope, CeilingUse
from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.prompt.provider_edits import ProviderEdit
from prompt_sidecar.trim.entries import Action, Reason
from prompt_sidecar.trim.own_text import plain_name
from prompt_sidecar.trim.repeated_calls import Repetition
from prompt_sidecar.v1 import guard_pb2, policy_pb2, trim_pb2

CLIENT_BYTES = 4 * 1024 * 1024
"""Bytes that a gRPC client receives unless it is configured otherwise."""

_CHOICES = {
    "note_place": policy_pb2.NotePlace,
    "age_stage": policy_pb2.AgeStage,
    "age_arguments": policy_pb2.AgeArguments,
    "reasoning_binding": policy_pb2.ReasoningBinding,
}
"""The policy's fields that are enums, besides the preset."""
_NOT_OVERRIDES = frozenset({"preset", *_CHOICES})

_KIND = enum_numbers(trim_pb2.ItemKind, "ITEM_KIND_", ItemKind)
_ACTION = enum_numbers(trim_pb2.TrimAction, "TRIM_ACTION_", Action)
_REASON = enum_numbers(trim_pb2.TrimReason, "TRIM_REASON_", Reason)
_NO_FIT = enum_numbers(trim_pb2.NoFitReason, "NO_FIT_REASON_", NoFit)
_OWN_KIND = enum_numbers(trim_pb2.OwnTextKind, "OWN_TEXT_KIND_", OwnTextKind)
_OWN_PLACE = enum_numbers(trim_pb2.OwnTextPlace, "OWN_TEXT_PLACE_", OwnTextPlace)
_EDIT = enum_numbers(trim_pb2.EditOperation, "EDIT_OPERATION_", EditOperation)
_REVISION_USE = enum_numbers(trim_pb2.RevisionUse, "REVISION_USE_", RevisionUse, RevisionUse.NONE)
_PROVIDER_EDIT = enum_numbers(trim_pb2.ProviderEdit, "PROVIDER_EDIT_", ProviderEdit)
_CEILING_SCOPE = enum_numbers(guard_pb2.CeilingScope, "CEILING_SCOPE_", CeilingScope)
_CEILING_KIND = enum_numbers(guard_pb2.CeilingKind, "CEILING_KIND_", CeilingKind)
_CEILING_ACTION = enum_numbers(guard_pb2.CeilingAction, "CEILING_ACTION_", CeilingAction)
_SIZE_KIND = enum_numbers(trim_pb2.SizeKind, "SIZE_KIND_", SizeKind)


def _never() -> None:
    """Nobody stops the call."""


def trim_call(raw: bytes, caller: str, most_bytes: int, check: Callable[[], None] = _never) -> TrimCall:
    """Return the call that a serialised TrimPromptRequest of `caller` asks for.

    Args:
        raw: the request.
        caller: who sent it.
        most_bytes: the largest answer that the server sends, whatever the request accepts.
        check: called now and then; what it raises ends the call.

    Raises:
        DecodeError: the bytes are not a request.
        InvalidRequest: a field's value is wrong in any state of the sidecar.
    """
    lifted, raw = lift_body(raw, check)
    request, messages = read_request(raw, check)
    run_id = checked_run_id(request.run_id)
    if messages is not None:
        form, body = "conversation", b""
    elif request.HasField("json"):
        form, body = (
            enum_name(trim_pb2.Format, request.json.format, "FORMAT_", "json.format"),
            lifted or request.json.body,
        )
    else:
        raise InvalidRequest("the request holds no prompt; set json or conversation", field="prompt")
    check_length("model", request.model)
    check_number("context_window", request.context_window, 0)
    check_number("accept_bytes", request.accept_bytes, 0)
    if request.HasField("output_reserve"):
        check_number("output_reserve", request.output_reserve, 0)
    if request.HasField("served_iterations"):
        check_number("served_iterations", request.served_iterations, 0)
    preset, overrides = _policy(request.policy)
    pinned, annotations = _annotations(request, check)
    mode = enum_name(trim_pb2.ResponseMode, request.response_mode or 1, "RESPONSE_MODE_", "response_mode")
    return TrimCall(
        caller=caller,
        run_id=run_id,
        format=form,
        body=body,
        messages=messages,
        model=request.model,
        context_window=request.context_window,
        output_reserve=request.output_reserve if request.HasField("output_reserve") else None,
        preset=preset,
        policy=overrides,
        pinned=pinned,
        annotations=annotations,
        recall_unavailable=request.recall_unavailable,
        dry_run=request.dry_run,
        side_call=request.side_call,
        base_revision=request.base_revision,
        revision=request.revision,
        edits=mode == "edits",
        accept_bytes=min(request.accept_bytes or CLIENT_BYTES, most_bytes),
        served_iterations=request.served_iterations if request.HasField("served_iterations") else None,
    )


def rest_of_response(answer: TrimAnswer) -> trim_pb2.TrimPromptResponse:
    """Return the response without its prompt, `trims` and `stash_entries`, which `pieces.py` adds."""
    return trim_pb2.TrimPromptResponse(
        edits=[
            trim_pb2.Edit(operation=_EDIT[edit.operation], pointer=edit.pointer, value=edit.value)
            for edit in answer.prompt.edits
        ],
        tokens=token_figures(answer.tokens),
        fits=answer.fits,
        no_fit_reason=_NO_FIT[answer.no_fit] if answer.no_fit else trim_pb2.NO_FIT_REASON_UNSPECIFIED,
        revision=answer.prompt.revision,
        cache=cache_figures(answer.cache),
        own_text=[
            trim_pb2.OwnText(
                kind=_OWN_KIND[own.kind], place=_OWN_PLACE[own.place], message_index=own.message_index, text=own.text
            )
            for own in answer.prompt.own_text
        ],
        compacted=answer.trimmed.compacted,
        iteration=answer.iteration,
        not_stashable=answer.trimmed.not_stashable,
        revision_use=_REVISION_USE[answer.revision_use],
        thinking_invalid_from=answer.prompt.thinking_invalid_from,
        provider_edits=[_PROVIDER_EDIT[edit] for edit in answer.provider_edits],
        history_size=None if answer.size is None else history_size(answer.size),
        crossed_percent=answer.news.crossed,
        repeated_calls=map(_repeated, answer.news.repeated),
        findings=map(finding_message, answer.guard.findings),
        ceilings=map(ceiling_use, answer.guard.ceilings),
        observed_only=answer.prompt.observed_only,
        comparison=None if answer.savings.comparison is None else comparison_message(answer.savings.comparison),
    )


def ceiling_use(use: CeilingUse) -> guard_pb2.CeilingUse:
    """Return the message of a ceiling and what is used of it."""
    return guard_pb2.CeilingUse(
        scope=_CEILING_SCOPE[use.scope],
        kind=_CEILING_KIND[use.kind],
        action=_CEILING_ACTION[use.action],
        limit=use.limit,
        used=use.used,
    )


def trim_message(trim: Trim) -> bytes:
    """Return an encoded Trim."""
    return trim_pb2.Trim(
        message_index=trim.message_index,
        item_index=trim.item_index,
        kind=_KIND[trim.kind],
        action=_ACTION[trim.action],
        reason=_REASON[trim.reason],
        tokens_saved=trim.tokens_saved,
        stash_id=trim.stash_id,
        decided_iteration=trim.decided_iteration,
    ).SerializeToString()


def entry_message(entry: StashEntry) -> bytes:
    """Return an encoded StashEntry."""
    return trim_pb2.StashEntry(
        stash_id=entry.stash_id,
        kind=_KIND[entry.kind],
        tool=entry.tool,
        arguments_summary=entry.arguments,
        iteration=entry.iteration,
        original_bytes=entry.original_bytes,
    ).SerializeToString()


def token_figures(tokens: TokenFigures) -> trim_pb2.TokenFigures:
    """Return the message of a prompt's token figures."""
    return trim_pb2.TokenFigures(
        before=tokens.before,
        after=tokens.after,
        limit=tokens.limit,
        encoding=tokens.encoding,
        exact=tokens.exact,
        calibration_factor=tokens.factor,
        own_text=tokens.own_text,
        window_assumed=tokens.window_assumed,
    )


def cache_figures(cache: CacheFigures) -> trim_pb2.CacheFigures:
    """Return the message of what happened to the provider's prompt cache."""
    return trim_pb2.CacheFigures(
        first_changed_message=cache.first_changed,
        kept_prefix_tokens=cache.kept,
        rewritten_tokens=cache.rewritten,
        batch_point=cache.batch_point,
        batch_points=cache.batch_points,
    )


def history_size(size: HistorySize) -> trim_pb2.HistorySize:
    """Return the message of a history's size."""
    return trim_pb2.HistorySize(
        kinds=[
            trim_pb2.KindTokens(
                kind=_SIZE_KIND[kind],
                tokens_sent=of_kind.tokens_sent,
                tokens_returned=of_kind.tokens_returned,
                items=of_kind.items,
            )
            for kind, of_kind in size.by_kind.items()
        ],
        messages=size.messages,
        messages_returned=size.messages_returned,
        tokens_sent=size.tokens_sent,
        tokens_returned=size.tokens_returned,
        share_of_limit=size.share_of_limit,
    )


def _policy(policy: policy_pb2.Policy) -> tuple[str, Mapping[str, object]]:
    """Return the preset's name, empty for the configured one, and the fields that are set."""
    preset = enum_name(policy_pb2.Preset, policy.preset, "PRESET_", "policy.preset") if policy.preset else ""
    overrides: dict[str, object] = {
        # Recognised by its field, as the request's classes are not the generated ones: see wire.py.
        field.name: list(value.prefixes) if hasattr(value, "prefixes") else value
        for field, value in policy.ListFields()
        if field.name not in _NOT_OVERRIDES
    }
    for name, enum in _CHOICES.items():
        if number := getattr(policy, name):
            overrides[name] = enum_name(enum, number, f"{name.upper()}_", f"policy.{name}")
    return preset, overrides


def _annotations(
    request: trim_pb2.TrimPromptRequest, check: Callable[[], None]
) -> tuple[frozenset[int], Mapping[int, Annotation]]:
    """Return the indices of pinned messages, and the other annotations by index; a message may have both."""
    pinned: set[int] = set()
    others: dict[int, Annotation] = {}
    names: dict[int, str] = {}
    for index, annotation in enumerate(request.annotations):
        if index % ASK_EVERY == 0:
            check()
        number = annotation.kind
        kind = names.get(number, "")
        if not kind:
            where = f"annotations[{index}].kind"
            kind = names[number] = enum_name(trim_pb2.AnnotationKind, number, "ANNOTATION_KIND_", where)
        if annotation.message_index < 0:
            check_number(f"annotations[{index}].message_index", annotation.message_index, 0)
        if kind == "pinned":
            pinned.add(annotation.message_index)
        else:
            others[annotation.message_index] = Annotation(kind)
    return frozenset(pinned), others


def _repeated(call: Repetition) -> trim_pb2.RepeatedCall:
    return trim_pb2.RepeatedCall(
        tool=plain_name(call.tool),
        iteration=call.iteration,
        first_iteration=call.first_iteration,
        times=call.times,
        tokens=call.tokens,
        message_index=call.message,
    )
