"""The callback of LiteLLM with odd input, in the framework's environment, with a sidecar that nobody is."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

from litellm.types.utils import ModelResponseStream

from prompt_sidecar.client import Client
from prompt_sidecar.integrations.litellm import SidecarCallback

MASK = "⟦github_token:aaaaaaaaaa⟧"


class Odd(ModelResponseStream):  # type: ignore[misc]  # typed where it is installed
    """A piece that cannot be made of its members."""

    def __init__(self, *, made: bool = False, **members: Any) -> None:
        if not made:
            raise TypeError
        super().__init__(**members)


def members(arguments: str, finish: str | None = None) -> dict[str, Any]:
    """Those of a piece of a call."""
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "deploy", "arguments": arguments}}
    return {"id": "1", "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": finish}]}


async def streamed(callback: SidecarCallback, pieces: list[Any]) -> list[Any]:
    """What the hook hands on."""

    async def response() -> AsyncIterator[Any]:
        for piece in pieces:
            yield piece

    data = {"proxy_server_request": {"headers": {"x-prompt-sidecar-run": "run"}}}
    return [each async for each in callback.async_post_call_streaming_iterator_hook(None, response(), data)]


async def named(client: Client, run: Callable[[Any], Any] | str) -> Any:
    """What becomes of a request where a function names its run."""
    data = {"messages": [{"role": "user", "content": "Hello."}], "model": "m"}
    return await SidecarCallback(client, run).async_pre_call_hook(None, None, data, "acompletion")


def fails(_: Any) -> str:
    """A function that names no run."""
    raise LookupError


def returning(value: Any) -> Callable[[Any], Any]:
    """A function that names a run so."""
    return lambda _: value


async def main() -> Any:
    """Tell the arguments that were handed on, and what became of each request."""
    with Client("127.0.0.1:1", deadline=1.0) as client:
        first, second = f'{{"token":"{MASK[:5]}', f"{MASK[5:]} and %e2"
        pieces = [
            ModelResponseStream(**members(first)),
            Odd(made=True, **members(second)),
            ModelResponseStream(**members('"}', "tool_calls")),
        ]
        handed = await streamed(SidecarCallback(client), pieces)
        arguments = [each.choices[0].delta.tool_calls[0].function.arguments for each in handed]
        returned: list[Any] = ["\ud83d", 7, b"run", "x" * 1_000_000, []]
        odd = [fails, *(returning(value) for value in returned)]
        requests = [await named(client, each) for each in odd]
    return {"arguments": arguments, "requests": requests}


print(json.dumps(asyncio.run(main())), file=sys.stdout)
