"""The parts specific to programs that block: the gRPC channel, and the call of the model.

`asynchronous/transport.py` is its counterpart for asyncio.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable
from typing import Any

import grpc

from prompt_sidecar.client.engine import Ask
from prompt_sidecar.client.options import Options
from prompt_sidecar.client.streaming import END

Create = Callable[..., Any]
"""An SDK's function that calls the model, such as `openai.OpenAI().chat.completions.create`."""


class Channels:
    """One channel for each process: a forked process cannot use its parent's. Thread-safe."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._pid = 0
        self._closed = False

    def current(self) -> grpc.Channel:
        """Return this process's channel; create it if there is none.

        Raises:
            RuntimeError: the client is closed.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("this client is closed; make another")
            if self._channel is None or self._pid != os.getpid():
                options, credentials = self._options, self._options.credentials
                self._channel = (
                    grpc.insecure_channel(options.target, options.channel_arguments)
                    if credentials is None
                    else grpc.secure_channel(options.target, credentials, options.channel_arguments)
                )
                self._pid = os.getpid()
            return self._channel

    def close(self) -> None:
        """Close the channel, if this process has created it."""
        with self._lock:
            channel, self._channel, self._closed = self._channel, None, True
        if channel is not None and self._pid == os.getpid():
            channel.close()


def ask(create: Create | None, step: Ask) -> Any:
    """Call the model.

    Raises:
        TypeError: `create` is a coroutine function.
    """
    assert create is not None
    answer = create(**step.keywords)
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()  # or Python would warn that it was never awaited
        raise TypeError("a blocking client was given a coroutine function: give it a blocking one, or use AsyncClient")
    return answer


def advance(stream: Any) -> Any:
    """Return a stream's next event, or `END`."""
    return next(stream, END)


def release(stream: Any) -> None:
    """Close a stream that may not have ended."""
    close = getattr(stream, "close", None)
    if close is not None:
        close()
