"""A capability for agents of Pydantic AI 2.

    agent = Agent(model, capabilities=[SidecarCapability(Client("127.0.0.1:7717"), "run-1")])

Before each attempt at a model request the messages are trimmed, for that request only: the agent's history stays whole.
The sidecar's tools are a toolset of the agent. The provider's usage is reported, and a prompt that it refuses as too
long is sent again, shorter.

Messages are trimmed as JSON: in Anthropic's format for models of Anthropic's, else in OpenAI's chat format. A part that
is not trimmed is the agent's own object.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Unpack, cast

from pydantic_ai import RetryModelRequest, RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.toolsets import FunctionToolset

from prompt_sidecar.client import Client
from prompt_sidecar.client.arguments import TrimOptions
from prompt_sidecar.client.facts import Trimmed
from prompt_sidecar.client.forwarding import MOST_REFUSALS, Sending, made_shorter, reported, trim
from prompt_sidecar.client.model_calls import has_masks, refuses_thinking, too_long
from prompt_sidecar.integrations.calls import (
    Form,
    adrive,
    definitions,
    of_kind,
    origins,
    restored,
    run_tool,
    text_of,
)
from prompt_sidecar.integrations.naming import RunChoice, chosen

MOST_CALLS: Final = 1_000
"""Calls in flight whose prompts are remembered until they are answered; the usage of older ones is not reported."""


class SidecarCapability(AbstractCapability[Any]):  # type: ignore[misc]  # typed where it is installed
    """Trims the prompts of an agent.

    Args:
        client: the client of the sidecar; its calls are made in threads.
        run: the run's id, or a function called with the `RunContext`. `in_run` takes precedence. By default the
            conversation's id, which a caller passes as `conversation_id`.
        recall: whether the model is offered the sidecar's tools.
        **options: the options of each prompt.

    Raises:
        ClientError: the sidecar did not answer, and the client does not fail open.
        MaskedRun: the sidecar did not answer, and the run has masks.
    """

    def __init__(
        self, client: Client, run: RunChoice = None, *, recall: bool = True, **options: Unpack[TrimOptions]
    ) -> None:
        self._client, self._run, self._options = of_kind(client, Client), run, options
        self._tools = [self._tool(each) for each in definitions(client)] if recall else []
        self._own = frozenset(tool.name for tool in self._tools)
        self._sent: dict[str, tuple[Sending, Trimmed[Any]]] = {}
        """Prompts of model requests that are not answered yet, by run."""
        self.last: Trimmed[Any] | None = None
        """The prompt of the last model call of any run."""

    def get_toolset(self) -> Any:
        """Return the sidecar's tools."""
        return FunctionToolset(self._tools, id="prompt-sidecar") if self._tools else None

    async def prepare_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        """Trim the messages of one attempt."""
        run_id = self._run_id(ctx)
        prompt = _Prompt(request_context)
        options = prompt.form.options(self._options, recall=bool(self._own) and self._own <= prompt.tool_names)
        sending = Sending(run_id, prompt.body, prompt.form.format, options)
        trimmed = await adrive(self._client, trim(self._engine, sending))
        self._sent[run_id] = sending, trimmed
        if len(self._sent) > MOST_CALLS:  # their calls were cancelled
            self._sent.pop(next(iter(self._sent)))
        self.last = trimmed
        return replace(request_context, messages=prompt.replaced(trimmed.prompt))

    async def after_model_request(self, ctx: RunContext[Any], *, request_context: Any, response: Any) -> Any:  # noqa: ARG002
        """Report the provider's usage."""
        run_id = self._run_id(ctx)
        sent = self._sent.pop(run_id, None)
        usage = response.usage
        if sent is not None and usage.input_tokens:
            counted: Any = {
                "input_tokens": usage.input_tokens,
                "cached_tokens": usage.cache_read_tokens,
                "cache_write_tokens": usage.cache_write_tokens,
                "output_tokens": usage.output_tokens,
                "input_counting": "with_cached",
            }
            await adrive(self._client, reported(self._engine, run_id, counted, sent[1]))
        return response

    async def before_tool_validate(self, ctx: RunContext[Any], *, call: Any, tool_def: Any, args: Any) -> Any:  # noqa: ARG002
        """Restore masks in a tool's arguments; the history keeps the call as the model wrote it."""
        arguments = args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)
        if call.tool_name in self._own or not has_masks(arguments):
            return args
        made = await asyncio.to_thread(restored, self._client, self._run_id(ctx), call.tool_name, arguments)
        return made if isinstance(args, str) else json.loads(made)

    async def on_model_request_error(self, ctx: RunContext[Any], *, request_context: Any, error: Exception) -> Any:
        """Send a prompt again that was refused as too long, as long as trimming makes it shorter."""
        run_id = self._run_id(ctx)
        sent = self._sent.pop(run_id, None)
        if sent is None or request_context.attempt > MOST_REFUSALS:
            raise error
        if refuses_thinking(error) and self._engine.thinking_refused(run_id):
            raise RetryModelRequest from error
        if too_long(error):
            shorter = await adrive(self._client, made_shorter(self._engine, *sent, error))
            if shorter is not None:
                raise RetryModelRequest from error
        raise error

    @property
    def _engine(self) -> Any:
        return self._client._engine  # noqa: SLF001  # a part of the client

    def _run_id(self, ctx: RunContext[Any]) -> str:
        return chosen(self._run, ctx) or str(ctx.conversation_id or ctx.run_id)

    def _tool(self, definition: Any) -> Tool[Any]:
        def call(ctx: RunContext[Any], **arguments: Any) -> str:
            return run_tool(self._client, self._run_id(ctx), definition.name, arguments)

        return Tool.from_schema(
            call,  # it blocks, so it is run in a thread
            definition.name,
            definition.description,
            dict(definition.parameters),
            takes_ctx=True,
        )


