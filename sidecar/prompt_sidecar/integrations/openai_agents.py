"""A filter, hooks and tools for the OpenAI Agents SDK.

    sidecar = Sidecar(Client("127.0.0.1:7717"), "run-1")
    agent = Agent(name="reader", tools=[*sidecar.restoring([read_log]), *sidecar.tools()])
    await Runner.run(agent, question, hooks=sidecar, run_config=RunConfig(call_model_input_filter=sidecar.filter))

The filter trims the input of each model call, the hooks report the provider's usage; the run's own items stay whole.
The SDK has no hook for a failed model call: pass the exception that ends a run to `refused`, or let the transport in
`prompt_sidecar.integrations.httpx` send a refused prompt again. Tools need `restoring` only if the guard masks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextvars import ContextVar
from copy import copy
from typing import Any, Unpack

from agents import FunctionTool, RunHooks
from agents.run import CallModelData, ModelInputData

from prompt_sidecar.client import Client
from prompt_sidecar.client.arguments import TrimOptions
from prompt_sidecar.client.facts import Trimmed
from prompt_sidecar.client.forwarding import Sending, reported, trim
from prompt_sidecar.client.model_calls import has_masks, too_long
from prompt_sidecar.integrations.calls import NO_RUN, adrive, definitions, of_kind, restored, run_tool
from prompt_sidecar.integrations.naming import RunChoice, chosen


class Sidecar(RunHooks[Any]):  # type: ignore[misc]  # typed where it is installed
    """Trims the prompts of agents; also the hooks for their runs.

    Args:
        client: the client of the sidecar; its calls are made in threads.
        run: the run's id, or a function called with the SDK's `CallModelData`, or `ToolContext` for a tool call;
            both have the program's own object in `context`. `in_run` takes precedence.
        **options: the options of each prompt.

    Raises:
        ValueError: no run is named; raised at a model call.
        ClientError: the sidecar did not answer, and the client does not fail open.
        MaskedRun: the sidecar did not answer, and the run has masks.
    """

    def __init__(self, client: Client, run: RunChoice = None, **options: Unpack[TrimOptions]) -> None:
        self._client, self._run, self._options = of_kind(client, Client), run, options
        self._own = frozenset[str]()
        self._sent: ContextVar[tuple[str, Trimmed[Any]] | None] = ContextVar("prompt_sidecar_sent", default=None)
        self.last: Trimmed[Any] | None = None
        """The prompt of the last model call of any run."""

    def tools(self) -> list[FunctionTool]:
        """Return the sidecar's tools; none if it cannot be reached. Without them labels have no ids."""
        made = [self._tool(each) for each in definitions(self._client)]
        self._own = frozenset(tool.name for tool in made)
        return made

    def restoring(self, tools: Iterable[Any]) -> list[Any]:
        """Return an agent's tools, wrapped so that masks in their arguments are replaced by values.

        The history keeps the calls as the model wrote them. Tools of other types than `FunctionTool` are returned
        unchanged.
        """
        return [self._restoring(tool) if isinstance(tool, FunctionTool) else tool for tool in tools]

    def _restoring(self, tool: FunctionTool) -> FunctionTool:
        async def call(context: Any, arguments: str) -> Any:
            if has_masks(arguments):
                run_id = self._run_id(context)
                arguments = await asyncio.to_thread(restored, self._client, run_id, tool.name, arguments)
            return await tool.on_invoke_tool(context, arguments)

        made = copy(tool)
        made.on_invoke_tool = call
        return made

    async def filter(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the trimmed input of a model call."""
        run_id = self._run_id(data)
        body = _body(data)
        options: TrimOptions = {**self._options}
        offered = frozenset(tool["name"] for tool in body.get("tools", ()))
        if not (self._own and self._own <= offered):
            options["recall_unavailable"] = True
        engine = self._client._engine  # noqa: SLF001  # a part of the client
        trimmed = await adrive(self._client, trim(engine, Sending(run_id, body, "openai_responses", options)))
        self.last = trimmed
        self._sent.set((run_id, trimmed))
        return ModelInputData(input=trimmed.prompt["input"], instructions=trimmed.prompt.get("instructions"))

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:  # noqa: ARG002  # the SDK's
        """Report the provider's usage for the last prompt that this task has sent."""
        sent, usage = self._sent.get(), response.usage
        if sent is None or not usage.requests or not usage.input_tokens:
            return
        run_id, trimmed = sent
        self._sent.set(None)
        counted: Any = {
            "input_tokens": usage.input_tokens,
            "cached_tokens": getattr(usage.input_tokens_details, "cached_tokens", None),
            "output_tokens": usage.output_tokens,
            "input_counting": "with_cached",
        }
        await adrive(self._client, reported(self._client._engine, run_id, counted, trimmed))  # noqa: SLF001

    async def refused(self, error: BaseException) -> bool:
        """Report that the provider refused this task's last prompt; return whether it was refused for its length.

        If so, the run can be started again from its items: its next prompt is shorter.
        """
        sent, refusal = self._sent.get(), too_long(error)
        if sent is None or not refusal:
            return False
        run_id, trimmed = sent
        engine = self._client._engine  # noqa: SLF001  # a part of the client
        engine.refused(run_id)
        await adrive(self._client, reported(engine, run_id, {"refusal": {"message": refusal}}, trimmed))
        return True

    def _run_id(self, data: Any) -> str:
        run_id = chosen(self._run, data)
        if not run_id:
            raise ValueError(NO_RUN)
        return run_id

    def _tool(self, definition: Any) -> FunctionTool:
        async def call(context: Any, arguments: str) -> str:
            run_id = self._run_id(context)
            return await asyncio.to_thread(run_tool, self._client, run_id, definition.name, arguments)

        return FunctionTool(
            name=definition.name,
            description=definition.description,
            params_json_schema=dict(definition.parameters),
            on_invoke_tool=call,
            strict_json_schema=False,
        )


def _body(data: CallModelData[Any]) -> dict[str, Any]:
    """Return a request body of the Responses API, which is the shape of the SDK's items for every model."""
    agent, given = data.agent, data.model_data
    tools = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.params_json_schema,
        }
        for tool in agent.tools
        if isinstance(tool, FunctionTool)
    ]
    model = agent.model if isinstance(agent.model, str) else getattr(agent.model, "model", None)
    most = agent.model_settings.max_tokens
    return {
        **({"model": str(model)} if model else {}),
        **({"instructions": given.instructions} if given.instructions else {}),
        "input": given.input,
        **({"tools": tools} if tools else {}),
        **({"max_output_tokens": most} if most else {}),
    }
