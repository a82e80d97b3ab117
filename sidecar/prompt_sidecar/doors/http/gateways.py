"""Endpoints to which gateways send the messages of a request, to forward the returned ones to the model.

- `POST /v1/compress`, as users of headroom and its plugins call it: `{"messages": […], "model": …}` is answered with as
  many trimmed messages, and figures; `GET /v1/retrieve/HASH` or `POST /v1/retrieve` returns an original by a hash from
  such an answer (`doors/http/compressing.py`).
- `POST /beta/litellm_basic_guardrail_api`: LiteLLM's Generic Guardrail API, for requests. `structured_messages` are
  trimmed; the model's answers are not changed.

A gateway does not offer the sidecar's tools to the model, so labels have no ids, and hashes only on request. The run is
named by the header `x-prompt-sidecar-run`, for LiteLLM in the original request, if its `extra_headers` forwards that
header; otherwise it is derived from the beginning of the conversation. Messages are never decoded as a whole here:
unchanged ones are returned byte for byte. A request of LiteLLM's that cannot be trimmed is let through, as LiteLLM
would fail it otherwise. Where the guard masks it passes masked, and so do the `texts` of a request without messages, or
LiteLLM is told to block it.

The answers' formats are defined by the callers: LiteLLM's documentation, "Generic Guardrail API", with the module
`generic_guardrail_api` of LiteLLM 1.106, and the client of /v1/compress in LiteLLM's own guardrail `headroom` (read in
November 2026). LiteLLM also sends the model's calls (`input_type` is `response`), but reads none from the answer, so
masks in them stay.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import orjson
from aiohttp import web

from prompt_sidecar.answers.table import DIALECTS
from prompt_sidecar.calls import headers as names
from prompt_sidecar.calls.checks import checked_run_id
from prompt_sidecar.calls.conversations import Conversations, opening_of
from prompt_sidecar.calls.provider_errors import is_final
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.calls.work import CallWorkers
from prompt_sidecar.doors.http.agents import RequestingAgent, connection
from prompt_sidecar.doors.http.compressing import CompressConfig, Hashes, in_place, paired
from prompt_sidecar.doors.http.exchange import RequestOutcome
from prompt_sidecar.doors.http.options import HttpOptions
from prompt_sidecar.errors import InvalidRequest, RunUnknown, SidecarError, TooLarge
from prompt_sidecar.facts.guard_calls import MaskCall, SendingDoor, Unread
from prompt_sidecar.facts.recall_calls import RetrieveCall
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.facts.untrimmed import Handled, Through, Untrimmed, untrimmed_by
from prompt_sidecar.process.logs import frames
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.likeness import format_of_bare
from prompt_sidecar.prompt.members import Members, NotJson, array, each_element, loads
from prompt_sidecar.providers.untyped import MOST_TOKENS, member
from prompt_sidecar.recall.outcome import Outcome as Found
from prompt_sidecar.recall.retrieve import MAX_PAGE_TOKENS

_BYPASS: Final = "x-headroom-bypass"
_RETRIEVE: Final = "/v1/retrieve"
_NOTHING_DROPPED: Final[Mapping[str, object]] = {"fit_residue_high": 1.0, "age_hard_cap_iterations": 0}
"""Policy for callers that need as many messages back as they have sent: clipping instead of dropping."""
_DIGITS: Final = 32
"""Hexadecimal digits of the keyed digest of a gateway's user in a run's id: 128 bits."""
_WITHHELD: Final = "[present]"
"""LiteLLM's replacement for the value of a header that its `extra_headers` does not forward."""
_HASHED_JWT: Final = "hashed-jwt-"
"""Prefix of LiteLLM's hash of a JWT; the hash changes with each token that is issued."""
_log = logging.getLogger("prompt_sidecar.http")


@dataclass(frozen=True, slots=True)
class _Request:
    """A gateway's request."""

    caller: str
    headers: Mapping[str, str]
    raw: bytes
    """The request's body."""
    check: Callable[[], None]
    """Raises if the gateway has disconnected."""
    outcome: RequestOutcome
    name: str = ""
    """The hash in the path; empty if there is none."""

    def went_on(self, untrimmed: Untrimmed | None, run_id: str = "") -> None:
        """Record what was done about the request. A gateway's model does not have the sidecar's tools."""
        self.outcome.handled = Handled(
            Through.GATEWAY,
            untrimmed,
            len(self.raw),
            recall=None if untrimmed is Untrimmed.NO_PROMPT else RecallOffer.UNAVAILABLE,
            caller=self.caller,
            run_id=run_id,
        )


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Handles requests to one path."""

    name: str
    """The endpoint's name in metrics."""
    answer: Callable[[web.Request, RequestingAgent, str, RequestOutcome], Awaitable[web.StreamResponse]]
    """Handler, called with the request, the agent, the caller, and the object that receives the outcome."""


