"""A callback for LiteLLM's proxy: chat completions, Anthropic's messages and OpenAI's responses, streamed or not.

In a file next to the proxy's configuration, which names it as `callbacks: sidecar.callback`:

    callback = SidecarCallback(Client("127.0.0.1:7717"), context_window=128_000)

A request is trimmed before LiteLLM chooses a deployment for it. The header `x-prompt-sidecar-run` names its run, or
else LiteLLM's session id; without either, the request is forwarded unchanged. Runs of different keys of the proxy, or
of different users if it has no keys, are separate: the id begins with a digest of the key or user, as operators see
ids. The provider's usage is reported from LiteLLM's log of the call, for streams too, and so is a refusal of the prompt
as too long. The model does not have the sidecar's tools, so labels have no ids.

If the guard has masked something, masks in the answers' calls are replaced by the values that are allowed when the
answers leave the proxy: LiteLLM's own objects, which it logs and caches, are copied first and keep their masks.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from copy import deepcopy
from typing import Any, Final, Unpack

from litellm.integrations.custom_logger import CustomLogger

from prompt_sidecar.client import Client
from prompt_sidecar.client.arguments import TrimOptions, Usage
from prompt_sidecar.client.errors import ClientError
from prompt_sidecar.client.facts import Trimmed
from prompt_sidecar.client.forwarding import Sending, reported, trim
from prompt_sidecar.client.model_calls import too_long
from prompt_sidecar.integrations.answers import FAILED, TOO_MUCH, EventStream, JsonEvents, MaskValues, places
from prompt_sidecar.integrations.calls import adrive, of_kind
from prompt_sidecar.integrations.naming import RUN_HEADER, RunChoice, chosen
from prompt_sidecar.providers.messages import Format

_log = logging.getLogger("prompt_sidecar.client")
MOST_CALLS: Final = 10_000
"""Calls in flight whose prompts are remembered until LiteLLM logs them; the usage of older ones is not reported."""
MOST_RUN_BYTES: Final = 256
"""Longest id of a run that the sidecar accepts, in bytes."""
DIGITS: Final = 32
"""Hexadecimal digits of the digest in a run's id: 128 bits."""
_HASHED_JWT: Final = "hashed-jwt-"
"""Prefix of LiteLLM's hash of a JWT; the hash changes with each token that is issued."""
_FORMATS: Final[Mapping[str, Format]] = {
    "completion": "openai_chat",
    "acompletion": "openai_chat",
    "anthropic_messages": "anthropic_messages",
    "responses": "openai_responses",
    "aresponses": "openai_responses",
}
"""The call types of LiteLLM whose requests are trimmed."""
_MEMBERS: Final = (
    "messages",
    "input",
    "system",
    "instructions",
    "tools",
    "model",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "thinking",
    "previous_response_id",
)
"""Members of a request's body that take tokens, or affect how the prompt may be trimmed. LiteLLM adds many of its
own."""


