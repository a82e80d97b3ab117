"""OpenTelemetry's conventions for generative AI: names that exist, and only where the operator opts in."""

from __future__ import annotations

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as packaged
from opentelemetry.trace import StatusCode

from prompt_sidecar.facts.tool_calls import CREATE_TASKS, RECALL, SEARCH
from prompt_sidecar.telemetry import spans
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.telemetry.pipeline import start
from prompt_sidecar.v1 import search_pb2, tool_pb2, trim_pb2
from tests.telemetry.telemetry_page import PAGE
from tests.telemetry.watched import Watched, prompt, watched

NEWER = {spans.COMPACTED, spans.SEARCH_MEMORY, spans.MEMORY_STORE, spans.MEMORY_RECORDS}
"""Of the conventions' own repository (open-telemetry/semantic-conventions-genai, 0.1.0), and not yet in the package."""
METHOD = "prompt_sidecar.v1.SidecarService/TrimPrompt"


def _work(server: Watched) -> set[str]:
    """Have all spans written; return their attributes of the convention."""
    stub = server.served.stub
    for iterations in range(1, 20):
        stub.TrimPrompt(prompt(iterations, model="gpt-4o"))
    stub.SearchHistory(search_pb2.SearchHistoryRequest(run_id="run", query="module_3"))
    for name, arguments in (
        (RECALL, '{"id": "x"}'),
        (SEARCH, '{"query": "module"}'),
        (CREATE_TASKS, '{"tasks": ["a"]}'),
        ("made up", "{}"),
    ):
        stub.CallTool(tool_pb2.CallToolRequest(run_id="run", name=name, arguments_json=arguments))
    found = {name for of_name in server.spans().values() for span in of_name for name in span.attributes or {}}
    return {name for name in found if name.startswith("gen_ai.")}


def test_every_name_is_one_of_the_conventions() -> None:
    """By the constants of OpenTelemetry's package, and a short list of what it lacks; each is in the documents."""
    names = {value for name, value in vars(packaged).items() if name.startswith("GEN_AI_")}
    operations = {value.value for value in packaged.GenAiOperationNameValues}
    with watched(genai=True) as server:
        used = _work(server)
        done = {(span.attributes or {}).get(spans.OPERATION) for of_name in server.spans().values() for span in of_name}
    assert used == {
        spans.CONVERSATION,
        spans.COMPACTED,
        spans.OPERATION,
        spans.TOOL_NAME,
        spans.TOOL_TYPE,
        spans.MEMORY_STORE,
        spans.MEMORY_RECORDS,
    }
    assert used - NEWER <= names
    assert done - NEWER - {None} <= operations
    assert {spans.EXECUTE_TOOL, spans.SEARCH_MEMORY, None} == done
    assert not NEWER & (names | operations), "the package has caught up: take them off the list"
    page = PAGE.read_text(encoding="utf-8")
    assert [] == [name for name in used if f"`{name}`" not in page]


def test_tools_and_searches() -> None:
    """A tool's call is a span around what it did; a name that is not ours is other."""
    with watched(genai=True) as server:
        _work(server)
        found = server.spans()
    (recall,) = found[f"execute_tool {RECALL}"]
    assert recall.attributes is not None
    assert "not_found" == recall.attributes["prompt_sidecar.retrieval.outcome"]
    (by_tool,) = [span for span in found["search_memory"] if (span.attributes or {})["prompt_sidecar.via"] == "tool"]
    (around,) = found[f"execute_tool {SEARCH}"]
    assert by_tool.parent is not None
    assert around.context is not None
    assert around.context.span_id == by_tool.parent.span_id
    assert {"execute_tool other", f"execute_tool {SEARCH}", f"execute_tool {CREATE_TASKS}"} <= set(found)
    assert 2 == len(found["search_memory"])
    assert {"run"} == {(span.attributes or {})[spans.CONVERSATION] for span in found["search_memory"]}
    compacted = [(span.attributes or {}).get(spans.COMPACTED) for span in found[METHOD]]
    assert {True, None} == set(compacted)


def test_tools_that_do_nothing_say_why() -> None:
    """An unknown tool, bad arguments and an unknown run; what did something has no error."""
    cases = [
        ("run", SEARCH, '{"query": "module"}', None),
        ("run", SEARCH, "[", "invalid_arguments"),
        ("run", "made up", "{}", "unknown_tool"),
        ("nobody", RECALL, '{"id": "x"}', "run_unknown"),
    ]
    with watched(genai=True) as server:
        server.served.stub.TrimPrompt(prompt(2, model="gpt-4o"))
        for run, name, arguments, _ in cases:
            server.served.stub.CallTool(tool_pb2.CallToolRequest(run_id=run, name=name, arguments_json=arguments))
        calls = [span for span in server.exporter.get_finished_spans() if span.name.startswith("execute_tool ")]
        (search,) = server.spans()["search_memory"]
    assert [error for *_, error in cases] == [(span.attributes or {}).get("error.type") for span in calls]
    assert [error is not None for *_, error in cases] == [span.status.status_code is StatusCode.ERROR for span in calls]
    assert search.attributes is not None
    assert "run" == search.attributes[spans.MEMORY_STORE]
    assert search.attributes["prompt_sidecar.search.snippets"] == search.attributes[spans.MEMORY_RECORDS]


def test_every_prompt_that_lacks_something_is_compacted() -> None:
    """Not only the one at which it went: every later one has the same gap."""
    with watched(genai=True) as server:
        answers = [server.served.stub.TrimPrompt(prompt(iterations)) for iterations in range(1, 25)]
        found = [bool((span.attributes or {}).get(spans.COMPACTED)) for span in server.spans()[METHOD]]
    lacks = [any(trim.action != trim_pb2.TRIM_ACTION_CONDENSED for trim in answer.trims) for answer in answers]
    assert lacks == found
    assert sum(lacks) > sum(answer.compacted for answer in answers) > 0


def test_without_opting_in_names_are_ours() -> None:
    """As ever: a backend that reads them goes on to."""
    with watched() as server:
        assert set() == _work(server)
        assert all(name.startswith("prompt_sidecar.v1.SidecarService/") for name in server.spans())


@pytest.mark.parametrize(
    ("variable", "follows"),
    [
        ("", False),
        ("http", False),
        ("gen_ai_latest_experimental", True),
        ("http/dup, gen_ai_latest_experimental", True),
    ],
)
def test_the_variable(variable: str, follows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list, as OpenTelemetry has it."""
    seen: list[bool] = []

    def kept(*_: object, genai: bool) -> spans.Spans:
        seen.append(genai)
        return spans.Spans(None)

    monkeypatch.setattr("prompt_sidecar.telemetry.pipeline.Spans", kept)
    environment = {
        "OTEL_SEMCONV_STABILITY_OPT_IN": variable,
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
    }
    start(TelemetryOptions(), environment).stop()
    assert [follows] == seen