@dataclass(frozen=True, slots=True)
class _MessagePlace:
    """The place in the agent's history of a message in the JSON."""

    message: int
    part: int
    """Index of a request's part; -1 for a whole response."""


class _Prompt:
    """Converts a model request to JSON and back."""

    def __init__(self, context: Any) -> None:
        self.given: list[Any] = list(context.messages)
        model, parameters = context.model, context.model_request_parameters
        self.form = Form.of(str(model.system))
        self.tool_names = frozenset(tool.name for tool in parameters.function_tools)
        self.sent: list[dict[str, Any]] = []
        self.places: list[_MessagePlace | None] = []
        system = [part.content for part in parameters.instruction_parts or ()]
        anthropic = self.form.blocks
        for at, message in enumerate(self.given):
            if isinstance(message, ModelResponse):
                self._add(_MessagePlace(at, -1), _response_json(message, anthropic=anthropic))
                continue
            for index, part in enumerate(message.parts):
                if anthropic and isinstance(part, SystemPromptPart):
                    system.append(part.content)
                elif (entry := _asked(part, anthropic=anthropic)) is not None:
                    self._add(_MessagePlace(at, index), entry)
        tools = [_definition(tool, anthropic=anthropic) for tool in parameters.function_tools]
        self.system = [{"type": "text", "text": "\n\n".join(system)}] if system else []
        if not anthropic and system:
            self.sent.insert(0, {"role": "system", "content": self.system[0]["text"]})
            self.places.insert(0, None)
        most = (context.model_settings or {}).get("max_tokens")
        self.body: dict[str, Any] = {
            "model": model.model_name,
            "messages": self.sent,
            **({"system": self.system} if anthropic and system else {}),
            **({"tools": tools} if tools else {}),
            **({"max_tokens": most} if most else {}),
        }

    def _add(self, place: _MessagePlace, entry: dict[str, Any]) -> None:
        self.sent.append(entry)
        self.places.append(place)

    def replaced(self, body: Mapping[str, Any]) -> list[Any]:
        """Return the trimmed messages."""
        kept: dict[_MessagePlace, Any] = {}
        """The returned entry, by place."""
        new: dict[_MessagePlace | None, list[Any]] = {}
        """Entries that the agent does not have, by the place that they follow."""
        own: list[str] = []
        last: _MessagePlace | None = None
        for made, origin in zip(body["messages"], origins(self.sent, body["messages"]), strict=True):
            place = None if origin is None else self.places[origin]
            if origin is not None and place is None:
                continue  # the system prompt
            if place is not None:
                kept[place] = None if made is self.sent[cast("int", origin)] else made
                last = place
            elif made.get("role") in ("system", "developer") and not self.form.inline:
                own.append(text_of(made.get("content")))
            else:
                new.setdefault(last, []).append(_new(made))
        own += [block["text"] for block in body.get("system") or () if block not in self.system]
        messages: list[Any] = []
        anthropic = self.form.blocks
        self._begin(messages, own, new.get(None, []))
        for at, message in enumerate(self.given):
            if isinstance(message, ModelResponse):
                place = _MessagePlace(at, -1)
                if place in kept:
                    messages.append(
                        message if kept[place] is None else _with_content(message, kept[place], anthropic=anthropic)
                    )
                if place in new:
                    messages.append(ModelRequest(parts=new[place]))
            else:
                parts = self._parts(at, message, kept, new)
                if parts:
                    same = len(parts) == len(message.parts) and all(
                        a is b for a, b in zip(parts, message.parts, strict=True)
                    )
                    messages.append(message if same else replace(message, parts=parts))
        return messages

    def _begin(self, messages: list[Any], own: Sequence[str], parts: Sequence[Any]) -> None:
        first = [*(SystemPromptPart(content=text) for text in own), *parts]
        if first:
            messages.append(ModelRequest(parts=first))

    def _parts(self, at: int, message: Any, kept: Mapping[_MessagePlace, Any], new: Mapping[Any, Any]) -> list[Any]:
        """Return the remaining parts of a request, trimmed, each with the entries after it. Parts not sent stay."""
        known = {place.part for place in self.places if place is not None and place.message == at}
        parts: list[Any] = []
        for index, part in enumerate(message.parts):
            place = _MessagePlace(at, index)
            if index not in known or place in kept:
                made = kept.get(place)
                parts.append(part if made is None else _asked_again(part, made))
            parts += new.get(place, ())
        return parts


