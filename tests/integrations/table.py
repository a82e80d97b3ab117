"""The first table of docs/integrations.md as data: what works with which agent or framework, and its test.

`python -m tests.integrations.table` writes it into the page, and the second table, whose rows are `tests.agents.rows`.
A cell without a test says that it is untested, and its row why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.agents.rows import ROWS as DEFAULTS
from tests.agents.versions import pinned

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "integrations.md"
COLUMNS: Final = ("trim", "recall", "usage", "streaming", "when down", "masks")
_BLOCKS: Final = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
APIS: Final = {
    "chat/completions": "chat completions",
    "responses": "responses",
    "messages": "messages",
    "gemini": "Gemini",
    "bedrock": "Bedrock's Converse",
}
"""The names of APIs, by the paths of `tests.agents.programs`."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Whether something works."""

    word: str
    """`yes`, `no` or `untested`."""
    test: str = ""
    """The test that shows it: a file under tests/ and a function."""


@dataclass(frozen=True, slots=True)
class Row:
    """One agent, framework, gateway or host."""

    name: str
    way: str
    """What to set."""
    lines: str
    """Lines of code."""
    cells: Sequence[Cell]
    """Of `COLUMNS`."""
    note: str = ""
    """Why something is untested or does not work; empty only where all is tested."""


def yes(test: str) -> Cell:
    """It works, by this test."""
    return Cell("yes", test)


NO: Final = Cell("no")
UNTESTED: Final = Cell("untested")
_NOTHING: Final = (UNTESTED,) * len(COLUMNS)
_DOOR: Final = "doors/http/test_sdks.py::test_sixty_calls_over_the_limit"
_GENAI: Final = "integrations/test_google_genai.py::test_a_long_run"
_PATH_MODELS: Final = "doors/http/test_path_models.py::test_a_long_run"
_PATH_MASKS: Final = "doors/http/test_path_models.py::test_masks_in_calls_become_values"
_BOTO3: Final = "integrations/test_boto3.py::test_a_long_run"
_DOOR_DOWN: Final = "doors/http/test_killed.py::test_killed_at_random_points_of_streamed_runs"
_REAL: Final = yes("agents/test_sixty_calls.py::test_sixty_calls_over_the_limit")
_REAL_AGENT: Final = (_REAL, _REAL, _REAL, _REAL, UNTESTED, UNTESTED)
_REAL_AGENT_NOTE: Final = (
    "when the door is down a request fails, as with any base URL; masks are tested with its provider's SDK"
)
_THROUGH_DOOR: Final = "a base URL, as for the SDKs; the agent itself is not run in CI"


def _framework(file: str, *, recall: bool = True, masks: str = "test_masked") -> Sequence[Cell]:
    run = yes(f"integrations/{file}.py::test_a_long_run")
    return (
        run,
        run if recall else NO,
        run,
        run,
        yes(f"integrations/{file}.py::test_without_the_sidecar_the_agent_goes_on"),
        yes(f"integrations/{masks}.py::test_tools_get_values"),
    )


