"""Requests to facts: what was sent is checked for what the wire cannot say, and turned into the core's calls.

A value that no state of the sidecar would make right is refused here with the field's name; what depends on the prompt
or the run is the core's to judge.
"""

from __future__ import annotations

from collections.abc import Mapping

from sidecar.errors import InvalidRequest
from sidecar.run.calls import ByteRange, LineRange, PatternMatch, RetrieveCall, Selection, TrimCall
from sidecar.server.wire import WireEnum, lift_body, read_request
from sidecar.v1 import policy_pb2, retrieve_pb2, trim_pb2

RUN_ID_BYTES = 256
"""The longest run id: four times a UUID with a prefix; ids are kept for every run and written to logs."""
NAME_BYTES = 256
"""The longest model name or stash id that is looked at."""
CLIENT_BYTES = 4 * 1024 * 1024
"""What a gRPC client can receive unless it says otherwise."""
CONTEXT_LINES = 100
"""The most lines around a match; more is a range of lines."""

_NOT_OVERRIDES = frozenset({"preset", "note_place"})


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
        form, body = _name(trim_pb2.Format, request.json.format, "FORMAT_", "json.format"), lifted or request.json.body
    else:
        raise InvalidRequest("the request holds no prompt; set json or conversation", field="prompt")
    if len(request.model.encode()) > NAME_BYTES:
        raise InvalidRequest(f"model has over {NAME_BYTES} bytes", field="model")
    _least("context_window", request.context_window, 0)
    _least("accept_bytes", request.accept_bytes, 0)
    if request.HasField("output_reserve"):
        _least("output_reserve", request.output_reserve, 0)
    preset, overrides = _policy(request.policy)
    mode = _name(trim_pb2.ResponseMode, request.response_mode or 1, "RESPONSE_MODE_", "response_mode")
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
        pinned=_pinned(request),
        recall_unavailable=request.recall_unavailable,
        dry_run=request.dry_run,
        side_call=request.side_call,
        base_revision=request.base_revision,
        revision=request.revision,
        edits=mode == "edits",
        accept_bytes=min(request.accept_bytes or CLIENT_BYTES, most_bytes),
    )


def retrieve_call(request: retrieve_pb2.RetrieveContentRequest, caller: str) -> RetrieveCall:
    """Turn a RetrieveContentRequest into a call of `caller`.

    Raises:
        InvalidRequest: a field's value is never right.
    """
    if not 1 <= len(request.stash_id.encode()) <= NAME_BYTES:
        raise InvalidRequest(f"stash_id must have 1 to {NAME_BYTES} bytes", field="stash_id")
    _least("page_tokens", request.page_tokens, 0)
    _least("offset", request.offset, 0)
    return RetrieveCall(
        caller=caller,
        run_id=checked_run_id(request.run_id),
        stash_id=request.stash_id,
        selection=_selection(request),
        page_tokens=request.page_tokens,
        offset=request.offset,
    )


def checked_run_id(run_id: str) -> str:
    """Return `run_id` if it can be one.

    Raises:
        InvalidRequest: it is empty, too long, or holds a character that cannot be printed.
    """
    size = len(run_id.encode())
    if not 1 <= size <= RUN_ID_BYTES:
        raise InvalidRequest(f"run_id has {size} bytes; it must have 1 to {RUN_ID_BYTES}", field="run_id")
    if not run_id.isprintable():
        raise InvalidRequest("run_id holds a character that cannot be printed", field="run_id")
    return run_id


def _selection(request: retrieve_pb2.RetrieveContentRequest) -> Selection:
    match request.WhichOneof("selection"):
        case "lines":
            lines = request.lines
            _least("lines.first", lines.first, 1)
            if lines.last:
                _least("lines.last", lines.last, lines.first)
            return LineRange(lines.first, lines.last)
        case "bytes":
            _least("bytes.start", request.bytes.start, 0)
            if request.bytes.end:
                _least("bytes.end", request.bytes.end, request.bytes.start)
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
    preset = _name(policy_pb2.Preset, policy.preset, "PRESET_", "policy.preset") if policy.preset else ""
    overrides: dict[str, object] = {
        field.name: value for field, value in policy.ListFields() if field.name not in _NOT_OVERRIDES
    }
    if policy.note_place:
        overrides["note_place"] = _name(policy_pb2.NotePlace, policy.note_place, "NOTE_PLACE_", "policy.note_place")
    return preset, overrides


def _pinned(request: trim_pb2.TrimPromptRequest) -> frozenset[int]:
    for index, annotation in enumerate(request.annotations):
        _name(trim_pb2.AnnotationKind, annotation.kind, "ANNOTATION_KIND_", f"annotations[{index}].kind")
        _least(f"annotations[{index}].message_index", annotation.message_index, 0)
    return frozenset(annotation.message_index for annotation in request.annotations)


def _name(enum: WireEnum, value: int, prefix: str, field: str) -> str:
    """Return the lower-case name of a value without its prefix; 0 and values that are not known are refused."""
    names: Mapping[int, str] = {number: name for name, number in enum.items()}
    if value == 0 or value not in names:
        accepted = ", ".join(name for number, name in sorted(names.items()) if number)
        said = "not set" if value == 0 else f"{value}, which is not known"
        raise InvalidRequest(f"{field} is {said}; it may be one of {accepted}", field=field)
    return names[value].removeprefix(prefix).lower()


def _least(field: str, value: int, low: int) -> None:
    if value < low:
        raise InvalidRequest(f"{field} is {value}; it must be at least {low}", field=field)
