"""Prompts and retrievals to facts: what was sent is checked for what the wire cannot say, and becomes the core's calls.

A value that no state of the sidecar would make right is refused here with the field's name; what depends on the prompt
or the run is the core's to judge.
"""

from __future__ import annotations

from collections.abc import Mapping

from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.facts.recall_calls import RetrieveCall
from prompt_sidecar.facts.trim_calls import Annotation, TrimCall
from prompt_sidecar.recall.selection import ByteRange, LineRange, PatternMatch, Selection
from prompt_sidecar.server.fields import NAME_BYTES, check_name, check_number, checked_run_id, enum_name
from prompt_sidecar.server.wire import lift_body, read_request
from prompt_sidecar.v1 import policy_pb2, retrieve_pb2, trim_pb2

CLIENT_BYTES = 4 * 1024 * 1024
"""What a gRPC client can receive unless it says otherwise."""
CONTEXT_LINES = 100
"""The most lines around a match; more is a range of lines."""

_NOT_OVERRIDES = frozenset({"preset", "note_place", "age_stage"})


def trim_call(raw: bytes, caller: str, most_bytes: int) -> TrimCall:
    """Turn a serialised TrimPromptRequest into a call of `caller`; no answer may pass `most_bytes`.

    Raises:
        DecodeError: the bytes are not a request.
        InvalidRequest: a field's value is never right.
    """
    lifted, raw = lift_body(raw)
    request, messages = read_request(raw)
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
    if len(request.model.encode()) > NAME_BYTES:
        raise InvalidRequest(f"model has over {NAME_BYTES} bytes", field="model")
    check_number("context_window", request.context_window, 0)
    check_number("accept_bytes", request.accept_bytes, 0)
    if request.HasField("output_reserve"):
        check_number("output_reserve", request.output_reserve, 0)
    if request.HasField("served_iterations"):
        check_number("served_iterations", request.served_iterations, 0)
    preset, overrides = _policy(request.policy)
    pinned, annotations = _annotations(request)
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


def retrieve_call(request: retrieve_pb2.RetrieveContentRequest, caller: str) -> RetrieveCall:
    """Turn a RetrieveContentRequest into a call of `caller`.

    Raises:
        InvalidRequest: a field's value is never right.
    """
    check_name("stash_id", request.stash_id)
    check_number("page_tokens", request.page_tokens, 0)
    check_number("offset", request.offset, 0)
    return RetrieveCall(
        caller=caller,
        run_id=checked_run_id(request.run_id),
        stash_id=request.stash_id,
        selection=_selection(request),
        page_tokens=request.page_tokens,
        offset=request.offset,
    )


def _selection(request: retrieve_pb2.RetrieveContentRequest) -> Selection:
    match request.WhichOneof("selection"):
        case "lines":
            lines = request.lines
            check_number("lines.first", lines.first, 1)
            if lines.last:
                check_number("lines.last", lines.last, lines.first)
            return LineRange(lines.first, lines.last)
        case "bytes":
            check_number("bytes.start", request.bytes.start, 0)
            if request.bytes.end:
                check_number("bytes.end", request.bytes.end, request.bytes.start)
            return ByteRange(request.bytes.start, request.bytes.end)
        case "pattern":
            pattern = request.pattern
            if not pattern.expression:
                raise InvalidRequest("pattern.expression is empty", field="pattern.expression")
            if not 0 <= pattern.context_lines <= CONTEXT_LINES:
                raise InvalidRequest(
                    f"pattern.context_lines is {pattern.context_lines}; it may be 0 to {CONTEXT_LINES}",
                    field="pattern.context_lines",
                )
            return PatternMatch(pattern.expression, pattern.context_lines, pattern.ignore_case)
        case _:
            return None


def _policy(policy: policy_pb2.Policy) -> tuple[str, Mapping[str, object]]:
    """Return the preset's name, empty for the configured one, and the fields that are set."""
    preset = enum_name(policy_pb2.Preset, policy.preset, "PRESET_", "policy.preset") if policy.preset else ""
    overrides: dict[str, object] = {
        # By its field and not its class: the request is read with a twin of the generated classes.
        field.name: list(value.prefixes) if hasattr(value, "prefixes") else value
        for field, value in policy.ListFields()
        if field.name not in _NOT_OVERRIDES
    }
    if policy.note_place:
        overrides["note_place"] = enum_name(policy_pb2.NotePlace, policy.note_place, "NOTE_PLACE_", "policy.note_place")
    if policy.reasoning_binding:
        overrides["reasoning_binding"] = enum_name(
            policy_pb2.ReasoningBinding,
            policy.reasoning_binding,
            "REASONING_BINDING_",
            "policy.reasoning_binding",
        )
    if policy.age_stage:
        overrides["age_stage"] = enum_name(policy_pb2.AgeStage, policy.age_stage, "AGE_STAGE_", "policy.age_stage")
    return preset, overrides


def _annotations(request: trim_pb2.TrimPromptRequest) -> tuple[frozenset[int], Mapping[int, Annotation]]:
    """Return the indices of pinned messages, and what else is said of messages; one may be both."""
    pinned: set[int] = set()
    others: dict[int, Annotation] = {}
    names: dict[int, str] = {}
    for index, annotation in enumerate(request.annotations):
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
