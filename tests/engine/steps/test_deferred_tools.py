"""Tools whose definitions the model does not see until a message loads them: what counts, and from where on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.trim.entries import Action
from prompt_sidecar.trim.presets import PRESETS
from tests.engine.runs.making import Engine, result_text
from tests.oracle.data import need

ANTHROPIC, RESPONSES = "anthropic_messages", "openai_responses"
WIDE = 1_000_000
SEARCH = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
NAMES = ("ticket_get", "ticket_list", "ticket_close")


def tool(name: str, **members: Any) -> dict[str, Any]:
    """A tool of Anthropic's format with a definition of some 300 tokens."""
    return {"name": name, "description": f"{name}. " + result_text(len(name))[:1_000], "input_schema": {}, **members}


def function(name: str, **members: Any) -> dict[str, Any]:
    """A function whose parameters take some 300 tokens."""
    described = {"type": "object", "properties": {"a": {"type": "string", "description": result_text(3)[:1_000]}}}
    return {"type": "function", "name": name, "description": "It gets.", "parameters": described, **members}


DEFERRED = [tool(name, defer_loading=True) for name in NAMES]


def reference(name: str) -> dict[str, Any]:
    """A reference in a result."""
    return {"type": "tool_reference", "tool_name": name}


def searched(number: int, *names: str) -> list[Any]:
    """The agent's own search, with what it found."""
    call = {"type": "tool_use", "id": f"q{number}", "name": "ToolSearch", "input": {"query": "tickets"}}
    result = {"type": "tool_result", "tool_use_id": f"q{number}", "content": [reference(name) for name in names]}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def found(number: int, *names: str) -> list[Any]:
    """The provider's search, with what it found."""
    references = {"type": "tool_search_tool_search_result", "tool_references": [reference(name) for name in names]}
    blocks = [
        {"type": "server_tool_use", "id": f"s{number}", "name": "tool_search_tool_regex", "input": {"query": "t"}},
        {"type": "tool_search_tool_result", "tool_use_id": f"s{number}", "content": references},
        {"type": "tool_use", "id": f"f{number}", "name": NAMES[2], "input": {}},
    ]
    result = {"type": "tool_result", "tool_use_id": f"f{number}", "content": "closed"}
    return [{"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}]


def added(number: int, *names: str) -> list[Any]:
    """A change of the tools in mid-run."""
    blocks = [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": name}} for name in names]
    answer = {"role": "assistant", "content": f"Done {number}."}
    return [answer, {"role": "user", "content": "Go on."}, {"role": "system", "content": blocks}]


def within(number: int, *names: str) -> list[Any]:
    """The same as a block of the user's."""
    answer, user, system = added(number, *names)
    block = {"type": "mid_conv_system", "content": system["content"]}
    return [answer, {"role": "user", "content": [{"type": "text", "text": user["content"]}, block]}]


LOADS = pytest.mark.parametrize("loads", [searched, found, added, within])


def body(messages: list[Any], tools: list[Any], **members: Any) -> bytes:
    """A request body."""
    return json.dumps({"model": "made-up", "max_tokens": 100, "tools": tools, "messages": messages, **members}).encode()


def counted(messages: list[Any], tools: list[Any]) -> int:
    """Tokens of a prompt."""
    return Engine(limit=WIDE).trim(ANTHROPIC, body(messages, tools)).tokens.before


TASK = {"role": "user", "content": "task"}


def test_a_deferred_tool_counts_nothing() -> None:
    """A prompt with tools that nothing names counts as one without them."""
    assert counted([TASK], [SEARCH]) == counted([TASK], [*DEFERRED, SEARCH])
    whole = [tool(name, defer_loading=False) for name in NAMES]
    assert counted([TASK], [SEARCH]) + 600 < counted([TASK], [*whole, SEARCH])


@LOADS
def test_a_tool_counts_from_where_it_is_loaded(loads: Any) -> None:
    """Its definition counts once, with the first message that names it; one that is not there counts nothing."""
    history = [TASK, *loads(1, NAMES[0], "no_such_tool")]
    again = [*history, *loads(2, NAMES[0], NAMES[1])]
    sizes = [counted([TASK], [SEARCH, tool(name)]) - counted([TASK], [SEARCH]) for name in NAMES]

    for messages, loaded in ((history, sizes[:1]), (again, sizes[:2])):
        grown = counted(messages, [*DEFERRED, SEARCH]) - counted(messages, [SEARCH])
        assert sum(loaded) == pytest.approx(grown, abs=8 * len(loaded))


@LOADS
def test_each_call_counts_the_same(loads: Any) -> None:
    """Whether the messages come one by one, or at once."""
    tools = [*DEFERRED, SEARCH]
    history = [TASK, *loads(1, NAMES[0]), *loads(2, NAMES[0], NAMES[1]), *loads(3, NAMES[1])]
    engine = Engine(limit=WIDE)
    answer: TrimAnswer | None = None
    for length in range(1, len(history) + 1):
        answer = engine.trim(ANTHROPIC, body(history[:length], tools))
    assert answer is not None
    assert counted(history, tools) == answer.tokens.before == answer.tokens.after - answer.tokens.own_text


@LOADS
def test_a_rewritten_task_changes_nothing_behind_it(loads: Any) -> None:
    """Messages whose bytes are known count what they load where the history before them is another one."""
    tools = [*DEFERRED, SEARCH]
    rest = [*loads(1, NAMES[0]), *loads(2, NAMES[1])]
    engine = Engine(limit=WIDE)
    engine.trim(ANTHROPIC, body([TASK, *rest], tools))
    other = [{"role": "user", "content": "Another."}, *rest]
    tokens = engine.trim(ANTHROPIC, body(other, tools)).tokens
    assert counted(other, tools) == tokens.before == tokens.after - tokens.own_text


def responses(items: list[Any], tools: list[Any]) -> int:
    """Tokens of a prompt of OpenAI's responses."""
    raw = json.dumps({"model": "made-up", "store": False, "tools": tools, "input": items}).encode()
    return Engine(limit=WIDE).trim(RESPONSES, raw).tokens.before


GO = {"role": "user", "content": "Go."}
NAMESPACE: Mapping[str, Any] = {"type": "namespace", "name": "tickets", "description": "All of tickets."}


@pytest.mark.parametrize(
    ("deferred", "seen"),
    [
        (function("get", defer_loading=True), {"type": "function", "name": "get", "description": "It gets."}),
        ({**NAMESPACE, "tools": [function("get", defer_loading=True)]}, {**NAMESPACE, "tools": []}),
        (
            {**NAMESPACE, "tools": [function("get", defer_loading=True), function("list")]},
            {**NAMESPACE, "tools": [function("list")]},
        ),
        (function("get", defer_loading=False), function("get", defer_loading=False)),
        ({"type": "web_search"}, {"type": "web_search"}),
    ],
    ids=["function", "namespace", "mixed", "loaded", "other"],
)
def test_names_and_descriptions_count(deferred: dict[str, Any], seen: dict[str, Any]) -> None:
    """Of a deferred function, or of its namespace; in the body's member and in an item alike."""
    search = {"type": "tool_search"}
    assert responses([GO], [seen, search]) == responses([GO], [deferred, search])
    offering = [{"type": "additional_tools", "role": "developer", "tools": [each, search]} for each in (seen, deferred)]
    assert responses([offering[0], GO], []) == responses([offering[1], GO], [])


@pytest.mark.parametrize("execution", ["server", "client"])
def test_a_loaded_function_counts_where_it_stands(execution: str) -> None:
    """The output of a search holds what it has loaded, whole."""
    deferred = function("get", defer_loading=True)
    call = {"type": "tool_search_call", "call_id": "c1", "execution": execution, "arguments": {}}
    output = {"type": "tool_search_output", "call_id": "c1", "execution": execution, "tools": [deferred]}
    empty = {**output, "tools": []}
    loaded = responses([GO, call, output], [deferred]) - responses([GO, call, empty], [deferred])
    assert 200 < loaded < 400


def test_a_recorded_prompt_with_deferred_tools() -> None:
    """A prompt that was cut, though it is half of its window."""
    given = json.loads(need("failing/deferred_tools_counted.json").read_text())
    sent = given["body"]
    answer = Engine(limit=given["context_window"]).trim(ANTHROPIC, json.dumps(sent).encode())
    seen = [each for each in sent["tools"] if not each.get("defer_loading")]
    without = Engine(limit=WIDE).trim(ANTHROPIC, json.dumps({**sent, "tools": seen}).encode())

    assert (True, ()) == (answer.fits, tuple(answer.trimmed.trims))
    assert without.tokens.before == answer.tokens.before
    assert sent["messages"] == json.loads(answer.prompt.body or b"")["messages"]


def steps(first: int, last: int) -> list[Any]:
    """Calls of a tool that was loaded, with results."""
    made: list[Any] = []
    for number in range(first, last):
        call = {"type": "tool_use", "id": f"c{number}", "name": NAMES[0], "input": {"k": number}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": result_text(number)}
        made += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return made


LIMIT = 5_000
EACH_PRESET = pytest.mark.parametrize("preset", PRESETS)


@LOADS
@EACH_PRESET
def test_what_loads_a_tool_stays(loads: Any, preset: str) -> None:
    """The search and what it found stand in every prompt, and other iterations are dropped around them."""
    first, second = loads(1, NAMES[0]), loads(2, NAMES[1])
    history = [TASK, *steps(0, 2), *first, *steps(2, 12), *second, *steps(12, 40)]
    engine = Engine(limit=LIMIT, preset=preset, policy={"registry_share": 0.02})
    dropped = False
    for length in range(len(history) - 60, len(history) + 1, 10):
        sent = history[:length]
        answer = engine.trim(ANTHROPIC, body(sent, [*DEFERRED, tool("ToolSearch"), SEARCH]))
        shown = json.loads(answer.prompt.body or b"")["messages"]
        there = [json.dumps(each) for each in sent if "tool_reference" in json.dumps(each)]
        assert there == [json.dumps(each) for each in shown if "tool_reference" in json.dumps(each)]
        if loads is searched:
            assert [each for each in sent if "ToolSearch" in json.dumps(each)] == [
                each for each in shown if "ToolSearch" in json.dumps(each)
            ]
        dropped = dropped or any(trim.action is Action.DROPPED for trim in answer.trimmed.trims)
    assert dropped or preset == "cap_only"


def test_a_search_that_found_nothing_is_dropped() -> None:
    """It loads nothing."""
    history = [TASK, *steps(0, 2), *searched(1), *steps(2, 40)]
    answer = Engine(limit=LIMIT).trim(ANTHROPIC, body(history, [*DEFERRED, tool("ToolSearch")]))
    assert "ToolSearch" not in json.dumps(json.loads(answer.prompt.body or b"")["messages"])


@pytest.mark.parametrize("execution", ["server", "client"])
@EACH_PRESET
def test_the_output_of_a_search_stays(execution: str, preset: str) -> None:
    """OpenAI's holds the definitions, which the model goes on to call."""
    call = {"type": "tool_search_call", "call_id": "q", "execution": execution, "arguments": {"query": "tickets"}}
    output = {"type": "tool_search_output", "call_id": "q", "execution": execution, "tools": [function("get")]}
    empty = [call | {"call_id": "e"}, output | {"call_id": "e", "tools": []}]
    items: list[Any] = [GO, *_functions(0, 2), call, output, *_functions(2, 4), *empty, *_functions(4, 40)]
    raw = json.dumps({"model": "made-up", "store": False, "tools": [{"type": "tool_search"}], "input": items}).encode()
    answer = Engine(limit=LIMIT, preset=preset, policy={"registry_share": 0.02}).trim(RESPONSES, raw)
    shown = json.loads(answer.prompt.body or b"")["input"]

    assert [call, output] == [each for each in shown if each.get("call_id") == "q"]
    assert preset == "cap_only" or not [each for each in shown if each.get("call_id") == "e"]


def _functions(first: int, last: int) -> list[Any]:
    made: list[Any] = []
    for number in range(first, last):
        made += [
            {"type": "function_call", "call_id": f"c{number}", "name": "get", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{number}", "output": result_text(number)},
        ]
    return made


def test_a_recorded_prompt_with_a_reference() -> None:
    """A prompt that lost what had loaded the tool that the model goes on to call."""
    given = json.loads(need("failing/tool_reference_dropped.json").read_text())
    sent = given["body"]["messages"]
    answer = Engine(limit=given["context_window"]).trim(ANTHROPIC, json.dumps(given["body"]).encode())
    shown = json.loads(answer.prompt.body or b"")["messages"]

    assert answer.fits
    assert sent[1:3] == [each for each in shown if each in sent[1:3]]
    assert len(shown) < len(sent)