ROWS: Final = (
    Row(
        "SDKs of OpenAI and Anthropic",
        "`prompt_sidecar.client`, `run.complete`",
        "2",
        (
            yes("client/test_streaming.py::test_recall_inside_a_stream"),
            yes("client/test_streaming.py::test_recall_inside_a_stream"),
            yes("client/test_streaming.py::test_the_usage_is_shown_to_those_who_asked"),
            yes("client/test_streaming.py::test_a_mixed_turn"),
            yes("client/test_streaming.py::test_without_the_sidecar_the_stream_flows"),
            yes("client/test_guard.py::test_complete_restores_masks_for_listed_tools"),
        ),
    ),
    Row(
        "SDKs of OpenAI and Anthropic",
        "base URL: the HTTP door",
        "0",
        (
            yes(_DOOR),
            yes(_DOOR),
            yes("doors/http/test_sdks.py::test_usage_is_that_of_one_answer"),
            yes(_DOOR),
            yes(_DOOR_DOWN),
            yes("doors/http/test_guarded.py::test_tools_get_values_that_no_provider_sees"),
        ),
        "when the door is down a request fails, and the next one after its restart goes on",
    ),
    Row(
        "Google's SDK (google-genai)",
        "base URL: the HTTP door",
        "0",
        (yes(_GENAI), yes(_GENAI), yes(_PATH_MODELS), yes(_GENAI), UNTESTED, yes(_PATH_MASKS)),
        "streams that are no events (without `alt=sse`, as no SDK of Google's asks for) pass without recall; when the "
        "door is down a request fails, as with any base URL",
    ),
    Row(
        "Amazon's SDK (boto3), Bedrock's Converse with a bearer key",
        "endpoint URL: the HTTP door",
        "0",
        (yes(_BOTO3), yes(_BOTO3), yes(_PATH_MODELS), yes(_BOTO3), UNTESTED, yes(_PATH_MASKS)),
        "boto3 wants TLS at the door; signed requests (SigV4) pass untrimmed; when the door is down a request fails",
    ),
    Row(
        "anything on httpx or httpx2",
        "`integrations.httpx`: another transport",
        "1",
        (
            yes("integrations/test_httpx.py::test_an_agent_that_only_has_another_transport"),
            NO,
            yes("integrations/test_httpx.py::test_an_agent_that_only_has_another_transport"),
            yes("integrations/test_httpx.py::test_a_stream_is_the_same_byte_for_byte_and_its_usage_is_reported"),
            yes("integrations/test_httpx.py::test_without_the_sidecar_the_agent_goes_on"),
            yes("integrations/test_httpx_masks.py::test_calls_get_values"),
        ),
        "a transport cannot answer calls of tools: offer `run.tools()` and set `recall_unavailable=False`, or use the "
        "HTTP door; Gemini's and Bedrock's bodies are tested, their SDKs are not, and httpx itself less than "
        "httpx2; masks stay in streams of Bedrock's, which no SDK on httpx reads",
    ),
    Row(
        "LangChain, LangGraph",
        "`integrations.langchain`: a middleware",
        "1",
        _framework("test_langchain"),
        "graphs of LangGraph without `create_agent` have no middleware: give their model's client the transport",
    ),
    Row(
        "OpenAI Agents SDK",
        "`integrations.openai_agents`: filter, hooks, tools",
        "3",
        _framework("test_openai_agents"),
        "a prompt that the provider refuses as too long ends the run: the SDK has no hook there; for masks the agent's "
        "tools go through `restoring`",
    ),
    Row("Pydantic AI", "`integrations.pydantic_ai`: a capability", "1", _framework("test_pydantic_ai")),
    Row(
        "LiteLLM proxy",
        "`integrations.litellm`: a callback",
        "3",
        (
            yes("integrations/test_litellm.py::test_an_agent_behind_the_proxy"),
            NO,
            yes("integrations/test_litellm.py::test_an_agent_behind_the_proxy"),
            yes("integrations/test_litellm.py::test_an_agent_behind_the_proxy"),
            yes("integrations/test_litellm.py::test_without_the_sidecar_requests_pass"),
            yes("integrations/test_litellm.py::test_calls_get_values"),
        ),
        "a proxy's model has no tools of the sidecar's",
    ),
    Row(
        "LiteLLM proxy",
        "`generic_guardrail_api` at the HTTP door",
        "0",
        (yes("integrations/test_litellm.py::test_the_generic_guardrail_api"), NO, NO, UNTESTED, UNTESTED, NO),
        "chat completions are tested; a guardrail sees no usage, and masks in calls stay; when down, "
        "LiteLLM's `unreachable_fallback` decides",
    ),
    Row(
        "users of headroom's `POST /v1/compress`",
        "the HTTP door's address",
        "0",
        (
            yes("doors/http/test_gateways.py::test_compressed_messages_are_valid_and_within_the_budget"),
            NO,
            NO,
            NO,
            UNTESTED,
            NO,
        ),
        "as many messages come back as were sent, and originals by hash where `config.mode` is `ccr`; the guardrail "
        "`headroom` of LiteLLM 1.108's proxy was tried by hand, which asks for no hashes; Portkey's plugin was not",
    ),
    Row(
        "Envoy",
        "`--ext-proc` ([envoy.md](envoy.md))",
        "0",
        (
            yes("doors/envoy/test_through_envoy.py::test_a_prompt_is_trimmed_on_its_way"),
            NO,
            yes("doors/envoy/test_through_envoy.py::test_a_stream_flows_and_its_usage_is_reported"),
            yes("doors/envoy/test_through_envoy.py::test_a_stream_flows_and_its_usage_is_reported"),
            yes("doors/envoy/test_through_envoy.py::test_a_killed_sidecar_fails_open"),
            yes("doors/envoy/test_masked.py::test_tools_get_values_that_no_provider_sees"),
        ),
        "the model recalls through MCP, where a header says so",
    ),
    Row(
        "MCP hosts",
        "`prompt-sidecar mcp`",
        "0",
        (
            NO,
            yes("integrations/test_mcp.py::test_over_stdio"),
            NO,
            NO,
            yes("integrations/test_mcp.py::test_without_a_sidecar_the_model_gets_a_notice"),
            NO,
        ),
        "tools alone: prompts are trimmed elsewhere; tried with the MCP project's own client, over stdio and HTTP",
    ),
    Row("Claude Code", "`ANTHROPIC_BASE_URL`: the HTTP door", "0", _REAL_AGENT, _REAL_AGENT_NOTE),
    Row(
        "Codex",
        "`openai_base_url` in its `config.toml`, or a provider with its `base_url`: the HTTP door",
        "0",
        _REAL_AGENT,
        _REAL_AGENT_NOTE,
    ),
    Row(
        "aider",
        "`OPENAI_API_BASE`: the HTTP door",
        "0",
        (
            yes("agents/test_rows.py::test_sixty_calls"),
            NO,
            NO,
            yes("doors/http/test_real_agents.py::test_aider_is_offered_no_tools"),
            UNTESTED,
            UNTESTED,
        ),
        "it has no tools, and asks for no usage where it streams; when the door is down a request fails",
    ),
    Row("OpenCode", "a provider with its `baseURL`: the HTTP door", "0", _REAL_AGENT, _REAL_AGENT_NOTE),
    Row("Cline", "base URL in its settings", "0", _NOTHING, _THROUGH_DOOR),
    Row(
        "Cursor",
        "base URL in its settings",
        "0",
        _NOTHING,
        "its requests come from its makers' servers: it needs a public address",
    ),
    Row(
        "AI SDK",
        "`prepareStep`, with a module to copy",
        "3",
        _framework("test_ai_sdk", masks="test_ai_sdk"),
        "version 6; version 7 wants Node 22 and is not tried; pictures and files as bytes cannot be sent as JSON; "
        "for masks the agent's tools go through `restoring`; or a base URL, as for the SDKs",
    ),
    Row("Kong, Portkey", "the HTTP door as upstream, or `/v1/compress`", "0", _NOTHING, "neither can be run here"),
)


