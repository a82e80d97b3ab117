"""Real agents with a base URL and nothing else: Claude Code, Codex and aider, where they are installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.client.provider import Says
from tests.http.serving import proxied
from tests.http.upstream import scripted
from tests.server.serving import PATIENCE

THOUGHT = {"type": "thinking", "thinking": "What was said?", "signature": "c2ln"}
"""Claude Code asks for thinking, and a turn that thinks begins with it."""
OWN = Says("", [("own-1", "search_conversation_history", {"query": "hello"})], blocks=[THOUGHT])
PACKAGES = {"claude": "@anthropic-ai/claude-code", "codex": "@openai/codex"}


def _run(name: str, url: str, home: Path) -> str:
    (home / ".codex").mkdir()
    provider = {"name": "p", "base_url": f"{url}/v1", "wire_api": "responses", "env_key": "OPENAI_API_KEY"}
    words = [f"model_providers.p.{key}={json.dumps(value)}" for key, value in provider.items()]
    codex = [each for word in [*words, 'model_provider="p"'] for each in ("-c", word)]
    command = {
        "claude": ["claude", "-p", "Say hello", "--model", "claude-sonnet-4-5"],
        "codex": ["codex", "exec", "--skip-git-repo-check", *codex, "-m", "gpt-5", "Say hello"],
    }[name]
    environment = os.environ | {
        "HOME": str(home),
        "CODEX_HOME": str(home / ".codex"),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "OPENAI_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    done = subprocess.run(
        command, cwd=home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", PACKAGES)
def test_an_agent_from_the_registry(name: str, tmp_path: Path) -> None:
    """It is offered the sidecar's tools; a call of one is answered here; it shows the answer."""
    if shutil.which(name) is None:
        pytest.skip(f"needs {name}: npm install -g {PACKAGES[name]}")

    async def other(_: Any) -> Any:
        from aiohttp import web

        return web.json_response({})

    with proxied(scripted(OWN, Says("Hello from behind the sidecar.")), window=200_000) as here:
        here.upstream.other = other
        shown = _run(name, here.url, tmp_path)

    assert "Hello from behind the sidecar." in shown
    assert [] == here.upstream.defects
    assert 2 == len(here.upstream.sent)
    assert "own-1" in json.dumps(here.upstream.bodies[1])


@pytest.mark.parametrize("how", ["--stream", "--no-stream"])
def test_aider(how: str, tmp_path: Path) -> None:
    """It has no tools, so it is offered none; its prompt goes through and it shows the answer."""
    if shutil.which("aider") is None:
        pytest.skip("needs aider: pip install aider-chat")
    quiet = ["--yes-always", "--no-git", "--no-check-update", "--no-show-release-notes", "--no-show-model-warnings"]
    with proxied(scripted(Says("Hello from behind the sidecar.")), window=200_000) as here:
        environment = {"HOME": str(tmp_path), "OPENAI_API_KEY": "none", "OPENAI_API_BASE": f"{here.url}/v1"}
        done = subprocess.run(
            ["aider", "--model", "openai/gpt-4.1", "--message", "Say hello", *quiet, how],
            cwd=tmp_path, env=os.environ | environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip

    assert "Hello from behind the sidecar." in done.stdout
    assert [] == here.upstream.defects
    assert 1 == len(here.upstream.sent)
    assert "tools" not in here.upstream.bodies[0]
