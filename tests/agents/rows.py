"""One row for each agent and framework that is to work by default settings behind the HTTP door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.agents.chats import AIDER, CHAT, Chat
from tests.agents.judging import FORCED, NOT_COUNTED, SIXTY_CALLS, STORED, WRITTEN_OUT, Check
from tests.agents.programs import (
    CLAUDE_CODE,
    CODEX,
    GEMINI_CLI,
    KEY,
    OPENCODE_RESPONSES,
    QWEN_CODE,
    READ_LOG,
    Agent,
    Command,
    Start,
)
from tests.agents.scripts import Script
from tests.lab.harness.components import ROOT

WINDOW: Final = 30_000
"""Tokens of a loop's window: a third of what sixty results take, so that forty turns are beyond the limit."""
LOOPS: Final = ROOT / "tests" / "agents" / "loops"


@dataclass(frozen=True, slots=True)
class Row:
    """An agent or framework, what it is installed from, and whether CI runs it."""

    name: str
    agent: Agent
    environment: str
    packages: tuple[str, ...]
    """Of its environment, those whose versions are shown."""
    in_ci: bool = False
    raised: str = ""
    """Which of its own bounds on the number of turns is raised, as sixty calls are more; empty: none."""
    checks: tuple[Check, ...] = SIXTY_CALLS
    script: Callable[[Agent], Script] = Script
    """Its model."""
    result: str = "trimmed, recall answered"
    note: str = ""


def loop(name: str, api: str, environment: str, program: str, way: str = "") -> Agent:
    """Return a loop of `tests.agents.loops` as an agent: a command and a base URL in its environment."""

    def starts(_: Agent, start: Start) -> Command:
        words = ["-m", f"tests.agents.loops.{program}", *([way] if way else [])]
        return Command(
            [str(start.python(environment))],
            words,
            variables(start) | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        )

    return Agent(name, api, starts, READ_LOG, WINDOW)


def node_loop(name: str, api: str, environment: str, way: str = "") -> Agent:
    """Return the loop of an environment of npm packages, which is a copy of its pins' folder."""

    def starts(_: Agent, start: Start) -> Command:
        folder = start.packages(environment)
        for stem in (environment, "common"):
            (folder / f"{stem}.mjs").write_bytes((LOOPS / f"{stem}.mjs").read_bytes())
        return Command(
            [start.node(environment), str(folder / f"{environment}.mjs")], [way] if way else [], variables(start)
        )

    return Agent(name, api, starts, READ_LOG, WINDOW)


def variables(start: Start) -> dict[str, str]:
    """The variables by which SDKs and frameworks find their provider; what they report about themselves is off."""
    return {
        "OPENAI_BASE_URL": f"{start.url}/v1",
        "OPENAI_API_BASE": f"{start.url}/v1",
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": start.url,
        "ANTHROPIC_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": start.url,
        "GOOGLE_API_KEY": KEY,
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": start.url,
        "AWS_BEARER_TOKEN_BEDROCK": KEY,
        "AWS_CA_BUNDLE": start.authority,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "LOOP_WINDOW": str(start.window),
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "LANGSMITH_TRACING": "false",
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_TRACING_ENABLED": "false",
        "OTEL_SDK_DISABLED": "true",
    }


