"""Shared by the frameworks' modules: driving the client in asyncio, and the sidecar's tools."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from prompt_sidecar.client import AsyncClient, Client, ClientError
from prompt_sidecar.client.arguments import TrimOptions
from prompt_sidecar.client.engine import Rpc, Steps
from prompt_sidecar.client.turns import UNREACHABLE
from prompt_sidecar.providers.messages import Format

Result = TypeVar("Result")
NO_RUN: Final = (
    "no run is named: give the integration a run's id or a function that returns it, or make the call inside in_run"
)

_INLINE: Final = frozenset(
    {"openai", "azure", "deepseek", "groq", "openrouter", "together", "xai", "grok", "fireworks"}
)
"""Providers, by frameworks' names, whose models accept a system message anywhere in the history."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a framework's messages are written as JSON, by its name of the provider."""

    format: Format
    blocks: bool
    """Whether the messages have Anthropic's blocks; otherwise they are OpenAI's chat messages."""
    inline: bool
    """Whether the provider's models accept a system message anywhere in the history."""

    @classmethod
    def of(cls, provider: str) -> Form:
        """Return the form for a provider's models."""
        blocks = provider == "anthropic"
        return cls("anthropic_messages" if blocks else "openai_chat", blocks, provider in _INLINE)

    def options(self, options: TrimOptions, *, recall: bool) -> TrimOptions:
        """Return the options of a prompt; `recall`: whether the model is offered the sidecar's tools.

        If the sidecar's own text is put into the system prompt there is no note, as it would change the prompt's
        beginning each time.
        """
        made: TrimOptions = {**options}
        if not recall:
            made["recall_unavailable"] = True
        if not (self.blocks or self.inline):
            made["policy"] = {"note_place": "off", **(options.get("policy") or {})}
        return made


Kind = TypeVar("Kind", Client, AsyncClient)


def of_kind(client: Kind, kind: type[Kind]) -> Kind:
    """Return the client, if it is of the kind that an integration drives.

    Raises:
        TypeError: it is of another kind, with which each model call of the agent would fail.
    """
    if not isinstance(client, kind):
        raise TypeError(f"client is a {type(client).__name__}; this needs prompt_sidecar.client.{kind.__name__}")
    return client


async def adrive(client: Client, steps: Steps[Result], ask: Callable[..., Any] | None = None) -> Result:
    """Perform a use case's steps in asyncio: sidecar calls in threads, model calls by awaiting `ask`."""
    call = client._call  # noqa: SLF001  # a part of the client
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, Rpc):
                    answer = await asyncio.to_thread(call, step)
                else:
                    assert ask is not None
                    answer = ask(**step.keywords)
                    answer = await answer if inspect.isawaitable(answer) else answer
            except Exception as error:  # noqa: BLE001  # the use case decides how to handle it
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as ended:
        result: Result = ended.value
        return result


@dataclass(frozen=True, slots=True)
class Definition:
    """One of the sidecar's tools, for the model."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """A JSON schema."""


def definitions(client: Client) -> Sequence[Definition]:
    """Return the sidecar's tools; none if it cannot be reached and the client fails open."""
    try:
        tools = client.list_tools("anthropic_messages")
    except ClientError:
        if not client.options.fail_open:
            raise
        return ()
    return [
        Definition(each["name"], each["description"], each["input_schema"]) for each in json.loads(tools.tools_json)
    ]


def run_tool(client: Client, run_id: str, name: str, arguments: str | Mapping[str, Any]) -> str:
    """Run one of the sidecar's tools; return the text for the model, also after an error."""
    try:
        return client.call_tool(run_id, name, arguments).content
    except ClientError:
        if not client.options.fail_open:
            raise
        return UNREACHABLE


def restored(client: Client, run_id: str, name: str, arguments: str) -> str:
    """Return the JSON arguments of a call that is about to be executed, with values in place of masks.

    Values that the sidecar does not allow this tool stay masked, as do all if it cannot be reached.
    """
    try:
        return client.restore_secrets(run_id, [(name, arguments)])[0].arguments
    except ClientError:
        if not client.options.fail_open:
            raise
        return arguments


def text_of(content: Any) -> str:
    """Return the text of a message's content, which may be an array of parts."""
    if isinstance(content, str):
        return content
    return "".join(part if isinstance(part, str) else part.get("text", "") for part in content or ())


def origins(sent: Sequence[Mapping[str, Any]], made: Sequence[Any]) -> list[int | None]:
    """Return for each message of a trimmed prompt the index of its original message; None if it is new.

    An unchanged message is the same object. The original of a changed one is the last message before the next one's
    original that has the same role and call ids.
    """
    places = {id(message): place for place, message in enumerate(sent)}
    found = [places.get(id(message)) for message in made]
    lowest, least = [], -1
    for place in found:
        lowest.append(least)
        least = place if place is not None else least
    most = len(sent)
    for at in range(len(made) - 1, -1, -1):
        place = found[at]
        if place is None:
            key = _key(made[at])
            candidates: Iterable[int] = range(most - 1, lowest[at], -1)
            place = found[at] = next((each for each in candidates if _key(sent[each]) == key), None)
        most = most if place is None else place
    return found


def _key(message: Mapping[str, Any]) -> Any:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    ids = [part.get("tool_use_id") or part.get("id") for part in parts if isinstance(part, Mapping)]
    calls = [call.get("id") for call in message.get("tool_calls") or ()]
    return message.get("role"), message.get("tool_call_id"), calls, [each for each in ids if each]
