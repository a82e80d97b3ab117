"""A middleware for agents of LangChain 1 (`langchain.agents.create_agent`).

    agent = create_agent(model, tools, middleware=[SidecarMiddleware(Client("127.0.0.1:7717"))])
    agent.invoke({"messages": [...]}, {"configurable": {"thread_id": "run-1"}})

Before each model call the history is trimmed; the agent's own state keeps it whole. The sidecar's tools are offered
with the agent's. The provider's usage is reported. A prompt that it refuses as too long is sent again, shorter.

Messages are trimmed as JSON: in Anthropic's format for models of Anthropic's, else in OpenAI's chat format. A message
that is not trimmed is the agent's own object; a trimmed one is a copy with new content and arguments.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Unpack

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.config import get_config

from prompt_sidecar.client import Client
from prompt_sidecar.client.arguments import TrimOptions, Usage
from prompt_sidecar.client.engine import Steps
from prompt_sidecar.client.facts import Trimmed
from prompt_sidecar.client.forwarding import Sending, forward, reported
from prompt_sidecar.client.model_calls import has_masks
from prompt_sidecar.integrations.calls import (
    NO_RUN,
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


class SidecarMiddleware(AgentMiddleware[Any, Any, Any]):  # type: ignore[misc]  # typed where it is installed
    """Trims the prompts of an agent.

    Args:
        client: the client of the sidecar; in asyncio its calls are made in threads.
        run: the run's id, or a function called with the `ModelRequest` (None for a tool call). `in_run` takes
            precedence. By default the `thread_id` of the configuration.
        recall: whether the model is offered the sidecar's tools.
        **options: the options of each prompt.

    Raises:
        ValueError: no run is named; raised at a model call.
        ClientError: the sidecar did not answer, and the client does not fail open.
        MaskedRun: the sidecar did not answer, and the run has masks.
    """

    def __init__(
        self, client: Client, run: RunChoice = None, *, recall: bool = True, **options: Unpack[TrimOptions]
    ) -> None:
        super().__init__()
        self._client, self._run, self._options = of_kind(client, Client), run, options
        self.tools = [self._tool(each) for each in definitions(client)] if recall else []
        self._own = frozenset(tool.name for tool in self.tools)
        self.last: Trimmed[Any] | None = None
        """The prompt of the last model call of any run."""

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Trim, call the model, report."""
        return self._client._drive(self._steps(request), handler)  # noqa: SLF001  # a part of the client

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Trim, call the model, report."""
        return await adrive(self._client, self._steps(request), handler)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Restore masks in a tool's arguments; the state keeps the call as the model wrote it."""
        return handler(self._restored(request))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Restore masks in a tool's arguments; the state keeps the call as the model wrote it."""
        return await handler(await asyncio.to_thread(self._restored, request))

    def _restored(self, request: Any) -> Any:
        call = request.tool_call
        arguments = json.dumps(call["args"], ensure_ascii=False)
        if call["name"] in self._own or not has_masks(arguments):
            return request
        made = restored(self._client, self._run_id(None), call["name"], arguments)
        return request.override(tool_call={**call, "args": json.loads(made)})

    def _steps(self, request: Any) -> Steps[Any]:
        engine = self._client._engine  # noqa: SLF001  # a part of the client
        run_id = self._run_id(request)
        prompt = _Prompt(request)
        options = prompt.form.options(self._options, recall=self._own <= prompt.tool_names and bool(self._own))

        def asked(trimmed: Trimmed[Any]) -> Mapping[str, Any]:
            self.last = trimmed
            return {"request": prompt.replaced(trimmed.prompt)}

        response, trimmed = yield from forward(engine, Sending(run_id, prompt.body, prompt.form.format, options, asked))
        yield from reported(engine, run_id, _usage(response), trimmed)
        return response

    def _run_id(self, request: Any) -> str:
        run_id = chosen(self._run, request)
        if not run_id:
            run_id = str((get_config().get("configurable") or {}).get("thread_id") or "")
        if not run_id:
            raise ValueError(f"{NO_RUN}; or invoke the agent with a thread_id")
        return run_id

    def _tool(self, definition: Any) -> StructuredTool:
        def call(**arguments: Any) -> str:
            return run_tool(self._client, self._run_id(None), definition.name, arguments)

        return StructuredTool.from_function(
            func=call,  # asyncio: LangChain calls it in a thread
            name=definition.name,
            description=definition.description,
            args_schema=dict(definition.parameters),
        )