class SidecarCallback(CustomLogger):  # type: ignore[misc]  # typed where it is installed
    """Trims the requests of LiteLLM's proxy.

    Args:
        client: the client of the sidecar; its calls are made in threads.
        run: a function that returns the run's id, given LiteLLM's `data`, or None to leave a request unchanged; by
            default the header or the session id.
        **options: the options of each prompt. The sidecar may not know the proxy's model names: set `context_window`.
    """

    def __init__(self, client: Client, run: RunChoice = None, **options: Unpack[TrimOptions]) -> None:
        super().__init__()
        self._client, self._run = of_kind(client, Client), run
        self._options: TrimOptions = {"recall_unavailable": True, **options}
        self._lock = threading.Lock()
        self._sent: OrderedDict[str, tuple[str, Trimmed[Any]]] = OrderedDict()

    async def async_pre_call_hook(self, user_api_key_dict: Any, cache: Any, data: Any, call_type: Any) -> Any:  # noqa: ARG002
        """Trim one request.

        Raises:
            ClientError: the sidecar did not trim it, and its client does not fail open.
            MaskedRun: the sidecar did not answer, and the run has masks; the proxy answers with an error.
        """
        format, run_id = _FORMATS.get(str(call_type)), self._run_id(data, user_api_key_dict)
        if format is None or not run_id:
            return None
        body = {name: data[name] for name in _MEMBERS if data.get(name) is not None}
        sending = Sending(run_id, body, format, self._options)
        trimmed = await adrive(self._client, trim(self._engine, sending))
        call_id = data.get("litellm_call_id")
        if call_id:
            with self._lock:
                self._sent[call_id] = run_id, trimmed
                if len(self._sent) > MOST_CALLS:
                    self._sent.popitem(last=False)
        return {**data, **trimmed.prompt}

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:  # noqa: ARG002
        """Report the provider's usage."""
        sent = self._taken(kwargs)
        if sent is not None:
            await adrive(self._client, reported(self._engine, sent[0], _usage(kwargs), sent[1]))

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:  # noqa: ARG002
        """Report that the provider refused a prompt as too long; the run's next one is shorter."""
        error = kwargs.get("exception")
        refusal = too_long(error) if isinstance(error, BaseException) else ""
        sent = self._taken(kwargs)
        if sent is not None and refusal:
            self._engine.refused(sent[0])
            usage: Usage = {"refusal": {"message": refusal}}
            await adrive(self._client, reported(self._engine, sent[0], usage, sent[1]))

    async def async_post_call_success_hook(self, data: Any, user_api_key_dict: Any, response: Any) -> Any:
        """Return a whole answer with values in place of masks; None if it is unchanged."""
        run_id, format = self._run_id(data, user_api_key_dict), _format_of(response)
        if not run_id or format is None:
            return None
        try:
            answer = response if isinstance(response, dict) else response.model_dump()
            answer = deepcopy(answer) if answer is response else answer
            found = list(places(format, answer))
            if not found or not await adrive(self._client, MaskValues(self._engine, run_id).put(found)):
                return None
            return answer if isinstance(response, dict) else _with_calls(response, answer)
        except ClientError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a provider sends, the agent gets its answer
            _log.error(FAILED, type(error).__name__)
            return None

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: Any
    ) -> AsyncIterator[Any]:
        """Yield the pieces of a stream, with values in place of masks."""
        run_id = self._run_id(request_data, user_api_key_dict)
        values = MaskValues(self._engine, run_id)
        stream = EventStream("anthropic_messages", values)
        events: JsonEvents | None = None
        classes: dict[Any, Any] = {}
        passes = not run_id
        async for piece in response:
            if passes:
                yield piece
            elif isinstance(piece, bytes | str):
                raw = piece.encode() if isinstance(piece, str) else piece
                if made := await adrive(self._client, stream.feed(raw)):
                    yield made
            elif (format := _format_of(piece)) is None:
                yield piece
            else:
                events = events or JsonEvents(format, values)
                try:
                    data = piece.model_dump(mode="json")
                    before, changed = await adrive(self._client, events.take(data))
                    pieces = [classes[each.get("type")](**each) for each in before]
                    pieces.append(type(piece)(**data) if changed else piece)
                    classes[data.get("type")] = type(piece)
                except ClientError:
                    raise
                except Exception as error:  # noqa: BLE001 - whatever a provider sends, the agent gets its answer
                    passes = True
                    events.undo()
                    pieces = [*_waiting(events, classes), piece]
                    _log.error(FAILED, type(error).__name__)
                if not passes and events.too_much:
                    passes = True
                    pieces += _waiting(events, classes)
                    _log.warning(TOO_MUCH)
                for handed in pieces:
                    yield handed
        for handed in _waiting(events, classes) if events is not None else ():
            yield handed
        if rest := await adrive(self._client, stream.end()):
            yield rest

    @property
    def _engine(self) -> Any:
        return self._client._engine  # noqa: SLF001  # a part of the client

    def _taken(self, kwargs: Mapping[str, Any]) -> tuple[str, Trimmed[Any]] | None:
        with self._lock:
            return self._sent.pop(kwargs.get("litellm_call_id") or "", None)

    def _run_id(self, data: Mapping[str, Any], key: Any) -> str:
        """Return the run's id, prefixed by a digest of whom the proxy has authenticated."""
        headers = (data.get("proxy_server_request") or {}).get("headers") or {}
        named = next((value for name, value in headers.items() if name.lower() == RUN_HEADER), "")
        metadata = data.get("metadata") or data.get("litellm_metadata") or {}
        session = data.get("litellm_session_id") or (
            metadata.get("session_id") if isinstance(metadata, Mapping) else ""
        )
        run_id = str(named or chosen(self._run, data) or session or "")
        made = f"{holder(key)}:{run_id}" if run_id else ""
        if not made.isprintable() or len(made.encode()) > MOST_RUN_BYTES:  # a lone surrogate is not printable
            _log.warning("a request passes untrimmed: its run's id is too long, or cannot be printed")
            return ""
        return made