_CHAT, _RESPONSES, _MESSAGES = "chat/completions", "responses", "messages"
_CODING: Final = "agents"
ROWS: Final = (
    Row("Claude Code", CLAUDE_CODE, _CODING, ("@anthropic-ai/claude-code",), in_ci=True),
    Row("Codex", CODEX, _CODING, ("@openai/codex",), in_ci=True),
    Row("OpenCode", OPENCODE_RESPONSES, _CODING, ("opencode-ai",), in_ci=True),
    Row(
        "Gemini CLI",
        GEMINI_CLI,
        "gemini-cli",
        ("@google/gemini-cli",),
        note="`security.auth.selectedType` is `gemini-api-key` in its settings: with a base URL in the environment it "
        "ends with “Invalid auth method selected.” otherwise; the model of the test says nothing next to its calls: "
        "where it does, the agent's own check for loops sends a slice of its history that is invalid without a sidecar "
        "too",
    ),
    Row(
        "Qwen Code",
        QWEN_CODE,
        "qwen-code",
        ("@qwen-code/qwen-code",),
        note="wants Node 22: the test brings Node 24 as a package; its shell tool lost the output of commands "
        "that end at once, on a loaded machine, so those of the test end with a short sleep",
    ),
    Row(
        "aider",
        AIDER,
        "aider",
        ("aider-chat",),
        in_ci=True,
        checks=CHAT,
        script=Chat,
        result="trimmed, recall not offered: `no_tools`; usage not reported",
        note="it has no tools; the turns of the test are wishes, outputs of commands that `/run` adds to the chat, and "
        "edits of a file; these outputs are a user's texts, of which the longest are elided where together they take "
        "more than a quarter of the limit, except in the newest message; it streams and asks for no usage",
    ),
    Row(
        "OpenAI SDK, chat completions",
        loop("openai-chat", _CHAT, "sdks", "openai_sdk", "chat"),
        "sdks",
        ("openai",),
        in_ci=True,
    ),
    Row(
        "OpenAI SDK, responses",
        loop("openai-responses", _RESPONSES, "sdks", "openai_sdk", "responses"),
        "sdks",
        ("openai",),
        in_ci=True,
    ),
    Row("Anthropic SDK", loop("anthropic", _MESSAGES, "sdks", "anthropic_sdk"), "sdks", ("anthropic",), in_ci=True),
    Row(
        "google-genai",
        loop("google-genai", "gemini", "google-genai", "google_genai_sdk"),
        "google-genai",
        ("google-genai",),
        in_ci=True,
        raised="`maximum_remote_calls`",
    ),
    Row("boto3", loop("boto3", "bedrock", "boto3", "boto3_sdk"), "boto3", ("boto3",), in_ci=True),
    Row(
        "AI SDK, responses",
        node_loop("ai-sdk-responses", _RESPONSES, "ai_sdk", "responses"),
        "ai_sdk",
        ("ai", "@ai-sdk/openai"),
        in_ci=True,
        raised="`stopWhen`",
    ),
    Row(
        "AI SDK, chat completions",
        node_loop("ai-sdk-chat", _CHAT, "ai_sdk", "chat"),
        "ai_sdk",
        ("ai", "@ai-sdk/openai"),
        raised="`stopWhen`",
    ),
    Row(
        "AI SDK, Anthropic",
        node_loop("ai-sdk-anthropic", _MESSAGES, "ai_sdk", "anthropic"),
        "ai_sdk",
        ("ai", "@ai-sdk/anthropic"),
        raised="`stopWhen`",
    ),
    Row(
        "AI SDK, Google",
        node_loop("ai-sdk-google", "gemini", "ai_sdk", "google"),
        "ai_sdk",
        ("ai", "@ai-sdk/google"),
        raised="`stopWhen`",
    ),
    Row(
        "LangChain",
        loop("langchain", _CHAT, "langchain", "langchain_loop"),
        "langchain",
        ("langchain", "langchain-openai"),
        raised="`recursion_limit`",
    ),
    Row(
        "LangGraph",
        loop("langgraph", _CHAT, "langchain", "langchain_loop", "graph"),
        "langchain",
        ("langgraph", "langchain-openai"),
        in_ci=True,
        raised="`recursion_limit`",
    ),
    Row(
        "OpenAI Agents SDK",
        loop("openai-agents", _RESPONSES, "openai-agents", "openai_agents_loop"),
        "openai-agents",
        ("openai-agents",),
        raised="`max_turns`",
    ),
    Row(
        "Pydantic AI, OpenAI",
        loop("pydantic-ai-openai", _RESPONSES, "pydantic-ai", "pydantic_ai_loop", "openai"),
        "pydantic-ai",
        ("pydantic-ai-slim",),
        in_ci=True,
        raised="`request_limit`",
    ),
    Row(
        "Pydantic AI, Anthropic",
        loop("pydantic-ai-anthropic", _MESSAGES, "pydantic-ai", "pydantic_ai_loop", "anthropic"),
        "pydantic-ai",
        ("pydantic-ai-slim",),
        raised="`request_limit`",
    ),
    Row(
        "Pydantic AI, Gemini",
        loop("pydantic-ai-gemini", "gemini", "pydantic-ai", "pydantic_ai_loop", "google"),
        "pydantic-ai",
        ("pydantic-ai-slim",),
        raised="`request_limit`",
    ),
    Row(
        "LlamaIndex",
        loop("llama-index", _CHAT, "llama-index", "llama_index_loop"),
        "llama-index",
        ("llama-index-core", "llama-index-llms-openai"),
        raised="`max_iterations`",
        checks=NOT_COUNTED,
        result="trimmed, recall answered; usage not reported",
        note='it streams and asks for no usage: `additional_kwargs={"stream_options": {"include_usage": True}}` asks; '
        "its window is said by a header, as it takes names of OpenAI's models alone",
    ),
    Row("ADK", loop("adk", "gemini", "adk", "adk_loop"), "adk", ("google-adk",)),
    Row(
        "AutoGen",
        loop("autogen", _CHAT, "autogen", "autogen_loop"),
        "autogen",
        ("autogen-agentchat", "autogen-ext"),
        raised="`max_tool_iterations`",
    ),
    Row(
        "Microsoft Agent Framework, responses",
        loop("agent-framework", _RESPONSES, "agent-framework", "agent_framework_loop"),
        "agent-framework",
        ("agent-framework-core", "agent-framework-openai"),
        raised="`max_iterations`",
        checks=STORED,
        result="not trimmed: `stored_by_provider`; recall offered",
        note='it chains requests by `previous_response_id`; `default_options={"store": False}` has it send its history',
    ),
    Row(
        "Microsoft Agent Framework, chat completions",
        loop("agent-framework-chat", _CHAT, "agent-framework", "agent_framework_loop", "chat"),
        "agent-framework",
        ("agent-framework-core", "agent-framework-openai"),
        raised="`max_iterations`",
    ),
    Row(
        "Microsoft Agent Framework, responses, `store: False`",
        loop("agent-framework-stateless", _RESPONSES, "agent-framework", "agent_framework_loop", "stateless"),
        "agent-framework",
        ("agent-framework-core", "agent-framework-openai"),
        raised="`max_iterations`",
    ),
    Row(
        "CrewAI",
        loop("crewai", _CHAT, "crewai", "crewai_loop"),
        "crewai",
        ("crewai",),
        raised="`max_iter`",
        note="of a model that it does not know it thinks that its window has 8,192 tokens, and summarizes by itself "
        "before anything need be trimmed; so the test says by a header that the window of gpt-4o is smaller",
    ),
    Row(
        "smolagents",
        loop("smolagents", _CHAT, "smolagents", "smolagents_loop"),
        "smolagents",
        ("smolagents",),
        raised="`max_steps`",
        checks=FORCED,
        result="trimmed, recall not offered: `forced`",
        note="its `ToolCallingAgent` sends `tool_choice: required` each time; see the next row",
    ),
    Row(
        'smolagents, `OpenAIModel(..., tool_choice="auto")`',
        loop("smolagents-auto", _CHAT, "smolagents", "smolagents_loop", "auto"),
        "smolagents",
        ("smolagents",),
        raised="`max_steps`",
        checks=WRITTEN_OUT,
        result="trimmed, recall offered",
        note="it writes calls and results as plain texts",
    ),
    Row("Strands", loop("strands", "bedrock", "strands", "strands_loop"), "strands", ("strands-agents",)),
    Row("Mastra", node_loop("mastra", _RESPONSES, "mastra"), "mastra", ("@mastra/core",), raised="`maxSteps`"),
)
