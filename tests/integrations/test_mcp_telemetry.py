"""What the MCP process tells of itself, with the real MCP client and through a real collector."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from prompt_sidecar.client import Client
from prompt_sidecar.facts.tool_calls import CREATE_TASKS, SEARCH, TOOL_NAMES
from tests.client.serving import PATIENT
from tests.integrations.environments import ready
from tests.integrations.running import run, variables
from tests.integrations.test_mcp import Call, asked, listening, trimmed
from tests.lab.harness import components
from tests.lab.harness.processes import Programs, free_port
from tests.lab.observe import stack
from tests.real.needing import need
from tests.real.otlp import Point, Sink, Span, sink
from tests.telemetry.conventions import METRICS, SPANS
from tests.telemetry.conventions_held import of_conventions, table_of, unwritten, wrong
from tests.telemetry.watched import watched

SECRET: Final = "zanzibar-8412"
CALLS: Final[list[Call]] = [
    (SEARCH, {"query": SECRET}),
    (SECRET, {"query": SECRET}),
    (CREATE_TASKS, {"tasks": SECRET}),
]
DURATION: Final = "mcp.server.operation.duration"


@contextmanager
def collected(folder: Path) -> Iterator[tuple[Sink, dict[str, str]]]:
    """What a collector hands on, and the variables of a process that pushes to it."""
    rotel = need(components.rotel)
    with sink() as (kept, port), Programs(folder) as programs:
        _, collector = stack.collector(programs, rotel, forward_to=port)
        yield (
            kept,
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector}",
                "OTEL_BSP_SCHEDULE_DELAY": "200",
                "OTEL_METRIC_EXPORT_INTERVAL": "500",
            },
        )


def test_spans_and_durations_follow_the_conventions(tmp_path: Path) -> None:
    """Over stdio and HTTP: each message's span within the host's trace, around that of the sidecar's call."""
    with watched() as server, collected(tmp_path) as (kept, pushing):
        with Client(server.served.address, deadline=PATIENT) as client:
            trimmed(client)
        environment = {"PROMPT_SIDECAR_TARGET": server.served.address, "PROMPT_SIDECAR_RUN": "run", **pushing}
        words: dict[str, Any] = {"calls": CALLS, "environment": environment, "arguments": [], "trace": 7}
        run(ready("mcp"), "mcp_host", words, tmp_path)
        with listening(tmp_path, server.served.address, more=pushing) as url:
            headers = {"x-prompt-sidecar-run": "run"}
            run(
                ready("mcp"),
                "mcp_host",
                {"calls": CALLS, "url": f"{url}/mcp", "headers": headers, "trace": 8},
                tmp_path,
            )
            for method in ("prompts/get", f"{SECRET}/of"):
                unserved = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"name": SECRET}}
                asked(f"{url}/mcp", unserved, **{"mcp-protocol-version": "2025-06-18"})
        spans = kept.wait_for(lambda found: len(calls_of(found)) == 2 * len(CALLS) and bool(refused(found)))
        points = kept.wait_for_points(lambda found: not lacking(found))
        handled = {
            span.parent.span_id
            for each in server.spans().values()
            for span in each
            if span.name.endswith("CallTool") and span.parent is not None
        }
    ours = [span for span in spans if table_of(span) == "mcp"]
    assert [] == sorted({each for span in ours for each in wrong("mcp", SPANS["mcp"].attributes, span.attributes)})
    assert (set(), set()) == unwritten("mcp", SPANS["mcp"].attributes, [span.attributes for span in ours])
    assert {"SERVER"} == {span.kind for span in ours}
    called = calls_of(spans)
    assert {f"{7:032x}", f"{8:032x}"} == {span.trace_id for span in called}
    assert {f"{1:016x}"} == {span.parent_id for span in called}
    assert handled == {int(span.span_id, 16) for span in called}
    names = [f"tools/call {SEARCH}", "tools/call other", f"tools/call {CREATE_TASKS}"]
    assert names * 2 == [span.name for trace in (7, 8) for span in called if span.trace_id == f"{trace:032x}"]
    assert [False, True, False] * 2 == [
        "tool_error" == span.attributes.get("error.type")
        for trace in (7, 8)
        for span in called
        if span.trace_id == f"{trace:032x}"
    ]
    assert {span.status == "ERROR" for span in called if "error.type" in span.attributes} == {True}
    seen = of_conventions(points)[DURATION]
    assert {METRICS[DURATION].unit} == {point.unit for point in points if point.name == DURATION}
    assert [] == [each for attributes in seen for each in wrong(DURATION, METRICS[DURATION].attributes, attributes)]
    assert (set(), set()) == unwritten(DURATION, METRICS[DURATION].attributes, seen)
    assert SECRET.encode() not in b"".join(kept.raw)


def calls_of(spans: list[Span]) -> list[Span]:
    """Calls of tools."""
    return [span for span in spans if span.attributes.get("mcp.method.name") == "tools/call"]


def refused(spans: list[Span]) -> list[Span]:
    """Messages that were answered with an error of JSON-RPC."""
    return [span for span in spans if "rpc.response.status_code" in span.attributes]


def lacking(points: list[Point]) -> set[str]:
    """Attributes of the durations that have not arrived yet, though they are said to be written."""
    return unwritten(DURATION, METRICS[DURATION].attributes, of_conventions(points).get(DURATION, ()))[0]


def test_the_tools_are_the_sidecars(tmp_path: Path) -> None:
    """Those with a name of their own in spans are those that it lists."""
    code = "import json; from prompt_sidecar.mcp.telemetry import TOOLS; print(json.dumps(sorted(TOOLS)))"
    command = [str(ready("mcp").python), "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=variables(tmp_path))
    assert sorted(TOOL_NAMES) == json.loads(done.stdout)


def test_a_collector_that_is_down_costs_a_line(tmp_path: Path) -> None:
    """Calls are answered, and the process ends in time; nothing of what exporters say is written."""
    pushing = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://key:{SECRET}@127.0.0.1:{free_port()}",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    with (tmp_path / "log").open("w") as log, listening(tmp_path, "127.0.0.1:1", more=pushing, log=log) as url:
        for _ in range(3):
            assert 200 == asked(f"{url}/mcp", body, **{"mcp-protocol-version": "2025-06-18"})
    logged = (tmp_path / "log").read_text()
    assert logged.count("the collector does not take what is pushed") <= 1
    assert SECRET not in logged
