"""The client knows the whole interface: every method, every field, every enum, as the protos have them."""

from __future__ import annotations

import datetime as dt
import typing
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from prompt_sidecar.client import answers, arguments, facts
from prompt_sidecar.client.schema import SERVICE, enum_name, enum_names, make, message_class, methods
from prompt_sidecar.providers.messages import Format
from prompt_sidecar.providers.table import SDKS
from prompt_sidecar.v1 import policy_pb2, run_pb2, service_pb2, trim_pb2

ROOT = Path(__file__).parents[2]
BY_HAND = {facts.Restored: "RestoredArguments", facts.Trimmed: "TrimPromptResponse"}
"""What the client returns in dataclasses that are not generated, by their messages."""
OURS = {facts.Trimmed: {"prompt", "trimmed", "reason", "fallback", "left_out", "thinking_removed", "refused"}}
"""Fields that no message has."""
TURNED = {facts.Trimmed: {"json_body", "conversation", "edits", "edits_since_base"}}
"""Fields that become others: the prompt."""


def names(message: str) -> set[str]:
    """Names of a message's fields."""
    return {field.name for field in message_class(message).DESCRIPTOR.fields}


@pytest.mark.parametrize("fact", BY_HAND, ids=lambda fact: fact.__name__)
def test_a_fact_has_every_field_of_its_message(fact: type[Any]) -> None:
    """`make check` compares the others with the protos; a field that is added to these needs its line."""
    assert names(BY_HAND[fact]) - TURNED.get(fact, set()) == {f.name for f in fields(fact)} - OURS.get(fact, set())


@pytest.mark.parametrize(
    ("options", "message", "handled"),
    [
        (
            arguments.TrimOptions,
            "TrimPromptRequest",
            {"run_id", "json", "conversation", "response_mode", "accept_bytes", "changed_edits_only"},
        ),
        (arguments.SearchOptions, "SearchHistoryRequest", {"run_id", "query"}),
        (arguments.Usage, "ReportUsageRequest", {"run_id"}),
    ],
)
def test_options_have_every_field_of_their_request(options: Any, message: str, handled: set[str]) -> None:
    """What a request can say, a caller can say."""
    assert names(message) - handled == set(typing.get_type_hints(options))


def test_formats_and_kinds_are_those_of_the_protos() -> None:
    """The words that a type checker accepts are the ones that there are."""
    assert set(enum_names("JsonPrompt", "format")) == set(typing.get_args(Format))
    assert set(enum_names("Annotation", "kind")) == set(typing.get_args(arguments.Annotation))
    assert set(enum_names("UpdateTaskRequest", "status")) == set(typing.get_args(arguments.Status))
    assert set(SDKS) < set(typing.get_args(Format))


def test_every_method_is_known() -> None:
    """With the path and the messages that the service has."""
    service = service_pb2.DESCRIPTOR.services_by_name["SidecarService"]

    assert service.full_name == SERVICE
    assert {
        method.name: (f"/{SERVICE}/{method.name}", method.input_type.full_name, method.output_type.full_name)
        for method in service.methods
    } == {
        name: (path, request.DESCRIPTOR.full_name, response.DESCRIPTOR.full_name)
        for name, (path, request, response) in methods().items()
    }


def test_the_descriptors_are_those_of_the_stubs() -> None:
    """`make protos` wrote both; what it needs of others comes along, each file after those that it imports."""
    raw = (ROOT / "sidecar" / "prompt_sidecar" / "client" / "schema.binpb").read_bytes()
    held = {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(raw).file}
    seen: set[str] = set()
    for name, file in held.items():
        assert set(file.dependency) <= seen
        seen.add(name)
        if name.startswith("prompt_sidecar/"):
            generated = descriptor_pb2.FileDescriptorProto()
            import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR.CopyToProto(generated)
            for member in (*file.message_type, *generated.message_type):
                _forget_json_names(member)
            assert generated == file
    assert {"google/rpc/status.proto", "google/rpc/error_details.proto"} <= seen


def _forget_json_names(message: Any) -> None:
    """Both may tell them or not; they follow from the names."""
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        _forget_json_names(nested)


def test_a_request_is_what_the_stubs_make() -> None:
    """Mappings, lists, words for enums, lists for messages that wrap one, None for what is unset."""
    made = make(
        "TrimPromptRequest",
        run_id="r",
        json={"format": "anthropic_messages", "body": b"[]"},
        model=None,
        output_reserve=0,
        policy={"preset": "lean", "fit_high": 0.5, "feedback_error": ["E:"], "feedback_repetition": []},
        annotations=[{"message_index": 3, "kind": "pinned"}],
    )
    expected = trim_pb2.TrimPromptRequest(
        run_id="r",
        json=trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_ANTHROPIC_MESSAGES, body=b"[]"),
        output_reserve=0,
        annotations=[trim_pb2.Annotation(message_index=3, kind=trim_pb2.ANNOTATION_KIND_PINNED)],
    )
    expected.policy.preset = policy_pb2.PRESET_LEAN
    expected.policy.fit_high = 0.5
    expected.policy.feedback_error.prefixes.append("E:")
    expected.policy.feedback_repetition.SetInParent()

    assert expected == trim_pb2.TrimPromptRequest.FromString(made.SerializeToString())


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"policy": {"presett": "lean"}}, TypeError),
        ({"policy": {"preset": "leaner"}}, ValueError),
        ({"policy": {"preset": "unspecified"}}, ValueError),
        ({"context_window": 2**40}, ValueError),
        ({"context_window": "many"}, TypeError),
        ({"nonesuch": 1}, TypeError),
        ({"annotations": [{"message_index": 1, "kind": "pind"}]}, ValueError),
    ],
)
def test_a_slip_is_reported(values: dict[str, Any], error: type[Exception]) -> None:
    """What cannot be put into a request is an error of the ordinary kinds."""
    with pytest.raises(error):
        make("TrimPromptRequest", **values)


def test_an_unknown_value_of_an_enum_passes() -> None:
    """A newer server may say what this client does not know."""
    field = message_class("Trim").DESCRIPTOR.fields_by_name["action"]

    assert ("dropped", "unspecified", "unknown_99") == tuple(enum_name(field, number) for number in (3, 0, 99))


def test_a_fact_is_read_whole() -> None:
    """Scalars, enums, lists, messages in messages that are there or not, times."""
    sent = run_pb2.GetRunResponse()
    sent.run.run_id = "r"
    sent.run.started.FromNanoseconds(1_700_000_000_123_456_789)
    sent.run.unfinished_tasks.add(id=7, text="t", status=2)
    sent.run.stash.retrievals.add(outcome="HIT", count=3)
    sent.run.tokens.before = 5
    read = facts.read(answers.RunFigures, message_class("GetRunResponse").FromString(sent.SerializeToString()).run)

    assert dt.datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=dt.UTC) == read.started
    assert None is read.last_seen
    assert (answers.Task(7, "t", "in_progress"),) == read.unfinished_tasks
    assert read.stash is not None
    assert (answers.OutcomeCount("HIT", 3),) == read.stash.retrievals
    assert read.tokens is not None
    assert (5, None) == (read.tokens.before, read.cache)