class _Prompt:
    """Converts a model request to JSON and back."""

    def __init__(self, request: Any) -> None:
        self.request = request
        model = request.model
        described = model._get_ls_params() if hasattr(model, "_get_ls_params") else {}  # noqa: SLF001
        self.form = Form.of(str(described.get("ls_provider", "")))
        self.model = str(described.get("ls_model_name") or getattr(model, "model_name", "") or "")
        tools = [convert_to_openai_tool(tool)["function"] for tool in request.tools or () if _is_function(tool)]
        self.tool_names = frozenset(tool["name"] for tool in tools)
        system = request.system_message
        self.messages: list[Mapping[str, Any]]
        if self.form.blocks:
            self.messages = [_anthropic(message) for message in request.messages]
            more: dict[str, Any] = {"system": system.content} if system is not None else {}
            more["tools"] = [
                {"name": t["name"], "description": t.get("description", ""), "input_schema": t.get("parameters", {})}
                for t in tools
            ]
        else:
            leading = [] if system is None else [{"role": "system", "content": system.content}]
            self.messages = [*leading, *(_chat(message) for message in request.messages)]
            more = {"tools": [{"type": "function", "function": tool} for tool in tools]}
        most = getattr(model, "max_tokens", None)
        self.body = {
            "model": self.model,
            "messages": self.messages,
            **{name: value for name, value in more.items() if value},
            **({"max_tokens": most} if isinstance(most, int) else {}),
        }

    def replaced(self, body: Mapping[str, Any]) -> Any:
        """Return the request with the trimmed messages."""
        system: SystemMessage | None = self.request.system_message
        given = list(self.request.messages)
        offset = len(self.messages) - len(given)
        messages: list[BaseMessage] = []
        own: list[str] = []
        for made, place in zip(body["messages"], origins(self.messages, body["messages"]), strict=True):
            if place is not None and place < offset:
                continue  # the system prompt, which is never trimmed
            if place is not None:
                original = given[place - offset]
                messages.append(original if made is self.messages[place] else _edited(original, made))
            elif made.get("role") in ("system", "developer") and not (self.form.blocks or self.form.inline):
                own.append(text_of(made.get("content")))
            else:
                messages.append(_new(made))
        if self.form.blocks and body.get("system"):
            changed = system is None or body["system"] != system.content
            system = SystemMessage(content=body["system"]) if changed else system
        if own:
            first = [] if system is None else [text_of(system.content)]
            system = SystemMessage(content="\n\n".join([*first, *own]))
        return self.request.override(messages=messages, system_message=system)


def _is_function(tool: Any) -> bool:
    """Whether a tool is run by the agent, rather than by the provider."""
    return not isinstance(tool, Mapping) or "function" in tool or "input_schema" in tool or "parameters" in tool


_CALL_BLOCKS: Final = frozenset({"function_call", "tool_use", "tool_call"})
"""Blocks of content that repeat the calls in `tool_calls`."""


def _chat(message: BaseMessage) -> dict[str, Any]:
    content: Any = message.content
    if isinstance(message, AIMessage):
        if isinstance(content, list):
            content = [part for part in content if not _is_call(part)]
        calls = [
            {
                "id": call["id"] or "",
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["args"], ensure_ascii=False)},
            }
            for call in message.tool_calls
        ]
        return (
            {"role": "assistant", "content": content or None, "tool_calls": calls}
            if calls
            else {
                "role": "assistant",
                "content": content,
            }
        )
    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": content}
    role = {"system": "system", "human": "user"}.get(message.type, getattr(message, "role", "user"))
    return {"role": role, "content": content}


