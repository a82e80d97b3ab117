"""OpenTelemetry's conventions against ours, as it comes out of a real collector: names, types, what has to be there.

And what Tempo, Phoenix and Langfuse read of the same spans.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from prompt_sidecar.calls import headers
from prompt_sidecar.telemetry.spans import GENAI_OPT_IN
from tests.client.provider import Says
from tests.doors.http.test_passing import _post
from tests.doors.http.upstream import Upstream, scripted
from tests.lab.harness import components
from tests.lab.harness.processes import Programs, free_port
from tests.lab.observe import stack
from tests.real.needing import need
from tests.real.otlp import Point, Sink, Span, sink
from tests.telemetry.backends import BACKENDS, OF_MODELS, has
from tests.telemetry.conventions import METRICS, NOT_WRITTEN, NOT_WRITTEN_HERE, OWN, SPANS
from tests.telemetry.conventions_held import of_conventions, table_of, unwritten, wrong

TOOL: Final = {"name": "read", "parameters": {"type": "object"}}
CHAT_TOOLS: Final = [{"type": "function", "function": TOOL}]
RECALLS: Final = Says(
    "", [("r1", "search_conversation_history", {"query": "log"}), ("r2", "recall_elided_content", {"lines": []})]
)
STREAM: Final[Mapping[str, Any]] = {"stream": True, "stream_options": {"include_usage": True}}
DOWN: Final = Says("busy", status=503)
OVER_HTTP: Final = frozenset({"http", "inference", "execute_tool", "search_memory"})


async def _missing(request: web.Request) -> web.Response:
    await request.read()
    return web.json_response({}, status=404)


def _long(calls: int) -> list[dict[str, Any]]:
    """A history from which a window of 4,500 tokens has to have something taken."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "Read the logs."}]
    for number in range(calls):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        history.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} a log of it\n" * 300})
    return history


