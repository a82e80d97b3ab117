"""Real agents with a base URL and nothing else: Claude Code, Codex, OpenCode and aider."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.facts.usage_calls import UsageAnswer, UsageCall
from prompt_sidecar.telemetry.observer import Observer
from tests.client.provider import Says
from tests.http.serving import proxied
from tests.http.upstream import scripted
from tests.integrations.environments import agents, ready
from tests.real.needing import lack
from tests.server.serving import PATIENCE

THOUGHT = {"type": "thinking", "thinking": "What was said?", "signature": "c2ln"}
"""Claude Code asks for thinking, and a turn that thinks begins with it."""
OWN = Says("", [("own-1", "search_conversation_history", {"query": "hello"})], blocks=[THOUGHT])
PROGRAMS = {
    "claude": "@anthropic-ai/claude-code/cli-wrapper.cjs",
    "codex": "@openai/codex/bin/codex.js",
    "opencode": "opencode-*/bin/opencode",
}
"""What starts each, under `node_modules`: a script for Node, or a program of the platform's own package."""

CALLS = 60
LINES = 40
ROOM = {"claude": 58_000, "codex": 24_000, "opencode": 50_000}
"""Tokens of the window: some for the agent's own prompt and its answers, and less than half of what the calls bring."""
AGENT_PATIENCE = 8 * PATIENCE
"""Seconds for a run of an agent's own process; OpenCode's takes the CPU for half a minute."""
AT = 45
"""The call before which the model recalls."""
ID = re.compile(r"\bid=([a-z2-9]{10})\b")


class Answers(Observer):
    """Keeps what became of each prompt, and counts what was reported of the provider's answers."""

    def __init__(self) -> None:
        self.seen: list[TrimAnswer] = []
        self.reports = 0

    def trimmed(self, call: TrimCall, answer: TrimAnswer, began: int) -> None:
        """Keep it."""
        del call, began
        self.seen.append(answer)

    def reported(self, call: UsageCall, answer: UsageAnswer) -> None:
        """Count it."""
        del call, answer
        self.reports += 1


def _loopback_alone(home: Path) -> dict[str, str]:
    """Return the variables of an agent's process: a home of its own, and no way to any other machine."""
    nowhere = "http://127.0.0.1:9"  # the port where RFC 863 discards
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), nowhere)
    near = dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost")
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(home)} | proxies | near


def _program(name: str) -> list[str]:
    modules = agents() / "node_modules"
    if name == "opencode":
        return [str(min(modules.glob(PROGRAMS[name]), key=lambda path: len(str(path))))]
    node = shutil.which("node")
    if node is None:
        lack("needs node: .ci/install-clients")
    return [node, str(modules / PROGRAMS[name])]


def _run(name: str, url: str, home: Path, wish: str = "Say hello", model: str = "") -> str:
    program = _program(name)
    (home / ".codex").mkdir()
    provider = {"name": "p", "base_url": f"{url}/v1", "wire_api": "responses", "env_key": "OPENAI_API_KEY"}
    words = [f"model_providers.p.{key}={json.dumps(value)}" for key, value in provider.items()]
    codex = [each for word in [*words, 'model_provider="p"'] for each in ("-c", word)]
    command = {
        "claude": ["-p", wish, "--model", model or "claude-sonnet-4-5", "--allowedTools", "Bash"],
        "codex": [
            "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
            *codex, "-m", model or "gpt-5", wish,
        ],
        "opencode": ["run", "--model", "own/next", wish],
    }[name]  # fmt: skip
    own = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
        "models": {"next": {"tool_call": True}},
    }
    (home / "opencode.json").write_text(json.dumps({"provider": {"own": own}, "permission": {"bash": "allow"}}))
    environment = _loopback_alone(home) | {
        "CODEX_HOME": str(home / ".codex"),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "OPENAI_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
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

    with proxied(scripted(OWN, Says("Hello from behind the sidecar.")), window=200_000) as here:
        here.upstream.other = other
        shown = _run(name, here.url, tmp_path)

    assert "Hello from behind the sidecar." in shown
    assert [] == here.upstream.defects
    assert 2 == len(here.upstream.sent)
    assert "own-1" in json.dumps(here.upstream.bodies[1])


def _line(step: int, line: int) -> str:
    return f"step {step} line {line} value {step * 7919 + line * 104729}"


class Script:
    """A model that has the agent run commands, and recalls the first result that it sees elided."""

    def __init__(self, name: str) -> None:
        self._tool, self._argument = {
            "claude": ("Bash", "command"),
            "codex": ("exec_command", "cmd"),
            "opencode": ("bash", "command"),
        }[name]
        self._thought = [THOUGHT] if name == "claude" else []
        self.step = 0
        self.recalled = ""

    def __call__(self, body: Any) -> Says:
        """Take a turn."""
        if self.step == AT and not self.recalled:
            self.recalled = ID.findall(json.dumps(body.get("messages") or body["input"]))[0]
            recall = ("own-1", "recall_elided_content", {"id": self.recalled})
            return Says("", [recall], blocks=self._thought)
        if self.step == CALLS:
            return Says("All steps are done.")
        self.step += 1
        lines = (
            f"seq 1 {LINES} | while read i; do echo step {self.step} line $i value $(({self.step}*7919+i*104729)); done"
        )
        return Says(f"Step {self.step}.", [(f"call-{self.step}", self._tool, {self._argument: lines})])


@pytest.mark.parametrize("name", PROGRAMS)
def test_sixty_calls_over_the_limit(name: str, tmp_path: Path) -> None:
    """Each prompt fits, is what its provider takes and has its usage reported; a trimmed result is recalled whole."""

    async def other(_: Any) -> Any:
        from aiohttp import web

        return web.json_response({})

    script, answers = Script(name), Answers()
    with proxied(script, window=ROOM[name], observer=answers) as here:
        here.upstream.other = other
        shown = _run(name, here.url, tmp_path, "Run the steps", "next")

    assert "All steps are done." in shown
    assert [] == here.upstream.defects
    prompts = [answer for answer in answers.seen if answer.iteration > 1]
    assert CALLS <= len(prompts)
    assert CALLS <= answers.reports
    assert all(answer.fits for answer in prompts)
    last = prompts[-1].tokens
    assert last.before > 1.5 * last.limit >= last.after
    bodies = [json.dumps(body.get("messages") or body["input"]) for body in here.upstream.bodies]
    (asked,) = [at for at, body in enumerate(bodies) if "own-1" in body and "own-1" not in bodies[at - 1]]
    steps = {
        step for step in range(1, CALLS + 1) if all(_line(step, at) in bodies[asked] for at in range(1, LINES + 1))
    }
    before = {step for step in steps if _line(step, LINES // 2) in bodies[asked - 1]}
    assert 1 == len(steps - before), (
        "the recalled result stands whole in the next prompt, and did not in the one before"
    )


@pytest.mark.parametrize("how", ["--stream", "--no-stream"])
def test_aider(how: str, tmp_path: Path) -> None:
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