class Gateways:
    """The endpoints for gateways.

    Args:
        options: the door's.
        shared: the services that all doors share.
        conversations: the conversations sent by gateways.
        key: makes digests of a gateway's users.
    """

    def __init__(self, options: HttpOptions, shared: DoorServices, conversations: Conversations, key: bytes) -> None:
        self._options = options
        self._shared = shared
        self._conversations = conversations
        self._key = key
        self._endpoints: Mapping[str, Endpoint] = {
            "/v1/compress": Endpoint("compress", partial(self._answer, self._compress)),
            "/beta/litellm_basic_guardrail_api": Endpoint("guardrail", partial(self._answer, self._guardrail)),
            _RETRIEVE: self._retrieval(""),
        }
        self._hashes = Hashes(key, options.max_conversations)
        shared.use_cases.runs.table.keep_with(self._hashes)

    def of(self, method: str, path: str) -> Endpoint | None:
        """Return the endpoint for a path, or None if it has none."""
        if method == "GET" and path.startswith(f"{_RETRIEVE}/"):
            return self._retrieval(path.removeprefix(f"{_RETRIEVE}/"))
        return self._endpoints.get(path) if method == "POST" else None

    def _retrieval(self, name: str) -> Endpoint:
        return Endpoint("retrieve", partial(self._answer, self._retrieve, name=name))

    async def _answer(
        self,
        make: Callable[[_Request], bytes],
        request: web.Request,
        agent: RequestingAgent,
        caller: str,
        outcome: RequestOutcome,
        *,
        name: str = "",
    ) -> web.StreamResponse:
        raw = await agent.body(self._options.max_body_bytes)
        owner = self._shared.names.owner(caller, connection(request))
        work = CallWorkers(self._shared, owner, len(raw))

        asked = _Request(caller, request.headers, raw, work.check, outcome, name)
        made = await work.run(make, asked)
        headers = {"content-type": "application/json"}
        if outcome.handled is not None:
            self._shared.use_cases.handled(outcome.handled)
            headers |= names.handled(outcome.handled.untrimmed, outcome.handled.recall)
        return await agent.send(made, headers)

    def _compress(self, request: _Request) -> bytes:
        body = _members(request)
        messages = body.raw("messages")
        if not _is_array(messages):
            raise InvalidRequest("messages must be an array of messages", field="messages")
        # Text that the guard has not searched is not forwarded.
        masks = self._shared.use_cases.runs.guarding.unread(request.caller)
        if request.headers.get(_BYPASS, "").lower() == "true" and not masks:
            request.went_on(Untrimmed.BYPASSED)
            return _with_messages({"tokens_before": 0, "tokens_after": 0, "tokens_saved": 0}, "messages", messages)
        asked = CompressConfig.of(body.get("config"))
        sent = list(each_element(messages))
        given = paired(sent)
        call = self._call(request, body, array(given.messages), run=request.headers.get(names.RUN, ""))
        hashes = self._hashes.of((call.caller, call.run_id)) if asked.hashes else None
        call = replace(
            call,
            body=call.body if hashes is None else hashes.read(call.body),
            context_window=_window(body.get("token_budget")),
            output_reserve=0 if body.get("token_budget") else None,
            policy=_NOTHING_DROPPED,
            recall_unavailable=not asked.hashes,
            edits=True,
            in_place=True,
        )
        answer = self._shared.use_cases.trim(call.body, lambda _: call, request.check, lambda _, answer: answer)
        request.went_on(answer.untrimmed, call.run_id)
        for index in range(min(asked.frozen, len(sent)) if masks else 0):
            sent[index] = self._shared.use_cases.mask(
                SendingDoor.GATEWAY, MaskCall(request.caller, sent[index], call.run_id), request.check
            )
        trims = answer.trimmed.trims
        if hashes is not None:
            sent[asked.frozen :] = map(hashes.read, sent[asked.frozen :])
        placed = in_place(sent, given, answer, FORMATS[call.format], asked.frozen)
        made = array(placed.messages)
        if hashes is not None:
            made = hashes.write(made, [each.stash_id for each in trims])
        per_byte = answer.tokens.before / max(1, len(call.body))
        before = answer.tokens.before - round(per_byte * given.added)
        after = answer.tokens.after - answer.tokens.own_text + round(per_byte * (placed.undone - given.added))
        figures = {
            "tokens_before": before,
            "tokens_after": after,
            "tokens_saved": before - after,
            "compression_ratio": after / before if before else 1.0,
            "transforms_applied": sorted({f"prompt_sidecar:{trim.action}" for trim in trims}),
            "ccr_hashes": hashes.given if hashes is not None else [],
        }
        return _with_messages(figures, "messages", made)

    def _guardrail(self, request: _Request) -> bytes:
        try:
            body = _members(request)
        except TooLarge as error:
            self._shared.refused("http guardrail", error, error.status, request.caller)
            return self._untrimmed(request, error)
        messages = body.raw("structured_messages")
        if body.get("input_type") != "request":
            return _NONE  # the model's answer to a request that has been counted
        if not _is_array(messages) or _EMPTY.fullmatch(messages):
            return self._texts(request, body.raw("texts"))
        user = _user(body.get("request_data"))
        named = _named(body.get("request_headers"))
        # Users' runs are separate, whichever run a header names.
        digest = hmac.digest(self._key, user.encode(), "sha256").hex()[:_DIGITS] if user else ""
        try:
            _, made = self._trimmed(request, body, messages, run=f"{digest}:{named}" if named else "", salt=user)
        except SidecarError as error:
            if is_final(error):
                return _blocked(request, error)
            if error.status in ("DEADLINE_EXCEEDED", "CANCELLED"):
                raise
            self._shared.refused("http guardrail", error, error.status, request.caller)
            return self._untrimmed(request, error, messages)
        except Exception as error:  # noqa: BLE001 - whatever it is, the agent's run goes on
            _log.error("a guardrail's messages pass untrimmed: %s", frames(error))
            return self._untrimmed(request, error, messages)
        if made.strip() == messages.strip():
            return _NONE
        return _with_messages({"action": "GUARDRAIL_INTERVENED"}, "structured_messages", made)

    def _untrimmed(self, request: _Request, error: Exception, messages: bytes = b"") -> bytes:
        """Let LiteLLM send its messages untrimmed: masked if the guard masks, and not at all if it cannot read them.

        Args:
            request: LiteLLM's request.
            error: why they are not trimmed.
            messages: as JSON; empty if they could not be extracted from the request.
        """
        answer = self._masked(request, "structured_messages", messages)
        if not answer.startswith(_BLOCKED):
            request.outcome.failed_open = True
            request.went_on(untrimmed_by(error))
        return answer

    def _texts(self, request: _Request, texts: bytes) -> bytes:
        """Mask the texts of a request without messages, such as one for embeddings."""
        answer = self._masked(request, "texts", texts) if _is_array(texts) else _NONE
        if not answer.startswith(_BLOCKED):
            request.went_on(Untrimmed.NO_PROMPT)
        return answer

    def _masked(self, request: _Request, name: str, raw: bytes) -> bytes:
        """Mask a member of LiteLLM's request, if the guard masks; `raw` is empty if it could not be extracted."""
        use_cases = self._shared.use_cases
        if not use_cases.runs.guarding.unread(request.caller):
            return _NONE
        try:
            if not raw:
                use_cases.left_unread(SendingDoor.GATEWAY, request.caller, Unread.TOO_LARGE)
                return _NONE
            made = use_cases.mask(SendingDoor.GATEWAY, MaskCall(request.caller, raw), request.check)
        except SidecarError as error:
            if error.status in ("DEADLINE_EXCEEDED", "CANCELLED"):
                raise
            return _blocked(request, error)
        return _NONE if made is raw else _with_messages({"action": "GUARDRAIL_INTERVENED"}, name, made)

    def _retrieve(self, request: _Request) -> bytes:
        """Return an original by the hash in the path or in the body.

        Raises:
            RunUnknown: the hash is not known.
            InvalidRequest: no hash is given.
        """
        text = request.name or _text(_members(request).get("hash"))
        if not text:
            raise InvalidRequest("hash must name an original, as ccr_hashes of /v1/compress does", field="hash")
        stash_id, runs = self._hashes.find(request.caller, text)
        for run_id in runs:
            if (found := self._original(request, run_id, stash_id)) is not None:
                return orjson.dumps({"hash": text, **found})
        raise RunUnknown("no original is known here by this hash; it may have expired, or its run have ended")

    def _original(self, request: _Request, run_id: str, stash_id: str) -> dict[str, Any] | None:
        """Return a whole original, or None."""
        parts: list[bytes] = []
        offset = tokens = 0
        while True:
            call = RetrieveCall(request.caller, run_id, stash_id, page_tokens=MAX_PAGE_TOKENS, offset=offset)
            answer = self._shared.use_cases.retrieve(call, request.check)
            if answer.outcome is not Found.HIT:
                return None
            parts.append(answer.page.content)
            tokens, offset = tokens + answer.page.content_tokens, answer.page.next_offset
            if not answer.page.more:
                text = b"".join(parts).decode("utf-8", "replace")
                return {"original_content": text, "original_tokens": tokens, "tool_name": answer.tool or None}

    def _trimmed(
        self, request: _Request, asked: Members, messages: bytes, *, run: str, salt: str = ""
    ) -> tuple[TrimAnswer, bytes]:
        """Trim messages; return the answer, and the trimmed messages as JSON. Arguments as `_call`."""
        call = self._call(request, asked, messages, run=run, salt=salt)

        def written(_: TrimCall, answer: TrimAnswer) -> tuple[TrimAnswer, bytes]:
            request.went_on(answer.untrimmed, call.run_id)
            return answer, messages if answer.prompt.body is None else Members(answer.prompt.body).raw("messages")

        return self._shared.use_cases.trim(call.body, lambda _: call, request.check, written)

    def _call(self, request: _Request, asked: Members, messages: bytes, *, run: str, salt: str = "") -> TrimCall:
        """Return the call that has messages trimmed.

        Args:
            request: the gateway's request.
            asked: the request's body.
            messages: the body's messages, as JSON.
            run: the run's id; empty if it has to be derived.
            salt: separates users whom only the gateway can identify.

        Raises:
            SidecarError: the messages are malformed, or are refused.
        """
        model, tools = asked.get("model"), asked.raw("tools")
        body = b'{"messages":' + messages + (b',"tools":' + tools if _is_array(tools) else b"") + b"}"
        format_name = format_of_bare(map(loads, each_element(messages)))
        if run:
            run_id = checked_run_id(run)
        else:
            opening = opening_of(DIALECTS[format_name], Members(body), request.caller, salt)
            run_id = self._conversations.of(opening).run_id
        return TrimCall(
            caller=request.caller,
            run_id=run_id,
            format=format_name,
            body=body,
            model=model if isinstance(model, str) else "",
            pinned=names.pinned(request.headers, lambda: sum(1 for _ in each_element(messages))),
            recall_unavailable=True,
            accept_bytes=self._options.max_body_bytes * 2,
        )


