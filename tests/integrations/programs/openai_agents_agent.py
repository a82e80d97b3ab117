"""An agent of the OpenAI Agents SDK with the sidecar's filter, hooks and tools."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import (
    Agent,
    Model,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from openai import AsyncOpenAI

from prompt_sidecar.client import Client
from prompt_sidecar.integrations.openai_agents import Sidecar
from tests.integrations.programs.common import GOT, QUESTION, deploy, result, settings_read, show, tell


@function_tool
def read_log(number: int) -> str:
    """Read the log of a build."""
    return result(number)


def model(words: Any) -> Model:
    """The model of a provider."""
    client = AsyncOpenAI(base_url=f"{words['upstream']}/v1", api_key="k", max_retries=0)
    made: type[Any] = OpenAIResponsesModel if words["api"] == "openai_responses" else OpenAIChatCompletionsModel
    return made("scripted", client)


async def main() -> None:
    """Run it."""
    words = settings_read()
    with Client(words["sidecar"], deadline=60.0) as client:
        sidecar = Sidecar(client, "run", context_window=words["window"], output_reserve=500)
        own = sidecar.tools() if words["options"].get("recall", True) else []
        masked = [function_tool(deploy), function_tool(show)] if "question" in words else []
        more, question = sidecar.restoring(masked), words.get("question", QUESTION)
        settings = ModelSettings(include_usage=True)
        agent = Agent(
            name="reader",
            instructions="You read logs.",
            tools=[read_log, *more, *own],
            model=model(words),
            model_settings=settings,
        )
        config = RunConfig(call_model_input_filter=sidecar.filter)
        pieces = 0
        if words["stream"]:
            ran = Runner.run_streamed(agent, question, hooks=sidecar, run_config=config, max_turns=100)
            async for event in ran.stream_events():
                pieces += event.type == "raw_response_event"
        else:
            ran = await Runner.run(agent, question, hooks=sidecar, run_config=config, max_turns=100)
        tell(
            answer=ran.final_output,
            kept=len(str(ran.to_input_list())),
            pieces=pieces,
            untrimmed=client.untrimmed,
            got=GOT,
            held=str(ran.to_input_list()),
            tools=[each.name for each in own],
        )


asyncio.run(main())
