"""The client for asyncio, and the blocking one that is generated from it."""

from __future__ import annotations

import asyncio
import inspect
import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.client import AsyncClient, AsyncRun, Unreachable
from tests.client.histories import WINDOW, history
from tests.client.serving import PATIENT, silent
from tests.doors.grpc.serving import serving

ROOT = Path(__file__).parents[2]
CLIENT = "sidecar/prompt_sidecar/client"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of both clients, with what says how code is formatted."""
    shutil.copytree(ROOT / CLIENT, tmp_path / CLIENT, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def generate(copy: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the generator of the blocking client in a copy."""
    if find_spec("unasync") is None:
        pytest.skip("needs unasync")
    command = [sys.executable, str(ROOT / ".ci" / "blocking-client.py"), *options]
    return subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)


def test_the_blocking_client_is_generated(copy: Path) -> None:
    """The committed one is what the generator writes."""
    assert 0 == generate(copy, "--check").returncode
    assert 0 == generate(copy).returncode
    assert (ROOT / CLIENT / "blocking/client.py").read_text() == (copy / CLIENT / "blocking/client.py").read_text()


def test_an_outdated_blocking_client_fails_the_check(copy: Path) -> None:
    """A change of one client alone is found, and the message says what to do."""
    source = copy / CLIENT / "asynchronous/client.py"
    source.write_text(source.read_text().replace("def get_run(", "def fetch_run("))

    checked = generate(copy, "--check")

    assert 1 == checked.returncode
    assert "make client" in checked.stderr
    assert 0 == generate(copy).returncode
    assert "def fetch_run(" in (copy / CLIENT / "blocking/client.py").read_text()


@pytest.mark.parametrize("kind", [AsyncClient, AsyncRun])
def test_what_waits_is_a_coroutine(kind: type[Any]) -> None:
    """All public methods but `run`, which calls nothing."""
    methods = {name: value for name, value in vars(kind).items() if inspect.isfunction(value)}
    assert {"run", "__init__"} >= {name for name, value in methods.items() if not inspect.iscoroutinefunction(value)}


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
            await client.trim("r10", [{"role": "user", "content": "look"}])
            await client.create_tasks("r11", ["a"])
            assert 2 <= await client.end_runs()
            assert 0 == await client.end_runs()

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
