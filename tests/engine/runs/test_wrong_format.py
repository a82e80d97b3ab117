"""A body in another format than the request says is refused by name; no valid body ever is."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.likeness import check_message, likely_format, message_format
from tests.conformance.case import INVENTED
from tests.conformance.table import CASES
from tests.conformance.traffic import recorded
from tests.oracle import data
from tests.promises.engine import Engine

JSON_FORMATS = sorted(CASES)
OTHERS = [(sent, named) for sent in JSON_FORMATS for named in (*JSON_FORMATS, "mcp_tool_result") if sent != named]


def member(format: str) -> str:
    """The body's member that holds a format's messages."""
    return FORMATS[format].messages_field


@pytest.mark.parametrize("shape", ["body", "array", "under the other's name"])
@pytest.mark.parametrize(("sent", "named"), OTHERS)
def test_another_format_is_named(sent: str, named: str, shape: str) -> None:
    """Whole bodies, bare arrays, and messages under the member where the other format has them; each way INVALID."""
    whole = CASES[sent].history(Random(3), 12)
    messages = whole[member(sent)]
    value = {"body": whole, "array": messages, "under the other's name": {member(named): messages}}[shape]
    engine = Engine(limit=2_000)
    with pytest.raises(InvalidRequest) as caught:
        engine.trim(named, json.dumps(value).encode())
    assert f"looks like {sent.upper()}" in caught.value.message
    assert named.upper() in caught.value.message
    assert 0 == engine.runs.totals().runs


@pytest.mark.parametrize("named", [*(name for name in JSON_FORMATS if name != "openai_responses"), "mcp_tool_result"])
@pytest.mark.parametrize(
    "item",
    [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "x"},
        {"type": "item_reference", "id": "msg_1"},
    ],
    ids=lambda item: str(item["type"]),
)
def test_items_of_responses_without_a_call_are_named(named: str, item: dict[str, object]) -> None:
    """A history that has not come to a function call yet: what is refused for an item without a role has the hint."""
    raw = json.dumps([{"role": "user", "content": "hi"}, item]).encode()
    with pytest.raises(InvalidRequest, match="looks like OPENAI_RESPONSES"):
        Engine(limit=2_000).trim(named, raw)


@pytest.mark.parametrize("named", ["openai_chat", "anthropic_messages", "bedrock_converse", "ai_sdk"])
def test_blocks_of_a_result_as_a_prompt(named: str) -> None:
    """The bare array that a result of an MCP tool holds."""
    raw = b'[{"type": "text", "text": "done"}, {"type": "image", "data": "aaaa", "mimeType": "image/png"}]'
    with pytest.raises(InvalidRequest, match="looks like MCP_TOOL_RESULT"):
        Engine(limit=2_000).trim(named, raw)


def test_a_result_as_a_prompt() -> None:
    """One result of an MCP tool is no history."""
    raw = b'{"content": [{"type": "text", "text": "done"}], "isError": false}'
    with pytest.raises(InvalidRequest, match="looks like MCP_TOOL_RESULT"):
        Engine(limit=2_000).trim("openai_chat", raw)


@pytest.mark.parametrize("format", JSON_FORMATS)
@pytest.mark.parametrize("seed", range(40))
def test_no_valid_history_is_refused(format: str, seed: int) -> None:
    """Every kind of block that a format has, and blocks that nobody knows yet."""
    whole = CASES[format].history(Random(seed), 12)
    assert INVENTED in json.dumps(CASES[format].history(Random(1), 40))
    found = Engine(limit=2_000).trim(format, json.dumps(whole).encode())
    assert found.prompt.body
    assert {format, ""} >= {message_format(message) for message in whole[member(format)]}


@pytest.mark.parametrize("format", [name for name in JSON_FORMATS if CASES[name].traffic])
def test_no_recorded_request_is_refused(format: str) -> None:
    """Whatever a provider has taken; also what it has refused is not refused for its format."""
    for status in (200, 400):
        for request in recorded(CASES[format].traffic, status):
            messages = request.body.get(member(format))
            for message in messages if isinstance(messages, list) else ():
                check_message(json.dumps(message).encode(), format, "m")
            assert "" == likely_format(json.dumps(request.body).encode(), format) or status == 400


@pytest.mark.parametrize("path", data.present("runs/*.json.gz"), ids=lambda path: str(path.name))
def test_no_recorded_run_is_refused(path: Path) -> None:
    """Message by message."""
    document = data.document(path)
    formats = {"openai": "openai_chat", "anthropic": "anthropic_messages"}
    format = formats.get(document["format"], document["format"])
    assert format in CASES
    for message in document["messages"]:
        check_message(json.dumps(message).encode(), format, "m")


PLAIN = [
    ("openai_chat", '{"messages":[{"role":"user","content":"hi"}]}'),
    ("anthropic_messages", '{"messages":[{"role":"user","content":"hi"}]}'),
    ("ai_sdk", '{"messages":[{"role":"user","content":"hi"}]}'),
    ("openai_responses", '{"input":[{"role":"user","content":"hi"}]}'),
    ("openai_responses", '{"input":"hi"}'),
    ("openai_responses", '{"input":[{"type":"new_call","parts":[{"text":"hi"}]}]}'),
    ("openai_chat", '{"messages":[{"role":"user","content":[{"type":"tool_use"}]}]}'),
    ("openai_chat", '{"messages":[{"role":"assistant","content":"x","tool_calls":[{"type":"new","new":{}}]}]}'),
    ("anthropic_messages", '{"messages":[{"role":"user","content":[{"type":"new","toolUse":{"toolUseId":"a"}}]}]}'),
    ("gemini_contents", '{"contents":[{"role":"model"}]}'),
    ("gemini_contents", '{"contents":[{"role":"user","parts":{"text":"\\"tool_use\\""},"content":null}]}'),
    ("bedrock_converse", '{"messages":[{"role":"user","content":[{"newBlock":{"toolUseId":"a"}}]}]}'),
    ("mcp_tool_result", '{"structuredContent":{"messages":[]}}'),
    ("mcp_tool_result", '{"isError":true}'),
]


@pytest.mark.parametrize(("format", "raw"), PLAIN)
def test_what_tells_nothing_passes(format: str, raw: str) -> None:
    """Plain texts that several formats share, and blocks with some of another's names but not its shape."""
    assert Engine(limit=50_000).trim(format, raw.encode(), recall_unavailable=True).prompt.body == raw.encode()
