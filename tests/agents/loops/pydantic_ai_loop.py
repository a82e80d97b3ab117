"""Pydantic AI, with a model by its provider's name."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.usage import UsageLimits

from tests.agents.loops.common import MODEL, TASK, WAY, read_log, tell

agent = Agent(f"{WAY}:{MODEL}", tools=[read_log])
result = agent.run_sync(TASK, usage_limits=UsageLimits(request_limit=None))
tell(result.output, result.all_messages())
