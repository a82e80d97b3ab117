"""TrimPrompt: what is wrong in any state is rejected by its field, the rest arrives unchanged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from prompt_sidecar.doors.grpc.conversion.trim import CLIENT_BYTES, trim_call
from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.v1 import conversation_pb2, policy_pb2, trim_pb2
from tests.doors.grpc.serving import BODY, request

MOST = 1 << 26


def _change(**fields: object) -> Callable[[trim_pb2.TrimPromptRequest], None]:
    def change(asked: trim_pb2.TrimPromptRequest) -> None:
        asked.MergeFrom(trim_pb2.TrimPromptRequest(**fields))  # type: ignore[arg-type]

    return change


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("run_id", lambda asked: asked.ClearField("run_id")),
        ("run_id", _change(run_id="x" * 257)),
        ("run_id", _change(run_id="é" * 129)),
        ("run_id", _change(run_id="a\nb")),
        ("prompt", lambda asked: asked.ClearField("json")),
        ("json.format", lambda asked: asked.json.ClearField("format")),
        ("json.format", _change(json=trim_pb2.JsonPrompt(format=99))),  # type: ignore[arg-type]
        ("model", _change(model="m" * 257)),
        ("context_window", _change(context_window=-1)),
        ("output_reserve", _change(output_reserve=-1)),
        ("accept_bytes", _change(accept_bytes=-1)),
        ("response_mode", _change(response_mode=9)),
        ("policy.preset", _change(policy=policy_pb2.Policy(preset=77))),  # type: ignore[arg-type]
        ("policy.note_place", _change(policy=policy_pb2.Policy(note_place=77))),  # type: ignore[arg-type]
        ("annotations[0].kind", _change(annotations=[trim_pb2.Annotation(message_index=1)])),
        ("annotations[1].kind", _change(annotations=[{"kind": 1}, {"kind": 8}])),
        ("annotations[0].message_index", _change(annotations=[{"kind": 1, "message_index": -1}])),
    ],
)
def test_a_bad_field_is_named(field: str, change: Callable[[trim_pb2.TrimPromptRequest], None]) -> None:
    """A value that is never right raises InvalidRequest with the field's path, and nothing of the prompt."""
    asked = request()
    change(asked)
    with pytest.raises(InvalidRequest) as caught:
        trim_call(asked.SerializeToString(), "local", MOST)
    assert field == caught.value.field
    assert "hello" not in caught.value.message


def test_a_plain_request_takes_the_defaults() -> None:
    """What is not sent means: the configured policy, the body's own reserve, what gRPC clients can receive."""
    call = trim_call(request("run-1").SerializeToString(), "local", MOST)
    assert ("local", "run-1", "openai_chat", BODY, None) == (
        call.caller,
        call.run_id,
        call.format,
        call.body,
        call.messages,
    )
    assert ("", {}, None, False, CLIENT_BYTES) == (
        call.preset,
        call.policy,
        call.output_reserve,
        call.edits,
        call.accept_bytes,
    )


def test_every_option_arrives() -> None:
    """Set fields arrive under the core's names; zeros that are set differ from fields that are not."""
    asked = request()
    asked.MergeFrom(
        trim_pb2.TrimPromptRequest(
            output_reserve=0,
            policy=policy_pb2.Policy(
                preset=policy_pb2.PRESET_FIT_ONLY,
                cap_head_share=0.0,
                fit_residue_high=0.3,
                note_place=policy_pb2.NOTE_PLACE_OFF,
            ),
            annotations=[
                trim_pb2.Annotation(message_index=index, kind=trim_pb2.ANNOTATION_KIND_PINNED) for index in (4, 0)
            ],
            response_mode=trim_pb2.RESPONSE_MODE_EDITS,
            accept_bytes=2**31 - 1,
        )
    )
    call = trim_call(asked.SerializeToString(), "local", MOST)
    assert "fit_only" == call.preset
    assert {"cap_head_share": 0.0, "fit_residue_high": 0.3, "note_place": "off"} == call.policy
    assert (0, frozenset({0, 4}), True, MOST) == (call.output_reserve, call.pinned, call.edits, call.accept_bytes)


def test_typed_prompts_arrive_as_slices() -> None:
    """A conversation is handed on as the bytes of its messages."""
    message = conversation_pb2.Message(role=conversation_pb2.ROLE_USER, parts=[conversation_pb2.Part(text="hi")])
    asked = trim_pb2.TrimPromptRequest(run_id="r", conversation=conversation_pb2.Conversation(messages=[message]))
    call = trim_call(asked.SerializeToString(), "local", MOST)
    assert ("conversation", (message.SerializeToString(),)) == (call.format, call.messages)
