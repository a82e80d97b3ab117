"""A crew of one agent of CrewAI.

Of a model that it does not know it thinks that its window has 8,192 tokens, and summarizes by itself: so this is one
that it knows, with a smaller window by a header.
"""

from __future__ import annotations

import os

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

from tests.agents.loops.common import TASK, read_log, tell

agent = Agent(
    role="reader",
    goal="Read logs.",
    backstory="You read logs.",
    llm=LLM(model="gpt-4o", default_headers={"x-prompt-sidecar-context-window": os.environ["LOOP_WINDOW"]}),
    tools=[tool("read_log")(read_log)],
    max_iter=100,
)
crew = Crew(agents=[agent], tasks=[Task(description=TASK, expected_output="A word.", agent=agent)])
result = crew.kickoff()
tell(result.raw, result)
