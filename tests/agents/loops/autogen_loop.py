"""AutoGen's assistant agent."""

from __future__ import annotations

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

from tests.agents.loops.common import MODEL, TASK, read_log, tell


async def main() -> None:
    """Run it."""
    info = ModelInfo(vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False)
    model = OpenAIChatCompletionClient(model=MODEL, model_info=info)
    agent = AssistantAgent("reader", model, tools=[read_log], max_tool_iterations=100)
    result = await agent.run(task=TASK)
    tell(result.messages[-1].content, result.messages)


asyncio.run(main())