_EMPTY: Final = re.compile(rb"[ \t\r\n]*\[[ \t\r\n]*\][ \t\r\n]*")
_NONE: Final = orjson.dumps({"action": "NONE"})


_BLOCKED: Final = b'{"action":"BLOCKED"'
"""The beginning of an answer that makes LiteLLM block a request."""


def _blocked(request: _Request, error: SidecarError) -> bytes:
    request.outcome.ended = "refused"
    return orjson.dumps({"action": "BLOCKED", "blocked_reason": error.message})


def _with_messages(figures: Mapping[str, Any], name: str, messages: bytes) -> bytes:
    """Return an object as JSON, with one more member whose messages are JSON already."""
    answer = Members(orjson.dumps(figures))
    answer.set(name, messages)
    return answer.bytes()


def _members(request: _Request) -> Members:
    """Return the members of a request's body. Raises InvalidRequest, TooLarge."""
    try:
        return Members(request.raw)
    except NotJson:
        raise InvalidRequest("the body must be a JSON object") from None


def _is_array(raw: bytes) -> bool:
    return raw.lstrip()[:1] == b"["


def _user(data: Any) -> str:
    """Return whom LiteLLM has authenticated: a key, or a user if the key is not permanent; empty if nobody."""
    found = {each: _text(member(data, f"user_api_key_{each}")) for each in ("hash", "org_id", "team_id", "user_id")}
    key = found.pop("hash")
    holder = "\x1f".join(found.values()) if any(found.values()) else ""
    return (holder or key) if key.startswith(_HASHED_JWT) else (key or holder)


def _named(headers: Any) -> str:
    """Return the run named by a header that LiteLLM forwards, or an empty string."""
    given = headers.items() if isinstance(headers, dict) else ()
    named = next((_text(value) for name, value in given if name.lower() == names.RUN), "")
    return "" if named == _WITHHELD else named


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _window(budget: Any) -> int:
    """Return the window that `token_budget` asks for; 0 if it is absent."""
    if budget is None:
        return 0
    if isinstance(budget, bool) or not isinstance(budget, int) or not 0 < budget <= MOST_TOKENS:
        raise InvalidRequest("token_budget must be a number of tokens", field="token_budget")
    return budget