def _is_call(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _CALL_BLOCKS


def _anthropic(message: BaseMessage) -> dict[str, Any]:
    content: Any = message.content
    if isinstance(message, AIMessage):
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) and content else list(content)
        blocks = [{"type": "text", "text": each} if isinstance(each, str) else each for each in blocks]
        arguments = {call["id"]: call["args"] for call in message.tool_calls}
        known = {block.get("id") for block in blocks if _is_call(block)}
        # A streamed block has its input as text, and `tool_calls` has it parsed.
        blocks = [
            {"type": "tool_use", "id": block["id"], "name": block["name"], "input": arguments[block["id"]]}
            if _is_call(block) and block.get("id") in arguments
            else block
            for block in blocks
        ]
        blocks += [
            {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]}
            for call in message.tool_calls
            if call["id"] not in known
        ]
        return {"role": "assistant", "content": blocks}
    if isinstance(message, ToolMessage):
        result = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": content}
        return {"role": "user", "content": [result | ({"is_error": True} if message.status == "error" else {})]}
    return {"role": "system" if message.type == "system" else "user", "content": content}


def _edited(message: BaseMessage, made: Mapping[str, Any]) -> BaseMessage:
    """Return a copy of a message with the trimmed content."""
    content = made.get("content")
    if isinstance(message, ToolMessage):
        results = [part for part in content or () if isinstance(part, Mapping) and part.get("type") == "tool_result"]
        return message.model_copy(update={"content": results[0].get("content", "") if results else content})
    if not isinstance(message, AIMessage):
        return message.model_copy(update={"content": content})
    parts = content if isinstance(content, list) else []
    arguments: dict[Any, Any] = {part.get("id"): part["input"] for part in parts if _is_call(part)}
    for call in made.get("tool_calls") or ():
        arguments[call["id"]] = json.loads(call["function"]["arguments"])
    calls = [{**call, "args": arguments.get(call["id"] or "", call["args"])} for call in message.tool_calls]
    if isinstance(message.content, list):
        text = [{"type": "text", "text": content}] if content else []
        kept = list(content) if isinstance(content, list) else text
        shown = {part.get("id") for part in kept if _is_call(part)}
        kept += [
            _with_arguments(part, arguments)
            for part in message.content
            if _is_call(part) and part.get("id") not in shown
        ]
        return message.model_copy(update={"content": kept, "tool_calls": calls})
    joined = content if isinstance(content, str) else text_of(parts)
    return message.model_copy(update={"content": joined, "tool_calls": calls})


def _with_arguments(part: Any, arguments: Mapping[Any, Any]) -> Any:
    """Return a block of content that repeats a call, with the trimmed arguments."""
    changed = arguments.get(part.get("call_id") or part.get("id"))
    if changed is None:
        return part
    if "arguments" in part:
        return {**part, "arguments": json.dumps(changed, ensure_ascii=False)}
    return {**part, ("args" if "args" in part else "input"): changed}


def _new(made: Mapping[str, Any]) -> BaseMessage:
    """Return a message that the agent does not have: the sidecar's own text, or a placeholder."""
    content: Any = made.get("content") or ""
    if made.get("role") in ("system", "developer"):
        return SystemMessage(content=content)
    return AIMessage(content=content) if made.get("role") == "assistant" else HumanMessage(content=content)


def _usage(response: Any) -> Usage:
    """Return the provider's usage from the answer's `usage_metadata`, whose input includes cached tokens."""
    messages: Sequence[Any] = getattr(response, "result", None) or [response]
    found = next((each.usage_metadata for each in messages if getattr(each, "usage_metadata", None)), None)
    if found is None:
        return {}
    details = found.get("input_token_details") or {}
    return {
        "input_tokens": found.get("input_tokens"),
        "cached_tokens": details.get("cache_read"),
        "cache_write_tokens": details.get("cache_creation"),
        "output_tokens": found.get("output_tokens"),
        "input_counting": "with_cached",
    }
