"""Every block of Python in the documents runs as it stands, against a real server and a scripted provider."""

from __future__ import annotations

import ast
import asyncio
import inspect
import linecache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.calls.options import ServerOptions
from tests.client.provider import Says, always
from tests.client.serving import sdk
from tests.docs.pages import Block, blocks
from tests.doors.grpc.serving import serving
from tests.integrations.upstream import Upstream

TCP = "127.0.0.1:7717"
UNIX = "unix:/run/agent/sidecar.sock"
"""The addresses that the documents name."""
FRAMEWORKS = ("agents", "langchain", "pydantic_ai", "prompt_sidecar.integrations.litellm")
"""What is installed in environments of its own."""
TOOL = {
    "type": "function",
    "function": {"name": "read_log", "parameters": {"type": "object", "properties": {"day": {"type": "integer"}}}},
}


def answer(body: Any) -> Says:
    """A model that reads the log once where it has a tool for it, and then answers."""
    roles = [message["role"] for message in body["messages"]]
    return (
        Says("Nothing failed.")
        if "tool" in roles or "tools" not in body
        else Says(calls=[("c1", "read_log", {"day": 1})])
    )


def run(block: Block, code: str, names: dict[str, Any]) -> None:
    """Run a block in a namespace of its own, awaits at its top level included; a traceback shows the page's lines."""
    linecache.cache[str(block)] = (len(code), None, code.splitlines(keepends=True), str(block))
    compiled = compile(code, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    awaited = eval(compiled, names)
    if inspect.isawaitable(awaited):

        async def finish() -> None:
            await awaited

        asyncio.run(finish())


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_a_block_runs(
    block: Block, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the names that the page says are the agent's own: `history`, `tools`, `my_tools`."""
    sdk("openai")
    sdk("anthropic")
    socket = tmp_path / "s"
    options = ServerOptions(listen="127.0.0.1:0", socket=str(socket), sweep_interval=3_600)
    for framework in FRAMEWORKS:
        if f"from {framework}" in block.code and find_spec(framework.split(".")[-1]) is None:
            compile(block.code, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            pytest.skip(f"needs {framework}; tests/integrations runs the same with it")
    streams = "stream=True" in block.code
    with serving(options) as served, Upstream(steps=0) if streams else always(answer) as provider:
        for name in ("OPENAI", "ANTHROPIC"):
            monkeypatch.setenv(f"{name}_API_KEY", "none")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        addresses = {address.startswith("unix:"): address for address in served.server.addresses}
        code = block.code.replace(TCP, addresses[False]).replace(UNIX, addresses[True])
        history = [{"role": "user", "content": "What failed?"}]
        run(
            block, code, {"history": history, "tools": [TOOL], "my_tools": {"read_log": lambda day: f"day {day}: fine"}}
        )
    if "print(" in code:
        assert capsys.readouterr().out.strip()
    if "openai." in code or "anthropic." in code:
        assert provider.bodies


def test_the_readme_shows_a_trimmed_prompt() -> None:
    """What a new user runs without a model trims something, and prints what."""
    (block,) = [block for block in blocks("python") if block.page == "README.md" and "done.trims" in block.code]
    names: dict[str, Any] = {}
    with serving() as served:
        run(block, block.code.replace(TCP, served.address), names)
    assert names["done"].trimmed
    assert names["done"].tokens.after < names["done"].tokens.before
    assert ["cap"] == [trim.reason for trim in names["done"].trims]