def _definition(tool: Any, *, anthropic: bool) -> dict[str, Any]:
    described = {"name": tool.name, "description": tool.description or ""}
    if anthropic:
        return {**described, "input_schema": tool.parameters_json_schema}
    return {"type": "function", "function": {**described, "parameters": tool.parameters_json_schema}}


def _asked(part: Any, *, anthropic: bool) -> dict[str, Any] | None:
    """Return a request's part as JSON; None if it is not a text of a user, a tool or the system."""
    if isinstance(part, SystemPromptPart):
        return {"role": "system", "content": part.content}
    if isinstance(part, UserPromptPart):
        content: Any = part.content
        if not isinstance(content, str):
            # Only texts are sent to the sidecar. The part stays unchanged, as a user's words are never trimmed.
            content = [{"type": "text", "text": each} for each in content if isinstance(each, str)] or ""
        return {"role": "user", "content": content}
    call_id = getattr(part, "tool_call_id", None)
    if isinstance(part, ToolReturnPart):
        answer = part.model_response_str()
    elif call_id and getattr(part, "tool_name", None) and hasattr(part, "model_response"):
        answer = part.model_response()  # a tool call that has to be repeated
    else:
        return None
    if anthropic:
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": answer}]}
    return {"role": "tool", "tool_call_id": call_id, "content": answer}


def _asked_again(part: Any, made: Mapping[str, Any]) -> Any:
    """Return a part of a request with the trimmed content."""
    content = made.get("content")
    results = [each for each in content or () if isinstance(each, Mapping) and each.get("type") == "tool_result"]
    text = text_of(results[0].get("content") if results else content)
    if isinstance(part, UserPromptPart | SystemPromptPart):
        return replace(part, content=text)
    return ToolReturnPart(tool_name=part.tool_name, content=text, tool_call_id=part.tool_call_id)


def _response_json(message: Any, *, anthropic: bool) -> dict[str, Any]:
    """Return a response as JSON. Its texts are separate parts, so that each is found again."""
    content: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            content.append({"type": "text", "text": part.content})
        elif isinstance(part, ThinkingPart) and anthropic and part.signature:
            content.append({"type": "thinking", "thinking": part.content, "signature": part.signature})
        elif isinstance(part, ToolCallPart) and anthropic:
            content.append(
                {"type": "tool_use", "id": part.tool_call_id, "name": part.tool_name, "input": part.args_as_dict()}
            )
        elif isinstance(part, ToolCallPart):
            function = {"name": part.tool_name, "arguments": part.args_as_json_str()}
            calls.append({"id": part.tool_call_id, "type": "function", "function": function})
    made: dict[str, Any] = {"role": "assistant", "content": content}
    if not anthropic:
        made["content"] = content or None
        if calls:
            made["tool_calls"] = calls
    return made


def _with_content(message: Any, made: Mapping[str, Any], *, anthropic: bool) -> Any:
    """Return a response with the trimmed content: texts by their order, arguments by their calls, thinking if left."""
    content = made.get("content")
    blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    texts = [block["text"] for block in blocks if block.get("type") == "text"]
    signed = {block.get("signature") for block in blocks if block.get("type") == "thinking"}
    arguments: dict[Any, Any] = {block["id"]: block["input"] for block in blocks if block.get("type") == "tool_use"}
    for call in made.get("tool_calls") or ():
        arguments[call["id"]] = json.loads(call["function"]["arguments"])
    parts: list[Any] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            if texts:
                text = texts.pop(0)
                parts.append(part if text == part.content else replace(part, content=text))
        elif isinstance(part, ThinkingPart):
            if not anthropic or not part.signature or part.signature in signed:
                parts.append(part)
        elif isinstance(part, ToolCallPart):
            args = arguments.get(part.tool_call_id, part.args)
            parts.append(part if args == part.args else replace(part, args=args))
        else:
            parts.append(part)
    parts = [*(TextPart(content=text) for text in texts), *parts]
    return replace(message, parts=parts)


def _new(made: Mapping[str, Any]) -> Any:
    """Return a part that the agent does not have: the sidecar's own text, or a placeholder."""
    text = text_of(made.get("content"))
    return (
        SystemPromptPart(content=text) if made.get("role") in ("system", "developer") else UserPromptPart(content=text)
    )
