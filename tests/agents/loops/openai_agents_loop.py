"""OpenAI's Agents SDK."""

from __future__ import annotations

from agents import Agent, Runner, function_tool

from tests.agents.loops.common import MODEL, TASK, read_log, tell

agent = Agent(name="reader", model=MODEL, tools=[function_tool(read_log)])
result = Runner.run_sync(agent, TASK, max_turns=100)
tell(result.final_output, result.to_input_list())