def _agents(door: str) -> None:
    """What agents send: whole and as a stream, to two APIs, with recalls, to a provider that is down, elsewhere."""
    asks = [
        ("/v1/chat/completions", {"model": "gpt-4o", "tools": CHAT_TOOLS, "messages": _long(12)}),
        ("/v1/chat/completions", {"model": "gpt-4o", "messages": _long(1)[:1], **STREAM}),
        ("/v1/messages", {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": _long(1)[:1]}),
        ("/v1/chat/completions", {"model": "gpt-4o", "messages": _long(1)[:1]}),
        ("/v1/some/0123456789-a-key-of-somebody-0123456789", {"messages": []}),
    ]
    for path, body in asks:
        asyncio.run(_post(f"http://{door}{path}", json.dumps(body).encode(), **{headers.WINDOW: "4500"}))


@pytest.fixture(scope="module")
def arrived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sink]:
    """What the collector has handed on of all these."""
    rotel = need(components.rotel)
    folder: Path = tmp_path_factory.mktemp("conventions")
    named = [Says(text, model="gpt-4o") for text in ("Done.", "Hello.", "Hi.")]
    script = scripted(RECALLS, *named, DOWN)
    with sink() as (kept, port), Upstream(script) as upstream, Programs(folder) as programs:
        upstream.other, upstream.pause = _missing, 0.02
        _, collector = stack.collector(programs, rotel, forward_to=port)
        door = f"127.0.0.1:{free_port()}"
        settings = {
            "http.listen": door,
            "http.openai_upstream": upstream.url,
            "http.anthropic_upstream": upstream.url,
        }
        more = {"OTEL_SEMCONV_STABILITY_OPT_IN": GENAI_OPT_IN, "OTEL_BSP_SCHEDULE_DELAY": "200"}
        stack.sidecar(programs, "sidecar", settings, collector, OTEL_METRIC_EXPORT_INTERVAL="500", **more)
        _agents(door)
        kept.wait_for(lambda spans: 5 == len([span for span in spans if span.kind == "SERVER"]))
        kept.wait_for_points(lambda points: not lacking(points))
        yield kept


OVER_METRICS: Final = frozenset(name for name in METRICS if not name.startswith("mcp."))


def lacking(points: Sequence[Point]) -> frozenset[str]:
    """What has not arrived yet: metrics, and attributes that are said to be written."""
    seen = of_conventions(points)
    tables = {name: METRICS[name].attributes for name in OVER_METRICS}
    lacks = {each for name, table in tables.items() for each in unwritten(name, table, seen.get(name, ()))[0]}
    return frozenset((OVER_METRICS - set(seen)) | lacks)


def test_spans_follow_their_tables(arrived: Sink) -> None:
    """Each of the HTTP door's; nothing of gen_ai, http, url or server that the conventions have not."""
    by_table: defaultdict[str, list[Span]] = defaultdict(list)
    for span in arrived.spans:
        by_table[table_of(span)].append(span)
    strangers = {each for span in by_table.pop("", []) for each in span.attributes if not each.startswith(OWN)}
    assert strangers <= {"gen_ai.conversation.id", "gen_ai.conversation.compacted"}
    assert set(by_table) == OVER_HTTP
    found = [
        each
        for name, spans in by_table.items()
        for span in spans
        for each in wrong(name, SPANS[name].attributes, span.attributes)
    ]
    assert [] == sorted(set(found))
    assert {name: {SPANS[name].kind} for name in by_table} == {
        name: {span.kind for span in spans} for name, spans in by_table.items()
    }
    for name, spans in by_table.items():
        lacks, contradicts = unwritten(name, SPANS[name].attributes, [span.attributes for span in spans])
        assert (name, set(), set()) == (name, lacks, contradicts)


def test_conditions_hold(arrived: Sink) -> None:
    """An error has its type and the status; a stream says so; a port stands next to its address."""
    for span in arrived.spans:
        name, has = table_of(span), set(span.attributes)
        if name:
            assert (span.status == "ERROR") <= ("error.type" in has), span
            assert ("server.address" in has) <= ("server.port" in has)
            assert ("gen_ai.response.time_to_first_chunk" in has) <= ("gen_ai.request.stream" in has)
        if name == "http":
            assert "http.response.status_code" in has
        if name == "inference":
            assert span.name == f"{span.attributes['gen_ai.operation.name']} {span.attributes['gen_ai.request.model']}"
    (unknown,) = [span for span in arrived.spans if str(span.attributes.get("url.path", "")).startswith("/…")]
    assert "/…/…/…" == unknown.attributes["url.path"]


def test_metrics_follow_their_tables(arrived: Sink) -> None:
    """Those of generative AI and of HTTP: unit, names and types of their attributes, and none that is not known."""
    by_name = of_conventions(arrived.points)
    assert set(by_name) == OVER_METRICS
    for name, seen in by_name.items():
        table = METRICS[name]
        assert {table.unit} == {point.unit for point in arrived.points if point.name == name}
        assert [] == [each for attributes in seen for each in wrong(name, table.attributes, attributes)]
        lacks, contradicts = unwritten(name, table.attributes, seen)
        assert (name, set(), set()) == (name, lacks, contradicts)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backend_finds_what_it_reads(arrived: Sink, backend: str) -> None:
    """Each attribute is on a span of each kind that is said to have it; what has a reason not to be is on none."""
    missing, contradicts = [], []
    for row in BACKENDS[backend]:
        written = {table_of(span) for span in arrived.spans if has(span, row.attribute)}
        missing += [(row.attribute, table) for table in row.on if table not in written]
        contradicts += [row.attribute] if written and row.lacks else []
        assert bool(row.on) != bool(row.lacks), row
    assert ([], []) == (missing, contradicts)


def test_no_other_span_is_taken_for_a_call_of_a_model(arrived: Sink) -> None:
    """As a prompt's span with the model's name was: two calls for each that was made."""
    assert {"inference"} == {table_of(span) for span in arrived.spans if OF_MODELS & set(span.attributes)}


def test_every_reason_is_needed() -> None:
    """What is said not to be written is in one of the tables."""
    tables = {name: row.attributes for name, row in SPANS.items()} | {
        name: row.attributes for name, row in METRICS.items()
    }
    assert [] == [name for name in NOT_WRITTEN if not any(name in table for table in tables.values())]
    for name, reasons in NOT_WRITTEN_HERE.items():
        assert set(reasons) <= set(tables[name])
