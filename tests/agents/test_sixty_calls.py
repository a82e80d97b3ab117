"""Claude Code, Codex and OpenCode run sixty commands whose output is more than the window holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.judging import faults, no_secret_left, nothing_lost, over_the_limit
from tests.agents.programs import AGENTS, Agent
from tests.agents.running import session
from tests.agents.scripts import Script

WINDOW = 90_000
"""Tokens: half of it for the answer, where the agent asks for so much, and less than half of what the calls bring."""


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_sixty_calls_over_the_limit(agent: Agent, tmp_path: Path) -> None:
    """Each prompt is valid and fits, nothing is lost, the cache stays warm between cuts, and recall is answered."""
    with session(Script(agent), tmp_path, WINDOW) as work:
        work.run()

    found = faults(work, over_the_limit, nothing_lost)
    assert [] == found, "\n".join(found)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_sixty_calls_under_a_guard_that_enforces(agent: Agent, tmp_path: Path) -> None:
    """The same, and neither a key that a tool prints nor one in the model's unsigned reasoning reaches the provider."""
    with session(Script(agent), tmp_path, WINDOW, "enforce") as work:
        work.run()

    found = faults(work, over_the_limit, nothing_lost, no_secret_left)
    assert [] == found, "\n".join(found)
