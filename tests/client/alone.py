"""A program that has only the client: it uses all that crosses the wire, and tells what it saw as JSON.

It is run by interpreters that have neither the server nor the tests' packages, so that it imports nothing else.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from typing import Any

import google.protobuf

from prompt_sidecar.client import AsyncClient, Client, InvalidRequest

LONG = "the log line of iteration {}: nothing happened\n"


def history(iterations: int) -> list[dict[str, Any]]:
    """A history whose results exceed the window below."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    for number in range(iterations):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": LONG.format(number) * 50})
    return messages


def blocking(target: str) -> dict[str, Any]:
    """Trim, recall, search, tasks, figures, an error with details."""
    with Client(target, deadline=60.0) as client, client.run("run", context_window=4_000, output_reserve=500) as run:
        for _ in range(20):  # runtimes differ in what the collector may take from under a message
            trimmed = run.trim(history(12))
            gc.collect()
        trim = trimmed.trims[-1]
        facts: dict[str, Any] = {
            "protobuf": google.protobuf.__version__,
            "fits": trimmed.fits,
            "action": trim.action,
            "policy": client.trim("capped", history(12), context_window=4_000, policy={"preset": "cap_only"}).fits,
            "outcome": client.retrieve("run", trim.stash_id).outcome,
            "found": client.search("run", "iteration 3").outcome,
            "tasks": [task.status for task in client.create_tasks("run", ["a"])],
            "tool": client.call_tool("run", "recall_elided_content", {"id": trim.stash_id}).outcome,
            "tools": len(run.tools()),
            "year": client.get_run("run").started is not None,
        }
        try:
            client.search("run", "words", max_snippets=1_000)
        except InvalidRequest as error:
            facts["error"] = f"{error.reason} {error.field}"
    return facts


async def asynchronous(target: str) -> bool:
    """The same way through asyncio's gRPC."""
    async with AsyncClient(target, deadline=60.0) as client:
        return (await client.trim("other", history(12), context_window=4_000)).trimmed


def down() -> str:
    """Where nobody listens."""
    with Client("127.0.0.1:1", deadline=60.0) as client:
        return client.trim("run", history(1)).reason


if __name__ == "__main__":
    seen = blocking(sys.argv[1])
    seen["asyncio"] = asyncio.run(asynchronous(sys.argv[1]))
    seen["down"] = down()
    print(json.dumps(seen))
