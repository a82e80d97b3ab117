"""Endpoints that gateways call with a request's messages and send on what they get back.

- `POST /v1/compress`, as users of headroom and its plugins call it: `{"messages": […], "model": …}` becomes the same
  with other messages and figures.
- `POST /beta/litellm_basic_guardrail_api`: LiteLLM's Generic Guardrail API, for requests. `structured_messages` become
  the trimmed ones; what the model answers is left alone.

A gateway gives the model no tools of the sidecar's, so no ids are shown. Which run: the header `x-prompt-sidecar-run`,
for LiteLLM the header of the original request, where its `extra_headers` lets it through; else by what the conversation
begins with. The answer's shape is fixed by those who call: LiteLLM's documentation, "Generic Guardrail API", and the
client of /v1/compress in LiteLLM's own guardrail `headroom` (both read in November 2026).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import orjson
from aiohttp import web

from prompt_sidecar.errors import InvalidRequest, SidecarError
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.http.conversations import Conversations, Opening
from prompt_sidecar.http.exchange import Work
from prompt_sidecar.http.members import loads
from prompt_sidecar.http.options import HttpOptions
from prompt_sidecar.http.prompting import RUN_HEADER
from prompt_sidecar.serving.checks import checked_run_id
from prompt_sidecar.serving.shared import Shared

COMPRESS: Final = "/v1/compress"
GUARDRAIL: Final = "/beta/litellm_basic_guardrail_api"
_BYPASS: Final = "x-headroom-bypass"
_KEY_CHARACTERS: Final = 32
"""Of LiteLLM's hash of a key, in a run's id: 128 bits."""
_MOST_TOKENS: Final = 100_000_000


Answer: TypeAlias = Callable[[web.Request, str], Awaitable[web.Response]]
"""Answers a request of a caller."""


class Gateways:
    """The endpoints."""

    def __init__(self, options: HttpOptions, key: bytes, shared: Shared) -> None:
        self._options = options
        self._shared = shared
        self._conversations = Conversations(key, options.max_conversations, shared.use_cases.observer.reached)

    def of(self, method: str, path: str) -> Answer | None:
        """Return what answers a path; None: it is none of a gateway's."""
        return {COMPRESS: self._compress, GUARDRAIL: self._guardrail}.get(path) if method == "POST" else None

    async def _compress(self, request: web.Request, caller: str) -> web.Response:
        body = await _body(request)
        messages = body.get("messages")
        if not isinstance(messages, list):
            raise InvalidRequest("messages must be an array of messages", field="messages")
        if request.headers.get(_BYPASS, "").lower() == "true":
            return _json({"messages": messages, "tokens_before": 0, "tokens_after": 0, "tokens_saved": 0})
        asked = _Asked(caller, request.headers.get(RUN_HEADER, ""), body, messages, _window(body.get("token_budget")))
        answer, made = await self._trimmed(asked)
        before, after = answer.tokens.before, answer.tokens.after
        figures = {
            "tokens_before": before,
            "tokens_after": after,
            "tokens_saved": before - after,
            "compression_ratio": after / before if before else 1.0,
            "transforms_applied": sorted({f"prompt_sidecar:{trim.action}" for trim in answer.trims}),
            "ccr_hashes": [],
        }
        return _json({"messages": made, **figures})

    async def _guardrail(self, request: web.Request, caller: str) -> web.Response:
        body = await _body(request)
        messages = body.get("structured_messages")
        if body.get("input_type") != "request" or not isinstance(messages, list) or not messages:
            return _json({"action": "NONE"})
        given, data = body.get("request_headers"), body.get("request_data")
        headers = {str(name).lower(): value for name, value in given.items()} if isinstance(given, dict) else {}
        key = str(data.get("user_api_key_hash") or "") if isinstance(data, dict) else ""
        named = str(headers.get(RUN_HEADER) or "")
        # A run of one key is none of another's, whatever header its holder sends.
        run = f"{key[:_KEY_CHARACTERS]}:{named}" if named else ""
        try:
            answer, made = await self._trimmed(_Asked(caller, run, body, messages, salt=key))
        except SidecarError as error:
            if error.status != "FAILED_PRECONDITION":  # only the guard's refusals are final
                raise
            return _json({"action": "BLOCKED", "blocked_reason": error.message})
        if not answer.trims:
            return _json({"action": "NONE"})
        return _json({"action": "GUARDRAIL_INTERVENED", "structured_messages": made})

    async def _trimmed(self, asked: _Asked) -> tuple[TrimAnswer, Sequence[Any]]:
        """Trim messages; return the answer and the messages that it makes of them."""
        raw = orjson.dumps(asked.prompt)
        run_id = checked_run_id(asked.run) if asked.run else self._conversations.of(_opening(asked)).run_id
        model = asked.body.get("model")
        call = TrimCall(
            caller=asked.caller,
            run_id=run_id,
            format=_format(asked.messages),
            body=raw,
            model=model if isinstance(model, str) else "",
            context_window=asked.window,
            output_reserve=0 if asked.window else None,
            recall_unavailable=True,
            accept_bytes=self._options.max_body_bytes * 2,
        )
        work = Work(self._shared.workers, self._shared.in_flight)

        def answered(_: TrimCall, answer: TrimAnswer) -> tuple[TrimAnswer, Sequence[Any]]:
            return answer, asked.messages if answer.body is None else loads(answer.body)["messages"]

        return await work.run(self._shared.use_cases.trim, raw, lambda: call, work.check, answered)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Messages that are to be trimmed."""

    caller: str
    run: str
    """Empty: it is derived."""
    body: Mapping[str, Any]
    """The gateway's request."""
    messages: list[Any]
    window: int = 0
    """Tokens; 0: the model's."""
    salt: str = ""
    """Keeps apart those whom a gateway knows and the sidecar does not."""

    @property
    def prompt(self) -> Mapping[str, Any]:
        """What is trimmed."""
        tools = self.body.get("tools")
        return {"messages": self.messages, **({"tools": tools} if tools else {})}


async def _body(request: web.Request) -> Mapping[str, Any]:
    found = loads(await request.read())
    if not isinstance(found, dict):
        raise InvalidRequest("the body must be a JSON object")
    return found


def _window(budget: Any) -> int:
    """The window that a budget of tokens asks for."""
    if budget is None:
        return 0
    if not isinstance(budget, int) or not 0 < budget <= _MOST_TOKENS:
        raise InvalidRequest("token_budget must be a number of tokens", field="token_budget")
    return budget


def _format(messages: Sequence[Any]) -> str:
    """The format of bare messages: Anthropic's blocks of tools are in no other one."""
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") in ("tool_use", "tool_result"):
                return "anthropic_messages"
    return "openai_chat"


def _opening(asked: _Asked) -> Opening:
    """What a conversation begins with."""
    first: dict[str, bytes] = {}
    for message in asked.messages:
        role = message.get("role") if isinstance(message, dict) else None
        if isinstance(role, str) and role not in first:
            said = orjson.dumps([message.get("content"), message.get("tool_calls")])
            first[role] = blake2b(said, digest_size=16).digest()
    return Opening(
        caller=asked.caller,
        session=asked.salt,
        system=first.get("system", b""),
        tools=bool(asked.body.get("tools")),
        user=first.get("user", b""),
        answer=first.get("assistant", b""),
    )


def _json(value: Any) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")