def block() -> Iterator[str]:
    """The table, and below it why what is untested is."""
    yield "| what you use | what to set | lines | " + " | ".join(COLUMNS) + " | |"
    yield "|---" * (4 + len(COLUMNS)) + "|"
    for row in ROWS:
        yield (
            f"| {row.name} | {row.way} | {row.lines} | "
            + " | ".join(cell.word for cell in row.cells)
            + f" | {row.note} |"
        )


def by_default() -> Iterator[str]:
    """The rows of agents and frameworks by default settings, with the versions that are pinned."""
    yield "| what runs | API | over the limit | what the program raises of its own bounds | run by | |"
    yield "|---" * 6 + "|"
    for row in DEFAULTS:
        versions = pinned(row.environment)
        name = f"{row.name} ({', '.join(f'{each} {versions[each]}' for each in row.packages)})"
        by = "CI" if row.in_ci else "`make agents`"
        yield f"| {name} | {APIS[row.agent.path]} | {row.result} | {row.raised} | {by} | {row.note} |"


def remade(page: str) -> str:
    """A page with its tables as they should be."""
    blocks = {"table": block, "by_default": by_default}
    return _BLOCKS.sub(lambda found: f"{found[1]}\n{chr(10).join(blocks[found[2]]())}\n\n{found[3]}", page)


if __name__ == "__main__":
    PAGE.write_text(remade(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
