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
from functools import partial
from typing import Any, Final

import orjson
from aiohttp import web

from prompt_sidecar.errors import InvalidRequest, SidecarError
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.http.options import HttpOptions
from prompt_sidecar.http.work import Work
from prompt_sidecar.serving import headers as names
from prompt_sidecar.serving.checks import checked_run_id
from prompt_sidecar.serving.conversations import Conversations, opening_of
from prompt_sidecar.serving.histories import HISTORIES
from prompt_sidecar.serving.members import Members, loads
from prompt_sidecar.serving.provider_errors import is_final
from prompt_sidecar.serving.shared import Shared
from prompt_sidecar.serving.untyped import MOST_TOKENS, member, objects

_BYPASS: Final = "x-headroom-bypass"
_KEY_CHARACTERS: Final = 32
"""Of LiteLLM's hash of a key, in a run's id: 128 bits."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A gateway's request."""

    caller: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    check: Callable[[], None]
    """Ends a call whose gateway has gone."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What answers requests to one path."""

    name: str
    """In metrics."""
    answer: Callable[[web.Request, str], Awaitable[web.Response]]
    """Given a request and its caller."""


class Gateways:
    """The endpoints."""

    def __init__(self, options: HttpOptions, shared: Shared, conversations: Conversations) -> None:
        self._options = options
        self._shared = shared
        self._conversations = conversations
        self._endpoints: Mapping[str, Endpoint] = {
            "/v1/compress": Endpoint("compress", partial(self._answer, self._compress)),
            "/beta/litellm_basic_guardrail_api": Endpoint("guardrail", partial(self._answer, self._guardrail)),
        }

    def of(self, method: str, path: str) -> Endpoint | None:
        """Return what answers a path; None: it is none of a gateway's."""
        return self._endpoints.get(path) if method == "POST" else None

    async def _answer(
        self, make: Callable[[_Request], Mapping[str, Any]], request: web.Request, caller: str
    ) -> web.Response:
        raw = await request.read()
        work = Work(self._shared.workers, self._shared.in_flight)

        def made() -> bytes:
            body = loads(raw)
            if not isinstance(body, dict):
                raise InvalidRequest("the body must be a JSON object")
            return orjson.dumps(make(_Request(caller, request.headers, body, work.check)))

        return web.Response(body=await work.run(made), content_type="application/json")

    def _compress(self, request: _Request) -> Mapping[str, Any]:
        messages = request.body.get("messages")
        if not isinstance(messages, list):
            raise InvalidRequest("messages must be an array of messages", field="messages")
        if request.headers.get(_BYPASS, "").lower() == "true":
            return {"messages": messages, "tokens_before": 0, "tokens_after": 0, "tokens_saved": 0}
        window = _window(request.body.get("token_budget"))
        answer, made = self._trimmed(request, messages, run=request.headers.get(names.RUN, ""), window=window)
        before, after = answer.tokens.before, answer.tokens.after
        return {
            "messages": made,
            "tokens_before": before,
            "tokens_after": after,
            "tokens_saved": before - after,
            "compression_ratio": after / before if before else 1.0,
            "transforms_applied": sorted({f"prompt_sidecar:{trim.action}" for trim in answer.trims}),
            "ccr_hashes": [],
        }

    def _guardrail(self, request: _Request) -> Mapping[str, Any]:
        body = request.body
        messages = body.get("structured_messages")
        if body.get("input_type") != "request" or not isinstance(messages, list) or not messages:
            return {"action": "NONE"}
        given = body.get("request_headers")
        headers = {str(name).lower(): value for name, value in given.items()} if isinstance(given, dict) else {}
        key = str(member(body, "request_data", "user_api_key_hash") or "")
        named = str(headers.get(names.RUN) or "")
        # A run of one key is none of another's, whatever header its holder sends.
        run = f"{key[:_KEY_CHARACTERS]}:{named}" if named else ""
        try:
            answer, made = self._trimmed(request, messages, run=run, salt=key)
        except SidecarError as error:
            if not is_final(error):
                raise
            return {"action": "BLOCKED", "blocked_reason": error.message}
        if not answer.trims:
            return {"action": "NONE"}
        return {"action": "GUARDRAIL_INTERVENED", "structured_messages": made}

    def _trimmed(
        self, request: _Request, messages: Sequence[Any], *, run: str, window: int = 0, salt: str = ""
    ) -> tuple[TrimAnswer, Sequence[Any]]:
        """Trim messages; return the answer and the messages that it makes of them.

        Args:
            request: the gateway's.
            messages: of it.
            run: the run's id; empty: it is derived.
            window: tokens; 0: the model's.
            salt: keeps apart those whom a gateway knows and the sidecar does not.
        """
        tools, model = request.body.get("tools"), request.body.get("model")
        raw = orjson.dumps({"messages": messages, **({"tools": tools} if tools else {})})
        format_name = _format(messages)
        if run:
            run_id = checked_run_id(run)
        else:
            opening = opening_of(HISTORIES[format_name], Members(raw), request.caller, salt)
            run_id = self._conversations.of(opening).run_id
        call = TrimCall(
            caller=request.caller,
            run_id=run_id,
            format=format_name,
            body=raw,
            model=model if isinstance(model, str) else "",
            context_window=window,
            output_reserve=0 if window else None,
            recall_unavailable=True,
            accept_bytes=self._options.max_body_bytes * 2,
        )

        def written(_: TrimCall, answer: TrimAnswer) -> tuple[TrimAnswer, Sequence[Any]]:
            return answer, messages if answer.body is None else loads(answer.body)["messages"]

        return self._shared.use_cases.trim(raw, lambda: call, request.check, written)


def _window(budget: Any) -> int:
    """The window that a budget of tokens asks for."""
    if budget is None:
        return 0
    if not isinstance(budget, int) or not 0 < budget <= MOST_TOKENS:
        raise InvalidRequest("token_budget must be a number of tokens", field="token_budget")
    return budget


def _format(messages: Sequence[Any]) -> str:
    """The format of bare messages: Anthropic's blocks of tools are in no other one."""
    blocks = (block for message in messages for block in objects(member(message, "content")))
    tools = any(block.get("type") in ("tool_use", "tool_result") for block in blocks)
    return "anthropic_messages" if tools else "openai_chat"
