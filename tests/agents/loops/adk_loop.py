"""Google's Agent Development Kit."""

from __future__ import annotations

import asyncio

from google.adk.agents import Agent
from google.adk.runners import InMemoryRunner
from google.genai import types

from tests.agents.loops.common import TASK, read_log, tell


async def main() -> None:
    """Run it."""
    agent = Agent(name="reader", model="gemini-scripted", tools=[read_log])
    runner = InMemoryRunner(agent=agent, app_name="loop")
    session = await runner.session_service.create_session(app_name="loop", user_id="user")
    message = types.Content(role="user", parts=[types.Part(text=TASK)])
    events = [event async for event in runner.run_async(user_id="user", session_id=session.id, new_message=message)]
    tell(events[-1].content.parts[-1].text, events)


asyncio.run(main())
