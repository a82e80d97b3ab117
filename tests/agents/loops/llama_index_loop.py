"""LlamaIndex's function agent."""

from __future__ import annotations

import asyncio
import os

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.workflow import Context
from llama_index.llms.openai import OpenAI

from tests.agents.loops.common import TASK, read_log, tell


async def main() -> None:
    """Run it. It takes names of OpenAI's models alone, whose window the sidecar knows: a header says a smaller one."""
    window = {"x-prompt-sidecar-context-window": os.environ["LOOP_WINDOW"]}
    agent = FunctionAgent(tools=[read_log], llm=OpenAI(model="gpt-4o", default_headers=window))
    context = Context(agent)
    answer = await agent.run(TASK, ctx=context, max_iterations=100)
    tell(answer, context.to_dict())


asyncio.run(main())
