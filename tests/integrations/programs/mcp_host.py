"""A host with the real MCP client: it lists the tools and calls them, over stdio or streamable HTTP."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

from tests.integrations.programs.common import settings_read, tell


def within(number: int) -> AbstractContextManager[Any]:
    """A span of a trace with this id, as an application's own tracing makes one; 0: none."""
    if not number:
        return nullcontext()
    return use_span(NonRecordingSpan(SpanContext(number, 1, is_remote=False, trace_flags=TraceFlags(1))))


async def main() -> None:
    """Call what the test has asked for."""
    words = settings_read()
    async with AsyncExitStack() as stack:
        server: Any
        if words.get("url"):
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=words["headers"], timeout=60.0))
            server = streamable_http_client(words["url"], http_client=http)
        else:
            given = {name: os.environ[name] for name in ("PYTHONPATH", "PATH", "HOME")} | words["environment"]
            server = StdioServerParameters(
                command=sys.executable, args=["-m", "prompt_sidecar", "mcp", *words["arguments"]], env=given
            )
        client = await stack.enter_async_context(Client(server))
        tools = (await client.list_tools()).tools
        answers = []
        for name, arguments in words["calls"]:
            with within(words.get("trace", 0)):
                answer = await client.call_tool(name, arguments)
            answers.append({"text": answer.content[0].text, "error": bool(answer.is_error)})
        tell(tools=[tool.name for tool in tools], answers=answers, schemas=[tool.input_schema for tool in tools])


asyncio.run(main())
