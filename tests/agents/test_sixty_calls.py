"""Claude Code, Codex and OpenCode run sixty commands whose output is more than the window holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.judging import SIXTY_CALLS, faults, no_secret_left
from tests.agents.programs import AGENTS, CODEX, CODEX_FUNCTIONS, Agent
from tests.agents.running import session
from tests.agents.scripts import Script

EACH_AGENT = pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)


@EACH_AGENT
def test_sixty_calls_over_the_limit(agent: Agent, tmp_path: Path) -> None:
    """Each prompt is valid and fits, nothing is lost, the cache stays warm between cuts, and recall is answered."""
    with session(Script(agent), tmp_path) as work:
        work.run()

    found = faults(work, *SIXTY_CALLS)
    assert [] == found, "\n".join(found)


@EACH_AGENT
def test_sixty_calls_under_a_guard_that_enforces(agent: Agent, tmp_path: Path) -> None:
    """The same, and neither a key that a tool prints nor one in the model's unsigned reasoning reaches the provider."""
    with session(Script(agent), tmp_path, "enforce") as work:
        work.run()

    found = faults(work, *SIXTY_CALLS, no_secret_left)
    assert [] == found, "\n".join(found)


@pytest.mark.parametrize("guard", ["audit", "enforce"])
@pytest.mark.parametrize("agent", [CODEX, CODEX_FUNCTIONS], ids=lambda agent: agent.name)
def test_sixty_calls_on_a_websocket(agent: Agent, guard: str, tmp_path: Path) -> None:
    """The same where the provider opens Codex's WebSocket: all goes on it, and from one response to the next."""
    with session(Script(agent), tmp_path, guard, opens=True) as work:
        work.run()

    checks = (*SIXTY_CALLS, no_secret_left) if guard == "enforce" else SIXTY_CALLS
    found = faults(work, *checks)
    assert [] == found, "\n".join(found)
    assert ("responses", "opened", 101) in work.seen.requests
    whole = [each for each in work.sockets.asked if not each.message.get("previous_response_id")]
    masked = guard == "enforce"  # of a thought that names a key the provider has kept more than it is sent
    assert len(whole) <= 1 + masked + sum(answer.cache.batch_point for answer in work.seen.trimmed_prompts)
