"""TrimPrompt: its request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from prompt_sidecar.calls.checks import check_length, check_number, checked_run_id
from prompt_sidecar.doors.grpc.conversion.enums import enum_name
from prompt_sidecar.doors.grpc.conversion.wire import ASK_EVERY, lift_body, read_request
from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.facts.trim_calls import (
    Annotation,
    TrimCall,
)
from prompt_sidecar.v1 import policy_pb2, trim_pb2

CLIENT_BYTES = 4 * 1024 * 1024
"""Bytes that a gRPC client receives unless it is configured otherwise."""

_OPTIONAL: Final = ("output_reserve", "served_iterations")
_CHOICES = {
    "note_place": policy_pb2.NotePlace,
    "age_stage": policy_pb2.AgeStage,
    "age_arguments": policy_pb2.AgeArguments,
    "condense": policy_pb2.Condense,
    "reasoning_binding": policy_pb2.ReasoningBinding,
}
"""The policy's fields that are enums, besides the preset."""
_NOT_OVERRIDES = frozenset({"preset", *_CHOICES})


def _never() -> None:
    """Do nothing: the default for a call that cannot be ended."""


def trim_call(raw: bytes, caller: str, most_bytes: int, check: Callable[[], None] = _never) -> TrimCall:
    """Return the call that a serialised TrimPromptRequest of `caller` asks for.

    Args:
        raw: the request.
        caller: who sent it.
        most_bytes: the largest answer that the server sends, whatever the request accepts.
        check: called from time to time; an exception from it ends the call.

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
    optional: dict[str, int | None] = {}
    for name in _OPTIONAL:
        optional[name] = getattr(request, name) if request.HasField(name) else None
        check_number(name, optional[name] or 0, 0)
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
        preset=preset,
        policy=overrides,
        pinned=pinned,
        annotations=annotations,
        recall_unavailable=request.recall_unavailable,
        dry_run=request.dry_run,
        as_run=False,
        side_call=request.side_call,
        base_revision=request.base_revision,
        revision=request.revision,
        edits=mode == "edits",
        changed_edits_only=request.changed_edits_only,
        in_place=False,
        accept_bytes=min(request.accept_bytes or CLIENT_BYTES, most_bytes),
        **optional,
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
