"""Microsoft's Agent Framework."""

from __future__ import annotations

import asyncio

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient

from tests.agents.loops.common import MODEL, TASK, WAY, read_log, tell


async def main() -> None:
    """Run it."""
    made = OpenAIChatCompletionClient if WAY == "chat" else OpenAIChatClient
    client = made(model=MODEL)
    client.function_invocation_configuration["max_iterations"] = 100
    options = {"store": False} if WAY == "stateless" else {}
    agent = Agent(client, tools=[read_log], default_options=options)
    result = await agent.run(TASK)
    tell(result.text, result.messages)


asyncio.run(main())
