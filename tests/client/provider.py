"""A provider on loopback that speaks the JSON of three APIs, and answers as a script says.

The SDKs of openai and anthropic talk to it as to their own provider, so that what they make of our objects is tried by
the SDKs themselves. It keeps every body that it was sent, and counts tokens as it likes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

MODEL: Final = "scripted"
TOKENS: Final = {"input": 1_234, "cached": 1_024, "output": 56}
"""What each answer says that it took."""


@dataclass(frozen=True, slots=True)
class Says:
    """A turn of the model: text, and calls as id, name and arguments; or a refusal with a status."""

    text: str = ""
    calls: Sequence[tuple[str, str, Mapping[str, Any]]] = ()
    status: int = 200
    blocks: Sequence[Any] = ()
    """Further blocks or items before these, in the API's own words; of chat completions, members of the message."""
    tokens: Mapping[str, int] = field(default_factory=lambda: TOKENS)
    """What it says that it took."""
    model: str = MODEL
    """Which one it says that answered."""


Script = Iterable[Says | Callable[[Any], Says]]
"""Turns in order; a function is given the body that was sent."""


@dataclass(slots=True)
class Provider:
    """See the file. A context manager; `bodies` are the requests that it was sent, by the path's end."""

    script: list[Says | Callable[[Any], Says]]
    always: Callable[[Any], Says] | None = None
    """What takes every turn, where there is no script."""
    bodies: list[Any] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    server: Any = None
    thread: Any = None

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"owner": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        """Take the script's next turn."""
        self.bodies.append(body)
        turn = self.always or self.script.pop(0)
        says = turn(body) if callable(turn) else turn
        if says.status != 200:
            return says.status, {"error": {"message": says.text, "type": "invalid_request_error", "code": None}}
        return 200, SHAPES[path.rsplit("/v1/", 1)[1]](says, len(self.bodies))


def provider(*script: Says | Callable[[Any], Says]) -> Provider:
    """A provider that answers so."""
    return Provider(list(script))


def always(answer: Callable[[Any], Says]) -> Provider:
    """A provider whose every turn a function takes, given the body that was sent."""
    return Provider([], answer)


def _chat(says: Says, number: int) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": says.text or None}
    for members in says.blocks:
        message |= members
    if says.calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for call_id, name, arguments in says.calls
        ]
    finish = "tool_calls" if says.calls else "stop"
    return {
        "id": f"chat-{number}",
        "object": "chat.completion",
        "created": 0,
        "model": says.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": {
            "prompt_tokens": says.tokens["input"],
            "completion_tokens": says.tokens["output"],
            "total_tokens": says.tokens["input"] + says.tokens["output"],
            "prompt_tokens_details": {"cached_tokens": says.tokens["cached"]},
        },
    }


def _responses(says: Says, number: int) -> Any:
    text = {"type": "output_text", "text": says.text, "annotations": []}
    output = [{"type": "message", "id": f"m{number}", "role": "assistant", "status": "completed", "content": [text]}]
    calls = [
        {"type": "function_call", "id": f"f{call_id}", "call_id": call_id, "name": name, "status": "completed"}
        | {"arguments": json.dumps(arguments)}
        for call_id, name, arguments in says.calls
    ]
    return {
        "id": f"resp-{number}",
        "object": "response",
        "created_at": 0,
        "model": says.model,
        "status": "completed",
        "output": [*says.blocks, *(output if says.text else []), *calls],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": says.tokens["input"],
            "input_tokens_details": {"cached_tokens": says.tokens["cached"]},
            "output_tokens": says.tokens["output"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": says.tokens["input"] + says.tokens["output"],
        },
    }


def _messages(says: Says, number: int) -> Any:
    text = [{"type": "text", "text": says.text}] if says.text else []
    calls = [
        {"type": "tool_use", "id": call_id, "name": name, "input": arguments} for call_id, name, arguments in says.calls
    ]
    return {
        "id": f"msg-{number}",
        "type": "message",
        "role": "assistant",
        "model": says.model,
        "content": [*says.blocks, *text, *calls],
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": says.tokens["input"] - says.tokens["cached"],
            "cache_read_input_tokens": says.tokens["cached"],
            "cache_creation_input_tokens": 0,
            "output_tokens": says.tokens["output"],
        },
    }


SHAPES: Final[Mapping[str, Callable[[Says, int], Any]]] = {
    "chat/completions": _chat,
    "responses": _responses,
    "messages": _messages,
}


class _Handler(BaseHTTPRequestHandler):
    """HTTP around `Provider.answer`."""

    owner: Provider
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer."""
        self.owner.headers.append(dict(self.headers))
        status, answer = self.owner.answer(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        raw = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
