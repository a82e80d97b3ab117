"""Claude Code, Codex and OpenCode as a user starts them: a base URL, a key that no provider knows, and a wish.

All else is as it comes from the registry, but for two things that no test can do without: leave to run shell commands
without asking, and a home of their own, from which no way leads to another machine. For models whose window the sidecar
knows, an agent says a smaller one by a header, as a window of a million tokens takes hours to fill.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from prompt_sidecar.calls.headers import WINDOW
from tests.doors.grpc.serving import PATIENCE
from tests.integrations.environments import agents
from tests.real.needing import lack

AGENT_PATIENCE: Final = 8 * PATIENCE
"""Seconds for one run of an agent; the slowest takes the processor for half a minute."""
NOWHERE: Final = "http://127.0.0.1:9"
"""The port where RFC 863 discards."""
KEY: Final = "no-key"
CODE_MODE: Final = "exec"
"""The tool of Codex's default model, which takes JavaScript that calls its other tools."""
Call = tuple[str, str, Mapping[str, Any]]
"""Id, tool and arguments."""


@dataclass(frozen=True, slots=True)
class Start:
    """What starts an agent once."""

    home: Path
    url: str
    """The door's, without `/v1`."""
    window: int
    """Tokens that the agent says its model's window has."""
    wish: str
    goes_on: bool
    """Whether it goes on with its newest session."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, and the variables that it needs besides those of `alone`."""

    program: Sequence[str]
    arguments: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> Sequence[str]:
        """All of the command line."""
        return [*self.program, *self.arguments]


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent with one of its models."""

    name: str
    path: str
    """The end of the path of its provider's API."""
    starts: Callable[[Agent, Start], Command]
    tool: str
    """By which its model runs shell commands."""
    window: int
    """Tokens of a window of which sixty calls bring more than twice the limit. Some agents want half of it for an
    answer."""
    model: str = ""
    """What it is told to use; empty: its own choice."""
    thinks: bool = False
    """Whether its requests ask for reasoning that comes back to the provider."""
    binds: bool = False
    """Whether its provider binds thinking to all that stands before it."""

    def run(self, start: Start) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        command = self.starts(self, start)
        return subprocess.run(
            command.words,
            cwd=start.home,
            env={**alone(start.home), **command.variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=AGENT_PATIENCE,
            check=False,
        )

    def call(self, call_id: str, command: str) -> Call:
        """Return its model's call that runs a shell command; `CODE_MODE` takes it in another way."""
        argument = "cmd" if self.tool == "exec_command" else "command"
        return call_id, self.tool, {argument: command, "description": "Runs one step"}


def alone(home: Path) -> dict[str, str]:
    """Return the variables of an agent that has a home of its own, and no way to another machine."""
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), NOWHERE)
    near = dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost")
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(home)} | proxies | near


def _node() -> str:
    node = shutil.which("node")
    if node is None:
        lack("needs node: .ci/install-clients")
    return node


def _modules() -> Path:
    return agents() / "node_modules"


def _claude_code(agent: Agent, start: Start) -> Command:
    program = [_node(), str(_modules() / "@anthropic-ai/claude-code/cli-wrapper.cjs")]
    again = ["--continue"] if start.goes_on else []
    model = ["--model", agent.model] if agent.model else []
    variables = {
        "ANTHROPIC_BASE_URL": start.url,
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_CUSTOM_HEADERS": f"{WINDOW}: {start.window}",
    }
    return Command(program, [*again, *model, "--allowedTools", agent.tool, "-p", start.wish], variables)


def _codex(agent: Agent, start: Start) -> Command:
    program = [_node(), str(_modules() / "@openai/codex/bin/codex.js")]
    home = start.home / ".codex"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(f"openai_base_url = {json.dumps(start.url + '/v1')}\n")
    again = ["resume", "--last"] if start.goes_on else []
    model = ["-m", agent.model] if agent.model else []
    free = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return Command(program, ["exec", *again, *free, *model, start.wish], {"CODEX_API_KEY": KEY})


def _open_code(agent: Agent, start: Start) -> Command:
    program = min(_modules().glob("opencode-*/bin/opencode"), key=lambda path: len(str(path)))
    provider, _, model = agent.model.partition("/")
    options = {"baseURL": f"{start.url}/v1", "apiKey": KEY, "headers": {WINDOW: str(start.window)}}
    settings: dict[str, Any] = {"options": options}
    if provider == "own":
        settings |= {"npm": "@ai-sdk/openai-compatible", "models": {model: {"tool_call": True}}}
    (start.home / "opencode.json").write_text(json.dumps({"provider": {provider: settings}}))
    again = ["--continue"] if start.goes_on else []
    return Command([str(program)], ["run", *again, "--model", agent.model, start.wish])


CLAUDE_CODE: Final = Agent("claude-code", "messages", _claude_code, "Bash", 100_000, thinks=True, binds=True)
CODEX: Final = Agent("codex", "responses", _codex, CODE_MODE, 50_000, model="gpt-6.2-sol.next", thinks=True)
"""With a model that it treats as its default one, whose tools stand in an item of the input. Of that one the sidecar
knows the window, and Codex's built-in provider takes no header that says another."""
CODEX_FUNCTIONS: Final = Agent(
    "codex-functions", "responses", _codex, "exec_command", 50_000, model="next", thinks=True
)
"""With a model that it does not know, and that therefore gets its tools as functions."""
OPENCODE_RESPONSES: Final = Agent(
    "opencode-responses", "responses", _open_code, "bash", 45_000, model="openai/gpt-5.6", thinks=True
)
OPENCODE_MESSAGES: Final = Agent(
    "opencode-messages", "messages", _open_code, "bash", 80_000, model="anthropic/claude-opus-4-8"
)
OPENCODE_CHAT: Final = Agent("opencode-chat", "chat/completions", _open_code, "bash", 80_000, model="own/next")
AGENTS: Final = (CLAUDE_CODE, CODEX, CODEX_FUNCTIONS, OPENCODE_RESPONSES, OPENCODE_MESSAGES, OPENCODE_CHAT)
