"""Strands, with its default provider: Bedrock's Converse, streamed."""

from __future__ import annotations

from strands import Agent, tool

from tests.agents.loops.common import TASK, read_log, tell

agent = Agent(model="maker.scripted-v1:0", tools=[tool(read_log)], callback_handler=None)
result = agent(TASK)
tell(result, agent.messages)
