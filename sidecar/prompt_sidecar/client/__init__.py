"""The client for agents that are written in Python. It needs gRPC and protobuf, and nothing of the server.

    with Client("127.0.0.1:7717") as client, client.run("run-1", context_window=128_000) as run:
        answer = openai.chat.completions.create(**run.openai_chat(model="gpt-4o", messages=history))

`Client` blocks; `AsyncClient` is the same for asyncio. A client fails open: if the sidecar is down, slow or refuses,
the prompt is sent to the model without it, and is counted. A prompt that a ceiling or the guard refuses is not sent.
"""

from __future__ import annotations

from prompt_sidecar.client.answers import (
    Cache,
    CeilingUse,
    Ended,
    Finding,
    Found,
    InPrompt,
    Retrieved,
    RunFigures,
    Snippet,
    Task,
    Tokens,
    Tool,
    ToolAnswer,
    Tools,
    Trim,
    UsageLearned,
)
from prompt_sidecar.client.arguments import Bytes, Lines, Pattern, SearchOptions, TrimOptions, Usage
from prompt_sidecar.client.asynchronous.client import AsyncClient, AsyncRun, AsyncStreamed
from prompt_sidecar.client.blocking.client import Client, Run, Streamed
from prompt_sidecar.client.errors import (
    CallerCeiling,
    ClientError,
    GuardRefused,
    InvalidRequest,
    MaskedRun,
    MustNotBeSent,
    Refused,
    RunCeiling,
    RunUnknown,
    Unreachable,
)
from prompt_sidecar.client.facts import Restored, Trimmed
from prompt_sidecar.client.loop import Completion
from prompt_sidecar.client.model_calls import ModelCall
from prompt_sidecar.client.options import Tls

__all__ = [
    "AsyncClient",
    "AsyncRun",
    "AsyncStreamed",
    "Bytes",
    "Cache",
    "CallerCeiling",
    "CeilingUse",
    "Client",
    "ClientError",
    "Completion",
    "Ended",
    "Finding",
    "Found",
    "GuardRefused",
    "InPrompt",
    "InvalidRequest",
    "Lines",
    "MaskedRun",
    "ModelCall",
    "MustNotBeSent",
    "Pattern",
    "Refused",
    "Restored",
    "Retrieved",
    "Run",
    "RunCeiling",
    "RunFigures",
    "RunUnknown",
    "SearchOptions",
    "Snippet",
    "Streamed",
    "Task",
    "Tls",
    "Tokens",
    "Tool",
    "ToolAnswer",
    "Tools",
    "Trim",
    "TrimOptions",
    "Trimmed",
    "Unreachable",
    "Usage",
    "UsageLearned",
]
