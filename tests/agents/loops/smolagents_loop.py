"""A tool-calling agent of smolagents."""

from __future__ import annotations

import os

from smolagents import OpenAIModel, ToolCallingAgent, tool

from tests.agents.loops.common import MODEL, TASK, WAY, tell
from tests.agents.loops.common import read_log as reading


@tool
def read_log(number: int) -> str:
    """Read the log of a build.

    Args:
        number: the build's.
    """
    return reading(number)


choice = {"tool_choice": WAY} if WAY else {}
model = OpenAIModel(model_id=MODEL, api_base=os.environ["OPENAI_BASE_URL"], api_key="key", **choice)
agent = ToolCallingAgent(tools=[read_log], model=model, max_steps=100, verbosity_level=0)
tell(agent.run(TASK), agent.memory.steps)
