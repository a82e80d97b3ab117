"""Agents from the registries behind `prompt-sidecar wrap`, told by it alone where the door is."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web

import prompt_sidecar
from prompt_sidecar.cli.agents import AGENTS
from tests.agents.lines import RAN
from tests.agents.programs import (
    AGENT_PATIENCE,
    CLAUDE_CODE,
    CODEX,
    CODEX_FUNCTIONS,
    NOWHERE,
    OPENCODE_MESSAGES,
    OPENCODE_RESPONSES,
    Agent,
    Start,
    alone,
)
from tests.agents.scripts import DONE, PRINTED, SETTINGS, Script
from tests.conformance.bound_thinking import BoundThinking
from tests.doors.http.upstream import Upstream

STEPS = 12
PROGRAMS = {
    CLAUDE_CODE: "claude",
    CODEX: "codex",
    CODEX_FUNCTIONS: "codex",
    OPENCODE_RESPONSES: "opencode",
    OPENCODE_MESSAGES: "opencode",
}
"""The name by which each is on the PATH of its users."""


async def stray(_: web.Request) -> web.Response:
    """A provider's answer to what calls no model."""
    return web.Response(status=404)


def on_the_path(folder: Path, name: str, program: str) -> None:
    """Put a program into a folder by the name that its users call it by."""
    made = folder / name
    made.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    made.chmod(0o755)


@pytest.mark.parametrize("agent", PROGRAMS, ids=lambda agent: agent.name)
def test_an_agent_behind_wrap(agent: Agent, tmp_path: Path) -> None:
    """Its own settings name an address where nobody is, and all of its prompts go through the sidecar."""
    programs, home = tmp_path / "bin", tmp_path / "home"
    programs.mkdir()
    home.mkdir()
    (home / SETTINGS).write_text(f"GITHUB_TOKEN={PRINTED}\n")
    command = agent.starts(agent, Start(home, NOWHERE, agent.window, "Run the steps", goes_on=False))
    on_the_path(programs, PROGRAMS[agent], shlex.join(command.program))
    with Upstream(Script(agent, last=STEPS)) as upstream:
        upstream.other = stray
        upstream.thinking = BoundThinking() if agent.binds else None
        settings = {f"PROMPT_SIDECAR_HTTP__{name}_UPSTREAM": upstream.url for name in ("OPENAI", "ANTHROPIC")}
        words = [sys.executable, "-m", "prompt_sidecar", "wrap", PROGRAMS[agent], "--", *command.arguments]
        as_at_its_provider = AGENTS[PROGRAMS[agent]].first_party  # which `wrap` sets for the provider itself alone
        variables = {**alone(home), **command.variables, **settings, **as_at_its_provider}
        variables |= {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(Path(prompt_sidecar.__file__).parents[1]),
        }
        done = subprocess.run(
            words, cwd=home, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=AGENT_PATIENCE, check=False,
        )  # fmt: skip

    shown = f"{done.stdout[-2_000:]}{done.stderr[-2_000:]}"
    assert 0 == done.returncode, shown
    assert DONE in done.stdout, shown
    assert [] == upstream.defects
    assert [str(step) for step in range(1, STEPS + 1)] == (home / RAN).read_text().split()
    assert f"of which {len(upstream.sent)} prompts" in done.stderr, shown
