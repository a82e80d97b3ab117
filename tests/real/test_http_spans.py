"""Spans of an agent's run through the HTTP door, as they come out of a real collector: one trace, the agent's."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.client.provider import Says
from tests.doors.http.test_passing import _post
from tests.doors.http.upstream import Upstream, scripted
from tests.lab.harness import components
from tests.lab.harness.processes import Programs, free_port
from tests.lab.observe import stack
from tests.real.needing import need
from tests.real.otlp import sink

TOOLS: Final = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
RECALLS: Final = Says("", [("r1", "search_conversation_history", {"query": "log"})])
CALLS: Final = 14


def test_an_agent_of_fourteen_calls_has_one_trace(tmp_path: Path) -> None:
    """Each request is below the span of the agent, and each call of the provider below its request, hidden ones too."""
    rotel = need(components.rotel)
    reads = [Says("", [(f"c{number}", "read", {})]) for number in range(CALLS - 1)]
    trace, parent = secrets.token_hex(16), secrets.token_hex(8)
    history: list[Any] = [{"role": "user", "content": "Read the logs."}]
    with (
        sink() as (kept, port),
        Upstream(scripted(*reads, RECALLS, Says("Done."))) as upstream,
        Programs(tmp_path) as programs,
    ):
        _, collector = stack.collector(programs, rotel, forward_to=port)
        door = f"127.0.0.1:{free_port()}"
        settings = {"http.listen": door, "http.openai_upstream": upstream.url}
        stack.sidecar(programs, "sidecar", settings, collector, OTEL_BSP_SCHEDULE_DELAY="200")
        for number in range(CALLS):
            body = json.dumps({"model": "gpt-4o", "tools": TOOLS, "messages": history}).encode()
            url, headers = f"http://{door}/v1/chat/completions", {"traceparent": f"00-{trace}-{parent}-01"}
            status, answer, _ = asyncio.run(_post(url, body, **headers))
            assert 200 == status
            history.append(json.loads(answer)["choices"][0]["message"])
            history.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} a log\n" * 300})
        found = kept.trace(trace, 3 * CALLS + 3)
        assert found == kept.spans
    names = {span.span_id: span.name for span in found} | {parent: "the agent's"}
    assert {
        ("SERVER", "POST chat_completions", "the agent's"): CALLS,
        ("INTERNAL", "trim", "POST chat_completions"): CALLS + 1,
        ("CLIENT", "chat gpt-4o", "POST chat_completions"): CALLS + 1,
        ("INTERNAL", "search", "POST chat_completions"): 1,
    } == Counter((span.kind, span.name, names[span.parent_id]) for span in found)