def _waiting(events: JsonEvents, classes: Mapping[Any, Any]) -> list[Any]:
    """Return the waiting text of a stream as LiteLLM's objects, without parts that cannot be converted."""
    found = []
    for each in events.flushed():
        try:
            found.append(classes[each.get("type")](**each))
        except Exception as error:  # noqa: BLE001 - whatever a provider sends, the agent gets the rest of its answer
            _log.error(FAILED, type(error).__name__)
    return found


def holder(authenticated: Any) -> str:
    """Return a digest of whom LiteLLM has authenticated; empty if nobody.

    A custom authentication may use the credential itself as the key, so no part of it may be visible to operators. If
    there is no key, or only one that changes with each token, the digest is of the user.

    Args:
        authenticated: LiteLLM's `UserAPIKeyAuth`.
    """
    key, *ids = (
        value if isinstance(value := getattr(authenticated, name, None), str) else ""
        for name in ("api_key", "org_id", "team_id", "user_id")
    )
    user = "\x1f".join(ids) if any(ids) else ""
    named = (user or key) if key.startswith(_HASHED_JWT) else (key or user)
    return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS] if named else ""


def _format_of(answer: Any) -> Format | None:
    """Return the API of an answer, or of a piece of one, from its LiteLLM class; None if it has no calls."""
    if isinstance(answer, dict):
        return "anthropic_messages" if answer.get("type") == "message" else None
    if not hasattr(answer, "model_dump"):
        return None
    if hasattr(answer, "choices"):
        return "openai_chat"
    kind = getattr(answer, "type", "")
    is_event = str(getattr(kind, "value", kind)).startswith("response.")  # some are members of an enum
    return "openai_responses" if is_event or hasattr(answer, "output") else None


def _with_calls(response: Any, answer: Any) -> Any:
    """Return a copy of an answer with the arguments of another's calls."""
    made = response.model_copy(deep=True)
    for choice, there in zip(getattr(made, "choices", ()), answer.get("choices", ()), strict=True):
        for call, other in zip(choice.message.tool_calls or (), there["message"].get("tool_calls") or (), strict=True):
            call.function.arguments = other["function"]["arguments"]
    for item, there in zip(getattr(made, "output", ()), answer.get("output", ()), strict=True):
        if there.get("type") == "function_call":
            if isinstance(item, dict):
                item["arguments"] = there["arguments"]
            else:
                item.arguments = there["arguments"]
    return made


def _usage(kwargs: Mapping[str, Any]) -> Usage:
    """Return the provider's usage, as LiteLLM logs it for every provider: the input includes cached tokens."""
    logged = kwargs.get("standard_logging_object") or {}
    usage = (logged.get("metadata") or {}).get("usage_object") or {}
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    if not logged.get("prompt_tokens"):
        return {}
    return {
        "input_tokens": logged["prompt_tokens"],
        "cached_tokens": details.get("cached_tokens"),
        "cache_write_tokens": details.get("cache_creation_tokens"),
        "output_tokens": logged.get("completion_tokens"),
        "input_counting": "with_cached",
    }
