"""What agents do besides one long run: go on with a session, call hooks and subagents, compact their own history."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agents.judging import EVERY_SESSION, ONE_HISTORY, SIXTY_CALLS, faults, no_secret_left
from tests.agents.programs import CLAUDE_CODE, CODEX, CODEX_FUNCTIONS, OPENCODE_RESPONSES, Agent
from tests.agents.running import Session, session
from tests.agents.scripts import CALLS, SUBTASK, Script, entries
from tests.client.provider import Says
from tests.conformance.bound_thinking import BoundThinking, Enforcement

REMINDER = "Remember the style guide."
HOOK = {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": REMINDER}}
SUMMARY = "<summary>Some steps are done; go on with the next one.</summary>"


@pytest.mark.parametrize(
    "agent", [CLAUDE_CODE, CODEX, CODEX_FUNCTIONS, OPENCODE_RESPONSES], ids=lambda agent: agent.name
)
def test_a_session_goes_on(agent: Agent, tmp_path: Path) -> None:
    """A second process of the agent goes on with the first one's history, and the sidecar with its run.

    Claude Code leaves its thinking out of the second process's first request, and puts it back in the next one; with
    the provider alone too, which takes that from older accounts only.
    """
    with session(Script(agent, last=CALLS // 2), tmp_path) as work:
        if agent.binds:
            work.here.upstream.thinking = BoundThinking(Enforcement.RECORD)
        work.run()
        work.script.last = CALLS
        work.run("Go on with more steps", goes_on=True)

    found = faults(work, *ONE_HISTORY)
    assert [] == found, "\n".join(found)


@pytest.mark.parametrize("model", ["", "claude-opus-4-8"], ids=["default", "opus-4-8"])
def test_system_entries_of_hooks(model: str, tmp_path: Path) -> None:
    """Claude Code writes a system entry behind each result; those of dropped iterations go, and none stand in a row."""
    hook = {"type": "command", "command": f"echo '{json.dumps(HOOK)}'"}
    (tmp_path / ".claude").mkdir()
    settings = {"hooks": {"PostToolUse": [{"matcher": "Bash", "hooks": [hook]}]}}
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps(settings))
    with session(Script(replace(CLAUDE_CODE, model=model)), tmp_path) as work:
        work.run()

    found = faults(work, *SIXTY_CALLS)
    assert [] == found, "\n".join(found)
    assert [] == _rows_of_system(work)
    assert REMINDER in json.dumps(work.bodies[-1])


def _rows_of_system(work: Session) -> list[str]:
    """Places where two system entries stand in a row, or one stands first."""
    roles = [[entry["role"] for entry in entries(body)] for body in work.bodies]
    return [
        f"request {number}, messages[{place}]"
        for number, each in enumerate(roles)
        for place, role in enumerate(each)
        if role == "system" and (not place or each[place - 1] == "system")
    ]


def test_a_subagent_is_a_run_of_its_own(tmp_path: Path) -> None:
    """Its requests do not disturb the run of the agent that called it."""
    asked: list[Any] = []

    def other(body: Any) -> Says | None:
        if SUBTASK in json.dumps(entries(body)[:1]):
            asked.append(body)
            first = len(asked) == 1
            return Says("", [CLAUDE_CODE.call("sub-1", "echo 17")]) if first else Says("It has 17 lines.")
        if script.step == CALLS // 3 and not called:
            called.append(body)
            task = {"description": "Count", "prompt": SUBTASK, "subagent_type": "general-purpose"}
            return Says("", [("task-1", "Agent", task)])
        return None

    script, called = Script(CLAUDE_CODE, other=other), list[Any]()
    with session(script, tmp_path) as work:
        work.run()

    assert 2 <= len(asked)
    assert "It has 17 lines." in json.dumps(work.bodies)
    found = faults(work, *ONE_HISTORY)
    assert [] == found, "\n".join(found)


@pytest.mark.parametrize("guard", ["audit", "enforce"])
@pytest.mark.parametrize("agent", [CLAUDE_CODE, CODEX, CODEX_FUNCTIONS], ids=lambda agent: agent.name)
def test_an_agent_that_compacts_its_history(agent: Agent, guard: str, tmp_path: Path) -> None:
    """Its provider says that the window is full: what it asks for a summary with is valid, and the run goes on."""
    asked: list[Any] = []

    def other(body: Any) -> Says | None:
        if agent.path == "messages" and "Respond with TEXT ONLY" in json.dumps(entries(body)[-1]):
            asked.append(body)
            return Says(SUMMARY)
        if any(entry.get("type") == "compaction_trigger" for entry in entries(body)):
            asked.append(body)
            return Says(blocks=[{"type": "compaction", "id": f"cmp_{len(asked)}", "encrypted_content": "gAAAAA" * 40}])
        return None

    with session(Script(agent, other=other, full_after=CALLS // 2), tmp_path, guard) as work:
        work.run()

    assert 1 == len(asked)
    last = entries(asked[0])[-1]
    assert agent.path == "messages" or "compaction_trigger" == last["type"]
    found = faults(work, *EVERY_SESSION, *([no_secret_left] if guard == "enforce" else []))
    assert [] == found, "\n".join(found)
