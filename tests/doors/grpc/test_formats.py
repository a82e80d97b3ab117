"""Formats over the wire: the enum's names reach the readers, and what a format says of itself reaches the client."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.v1 import retrieve_pb2, run_pb2, search_pb2, tool_pb2, trim_pb2
from tests.doors.grpc.serving import Serving, serving
from tests.waiting import until

LONG = "".join(f"line {number}: value {number * number}\n" for number in range(6_000))
RESULT = json.dumps({"content": [{"type": "text", "text": LONG}], "isError": False}).encode()


@pytest.fixture(scope="module")
def served() -> Iterator[Serving]:
    """One server for the tests of this file; each uses a run of its own."""
    with serving() as server:
        yield server


def trim(served: Serving, run_id: str, format: trim_pb2.Format.ValueType, body: bytes) -> trim_pb2.TrimPromptResponse:
    """Trim a body of a format."""
    prompt = trim_pb2.JsonPrompt(format=format, body=body)
    return served.stub.TrimPrompt(trim_pb2.TrimPromptRequest(run_id=run_id, json=prompt))


def test_every_format_has_a_value() -> None:
    """A format whose bodies are JSON is the enum's value of its name in capitals, and every value is one."""
    named = {f"FORMAT_{name.upper()}" for name, format_ in FORMATS.items() if format_.is_json}
    assert {value.name for value in trim_pb2.DESCRIPTOR.enum_types_by_name["Format"].values} - {
        "FORMAT_UNSPECIFIED"
    } == named


def test_a_single_result(served: Serving) -> None:
    """It is capped, and its original is fetched and found, in a run that has had no prompt."""
    answer = trim(served, "single", trim_pb2.FORMAT_MCP_TOOL_RESULT, RESULT)
    text = json.loads(answer.json_body)["content"][0]["text"]
    assert len(text.encode()) <= 51_200
    (taken,), (entry,) = answer.trims, answer.stash_entries
    assert taken.stash_id == entry.stash_id
    assert f"id={taken.stash_id}" in text
    assert b"" == answer.revision
    assert [] == list(answer.own_text)
    asked = retrieve_pb2.RetrieveContentRequest(run_id="single", stash_id=taken.stash_id)
    assert LONG.startswith(served.stub.RetrieveContent(asked).content.decode())
    search = search_pb2.SearchHistoryRequest(run_id="single", query="35988001")
    until(lambda: bool(served.stub.SearchHistory(search).snippets))  # one search waits half a second for the index
    assert taken.stash_id == served.stub.SearchHistory(search).snippets[0].stash_id
    run = served.stub.GetRun(run_pb2.GetRunRequest(run_id="single")).run
    assert 1 == run.calls


def test_model_messages(served: Serving) -> None:
    """An AI SDK's prompt comes back with our text in its system prompt, its messages as they were."""
    messages = [{"role": "user", "content": "hello"}]
    body = json.dumps({"system": "Be brief.", "messages": messages}).encode()
    answer = trim(served, "sdk", trim_pb2.FORMAT_AI_SDK, body)
    returned = json.loads(answer.json_body)
    assert messages == returned["messages"]
    assert returned["system"].startswith("Be brief.\n\n")
    bare = trim(served, "bare", trim_pb2.FORMAT_AI_SDK, json.dumps(messages).encode())
    assert messages == json.loads(bare.json_body)
    assert {trim_pb2.OWN_TEXT_PLACE_CALLER} == {piece.place for piece in bare.own_text}


@pytest.mark.parametrize("format", [trim_pb2.FORMAT_AI_SDK, trim_pb2.FORMAT_MCP_TOOL_RESULT])
def test_each_tool_has_name_description_and_schema(served: Serving, format: trim_pb2.Format.ValueType) -> None:
    """The model's tools are defined with a name, a description and an input schema."""
    answer = served.stub.ListTools(tool_pb2.ListToolsRequest(format=format))
    assert answer.tools
    for tool in answer.tools:
        definition = json.loads(tool.definition_json)
        assert {"name", "description", "inputSchema"} == set(definition)
        assert "object" == definition["inputSchema"]["type"]
