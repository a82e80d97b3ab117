"""Real agents say a word: Claude Code, Codex with a provider of its own, aider. Long sessions are in tests/agents."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.client.provider import Says
from tests.doors.grpc.serving import PATIENCE
from tests.doors.http.serving import proxied
from tests.doors.http.upstream import scripted
from tests.integrations.environments import agents, ready
from tests.real.needing import lack

THOUGHT = {"type": "thinking", "thinking": "What was said?", "signature": "c2ln"}
"""Claude Code asks for thinking, and a turn that thinks begins with it."""
CALL = ("own-1", "search_conversation_history", {"query": "hello"})
PROGRAMS = {
    "claude": "@anthropic-ai/claude-code/cli-wrapper.cjs",
    "codex": "@openai/codex/bin/codex.js",
}
"""What starts each, under `node_modules`: a script for Node."""

AGENT_PATIENCE = 8 * PATIENCE
"""Seconds for a run of an agent's own process."""


def _loopback_alone(home: Path) -> dict[str, str]:
    """Return the variables of an agent's process: a home of its own, and no way to any other machine."""
    nowhere = "http://127.0.0.1:9"  # the port where RFC 863 discards
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), nowhere)
    near = dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost")
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(home)} | proxies | near


def _program(name: str) -> list[str]:
    node = shutil.which("node")
    if node is None:
        lack("needs node: .ci/install-clients")
    return [node, str(agents() / "node_modules" / PROGRAMS[name])]


def _run(name: str, url: str, home: Path) -> str:
    program = _program(name)
    (home / ".codex").mkdir()
    provider = {"name": "p", "base_url": f"{url}/v1", "wire_api": "responses", "env_key": "OPENAI_API_KEY"}
    words = [f"model_providers.p.{key}={json.dumps(value)}" for key, value in provider.items()]
    codex = [each for word in [*words, 'model_provider="p"'] for each in ("-c", word)]
    command = {
        "claude": ["-p", "Say hello", "--model", "claude-sonnet-4-5", "--allowedTools", "Bash"],
        "codex": [
            "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
            *codex, "-m", "gpt-5", "Say hello",
        ],
    }[name]  # fmt: skip
    environment = _loopback_alone(home) | {
        "CODEX_HOME": str(home / ".codex"),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "OPENAI_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    done = subprocess.run(
        [*program, *command], cwd=home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=AGENT_PATIENCE, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_an_agent_from_the_registry(name: str, tmp_path: Path) -> None:
    """It is offered the sidecar's tools; a call of one is answered here; it shows the answer."""

    async def other(_: Any) -> Any:
        from aiohttp import web

        return web.json_response({})

    own = Says("", [CALL], blocks=[THOUGHT] if name == "claude" else [])
    with proxied(scripted(own, Says("Hello from behind the sidecar.")), window=200_000) as here:
        here.upstream.other = other
        shown = _run(name, here.url, tmp_path)

    assert "Hello from behind the sidecar." in shown
    assert [] == here.upstream.defects
    assert 2 == len(here.upstream.sent)
    assert "own-1" in json.dumps(here.upstream.bodies[1])


@pytest.mark.parametrize("how", ["--stream", "--no-stream"])
def test_aider_is_offered_no_tools(how: str, tmp_path: Path) -> None:
    """It has no tools, so it is offered none; its prompt goes through and it shows the answer."""
    program = [str(ready("aider").python), "-m", "aider"]
    quiet = ["--yes-always", "--no-git", "--no-check-update", "--no-show-release-notes", "--no-show-model-warnings"]
    with proxied(scripted(Says("Hello from behind the sidecar.")), window=200_000) as here:
        environment = _loopback_alone(tmp_path) | {"OPENAI_API_KEY": "none", "OPENAI_API_BASE": f"{here.url}/v1"}
        done = subprocess.run(
            [*program, "--model", "openai/gpt-4.1", "--message", "Say hello", *quiet, how],
            cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip

    assert "Hello from behind the sidecar." in done.stdout
    assert [] == here.upstream.defects
    assert 1 == len(here.upstream.sent)
    assert "tools" not in here.upstream.bodies[0]
