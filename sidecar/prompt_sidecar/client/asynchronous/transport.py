"""The parts specific to asyncio: the gRPC channels, and the call of the model.

`blocking/transport.py` is its counterpart for programs that block.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

import grpc.aio

from prompt_sidecar.client.engine import Ask
from prompt_sidecar.client.options import Options
from prompt_sidecar.client.streaming import END

Create = Callable[..., Any]
"""An SDK's coroutine function that calls the model, such as `openai.AsyncOpenAI().chat.completions.create`."""


class AsyncChannels:
    """One channel for each event loop: a channel of `grpc.aio` works only in the loop that it was created in."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._channels: dict[asyncio.AbstractEventLoop, grpc.aio.Channel] = {}
        self._closed = False

    def current(self) -> grpc.aio.Channel:
        """Return the running loop's channel; create it if there is none.

        Raises:
            RuntimeError: the client is closed.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._closed:
                raise RuntimeError("this client is closed; make another")
            if loop not in self._channels:
                for ended in [each for each in self._channels if each.is_closed()]:
                    del self._channels[ended]
                options, credentials = self._options, self._options.credentials
                self._channels[loop] = (
                    grpc.aio.insecure_channel(options.target, options.channel_arguments)
                    if credentials is None
                    else grpc.aio.secure_channel(options.target, credentials, options.channel_arguments)
                )
            return self._channels[loop]

    async def close(self) -> None:
        """Close the running loop's channel. The channels of other loops end with their loops."""
        with self._lock:
            self._closed = True
            channel = self._channels.pop(asyncio.get_running_loop(), None)
        if channel is not None:
            await channel.close()


async def ask(create: Create | None, step: Ask) -> Any:
    """Call the model; `create` may be a blocking function too."""
    assert create is not None
    answer: Any = create(**step.keywords)
    return await answer if inspect.isawaitable(answer) else answer


async def advance(stream: Any) -> Any:
    """Return a stream's next event, or `END`. The stream may be a blocking one."""
    return await anext(stream, END) if hasattr(stream, "__anext__") else next(stream, END)


async def release(stream: Any) -> None:
    """Close a stream that may not have ended."""
    close = getattr(stream, "close", None)
    if close is not None:
        closed = close()
        if inspect.isawaitable(closed):
            await closed
