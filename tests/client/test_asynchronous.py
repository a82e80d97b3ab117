"""The client for asyncio: the twin of the blocking one."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest

from prompt_sidecar.client import AsyncClient, AsyncRun, Client, Run, Unreachable
from tests.client.histories import WINDOW, history
from tests.client.serving import PATIENT, silent
from tests.server.serving import serving

RENAMED = {"__aenter__": "__enter__", "__aexit__": "__exit__"}
PRIVATE = {"_call", "_connected", "_drive", "_adapted"}


def methods(kind: type[Any]) -> dict[str, Callable[..., Any]]:
    """The methods that a class has of its own."""
    return {
        RENAMED.get(name, name): value
        for name, value in vars(kind).items()
        if inspect.isfunction(value) and name not in PRIVATE
    }


@pytest.mark.parametrize(("blocking", "twin"), [(Client, AsyncClient), (Run, AsyncRun)])
def test_both_have_the_same_methods(blocking: type[Any], twin: type[Any]) -> None:
    """With the same arguments and the same words; what one returns, the other's coroutine does."""
    ours, theirs = methods(blocking), methods(twin)
    assert set(ours) == set(theirs)
    for name in ours:
        one, other = (inspect.signature(each[name]) for each in (ours, theirs))
        told = str(other).replace("AsyncClient", "Client").replace("AsyncRun", "Run")
        assert (name, str(one)) == (name, told)
        words = inspect.getdoc(theirs[name]) or ""
        assert (name, inspect.getdoc(ours[name]) or "") == (name, words.replace("AsyncClient", "Client"))
    assert {"run", "__init__"} >= {name for name in theirs if not inspect.iscoroutinefunction(theirs[name])}


def test_what_it_does() -> None:
    """Every method against a real server, many prompts at once."""

    async def work(address: str) -> None:
        async with AsyncClient(address, deadline=PATIENT) as client:
            runs = [client.run(f"r{n}", context_window=WINDOW, output_reserve=500) for n in range(8)]
            made = await asyncio.gather(*(run.trim(history("openai_chat", 12)) for run in runs))
            assert all(each.trimmed and each.trims for each in made)
            assert 8 == client.trimmed
            stash_id = made[0].trims[0].stash_id
            assert "hit" == (await client.retrieve("r0", stash_id)).outcome
            assert "found" == (await client.search("r0", "build number")).outcome
            assert 1 == len(await client.create_tasks("r0", ["a"]))
            assert "completed" == (await client.update_task("r0", 1, "completed"))[0].status
            assert 1 == len(await client.list_tasks("r0"))
            assert 4 == len(json.loads((await client.list_tools()).tools_json))
            assert 4 == len(await runs[0].tools())
            assert "ok" == (await client.call_tool("r0", "recall_elided_content", {"id": stash_id})).outcome
            assert "recorded" == (await client.report_usage("r0", input_tokens=4_000)).outcome
            assert 1 == (await client.get_run("r0")).calls
            assert (await client.end_run("r0")).ended
            async with client.run("r9") as run:
                await run.trim([])
            assert not (await client.end_run("r9")).ended

    with serving() as served:
        asyncio.run(work(served.address))


def test_it_fails_open_and_closed() -> None:
    """As the blocking one."""

    async def work(address: str) -> None:
        messages = history("openai_chat", 1)
        async with AsyncClient(address, deadline=0.2) as client:
            made = await client.trim("r", messages)
            assert made.prompt is messages
            assert {"DEADLINE_EXCEEDED": 1} == client.untrimmed_by_reason
            assert [] == await client.run("r").tools()
            async with client.run("r"):
                pass
        async with AsyncClient(address, deadline=0.2, fail_open=False) as client:
            with pytest.raises(Unreachable):
                await client.trim("r", messages)
            with pytest.raises(Unreachable):
                await client.run("r").tools()
        with pytest.raises(RuntimeError, match="closed"):
            await client.trim("r", messages)

    with silent() as address:
        asyncio.run(work(address))


def test_a_cancelled_call_is_cancelled() -> None:
    """The agent's own cancellation is not taken for a sidecar that fails."""

    async def work(address: str) -> None:
        async with AsyncClient(address, deadline=PATIENT) as client:
            call: asyncio.Task[Any] = asyncio.create_task(client.trim("r", []))
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert 0 == client.untrimmed

    with silent() as address:
        asyncio.run(work(address))
