"""OpenTelemetry's conventions as a table: the attributes of spans and metrics, their types, and which are required.

Sources, read in November 2026:

- HTTP: docs/http/http-spans.md (HTTP server) and http-metrics.md of open-telemetry/semantic-conventions v1.44.0, the
  version of the schema that the sidecar writes.
- Generative AI and the Model Context Protocol: docs/gen-ai/client-inference.md, gen-ai-spans.md (execute tool, memory)
  and mcp.md of open-telemetry/semantic-conventions-genai, which is where they are since 1.42.0. The metrics of clients
  have the names of gen-ai-metrics.md of v1.41.0, the last one of the old place, as backends read those.

An attribute that is not written has its reason in `NOT_WRITTEN`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final


class Level(Enum):
    """Requirement level of an attribute."""

    REQUIRED = auto()
    CONDITION = auto()
    """Conditionally required."""
    RECOMMENDED = auto()
    OPT_IN = auto()


REQUIRED, CONDITION, RECOMMENDED, OPT_IN = Level.REQUIRED, Level.CONDITION, Level.RECOMMENDED, Level.OPT_IN
OWN: Final = "prompt_sidecar."
"""Before names of our own."""
TEXT, NUMBER, REAL, YES, TEXTS = str, int, float, bool, tuple
"""Types as the tests' sink reads them from OTLP."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One row of a table."""

    type: type
    level: Level


@dataclass(frozen=True, slots=True)
class SpanTable:
    """What the conventions have for one kind of span."""

    kind: str
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class MetricTable:
    """What they have for one metric; all here are histograms."""

    unit: str
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class _Rows:
    text: tuple[str, ...] = ()
    number: tuple[str, ...] = ()
    more: Mapping[str, type] = field(default_factory=dict)

    def at(self, level: Level) -> dict[str, Attribute]:
        found = {name: Attribute(TEXT, level) for name in self.text}
        found |= {name: Attribute(NUMBER, level) for name in self.number}
        return found | {name: Attribute(kind, level) for name, kind in self.more.items()}


_HTTP_SERVER: Final = (
    _Rows(("http.request.method", "url.path", "url.scheme")).at(REQUIRED)
    | _Rows(
        ("error.type", "http.request.method_original", "http.route", "network.protocol.name", "url.query"),
        ("http.response.status_code", "server.port"),
    ).at(CONDITION)
    | _Rows(
        (
            "client.address",
            "network.peer.address",
            "network.protocol.version",
            "server.address",
            "user_agent.original",
        ),
        ("network.peer.port",),
    ).at(RECOMMENDED)
)
_INFERENCE: Final = (
    _Rows(("gen_ai.operation.name", "gen_ai.provider.name")).at(REQUIRED)
    | _Rows(
        (
            "error.type",
            "gen_ai.conversation.id",
            "gen_ai.output.type",
            "gen_ai.prompt.name",
            "gen_ai.prompt.version",
            "gen_ai.request.model",
        ),
        ("gen_ai.request.choice.count", "gen_ai.request.seed", "gen_ai.request.top_k", "server.port"),
        {"gen_ai.request.stream": YES},
    ).at(CONDITION)
    | _Rows(
        (
            "gen_ai.request.previous_response.id",
            "gen_ai.request.reasoning.level",
            "gen_ai.response.id",
            "gen_ai.response.model",
            "server.address",
        ),
        (
            "gen_ai.request.max_tokens",
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.cache_write.input_tokens",
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.output_tokens",
            "gen_ai.usage.reasoning.output_tokens",
            *(
                f"gen_ai.usage.{modality}.{count}"
                for modality in ("audio", "image", "text")
                for count in ("cache_read.input_tokens", "input_tokens", "output_tokens")
            ),
        ),
        {
            "gen_ai.conversation.compacted": YES,
            "gen_ai.request.frequency_penalty": REAL,
            "gen_ai.request.presence_penalty": REAL,
            "gen_ai.request.stop_sequences": TEXTS,
            "gen_ai.request.temperature": REAL,
            "gen_ai.request.top_p": REAL,
            "gen_ai.response.finish_reasons": TEXTS,
            "gen_ai.response.time_to_first_chunk": REAL,
        },
    ).at(RECOMMENDED)
    | _Rows(
        ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions")
    ).at(OPT_IN)
)
_EXECUTE_TOOL: Final = (
    _Rows(("gen_ai.operation.name", "gen_ai.tool.name")).at(REQUIRED)
    | _Rows(("error.type",)).at(CONDITION)
    | _Rows(("gen_ai.tool.call.id", "gen_ai.tool.description", "gen_ai.tool.type")).at(RECOMMENDED)
    | _Rows(("gen_ai.tool.call.arguments", "gen_ai.tool.call.result")).at(OPT_IN)
)
_SEARCH_MEMORY: Final = (
    _Rows(("gen_ai.operation.name",)).at(REQUIRED)
    | _Rows(
        ("error.type", "gen_ai.memory.record.id", "gen_ai.memory.store.id", "gen_ai.provider.name"), ("server.port",)
    ).at(CONDITION)
    | _Rows(("server.address",), ("gen_ai.memory.record.count",)).at(RECOMMENDED)
    | _Rows(("gen_ai.memory.query.text", "gen_ai.memory.records")).at(OPT_IN)
)
_MCP_SERVER: Final = (
    _Rows(("mcp.method.name",)).at(REQUIRED)
    | _Rows(
        (
            "error.type",
            "gen_ai.prompt.name",
            "gen_ai.tool.name",
            "jsonrpc.request.id",
            "mcp.resource.uri",
            "rpc.response.status_code",
        )
    ).at(CONDITION)
    | _Rows(
        (
            "client.address",
            "gen_ai.operation.name",
            "jsonrpc.protocol.version",
            "mcp.protocol.version",
            "mcp.session.id",
            "network.protocol.name",
            "network.protocol.version",
            "network.transport",
        ),
        ("client.port",),
    ).at(RECOMMENDED)
    | _Rows(("gen_ai.tool.call.arguments", "gen_ai.tool.call.result")).at(OPT_IN)
)
SPANS: Final[Mapping[str, SpanTable]] = {
    "http": SpanTable("SERVER", _HTTP_SERVER),
    "inference": SpanTable("CLIENT", _INFERENCE),
    "execute_tool": SpanTable("INTERNAL", _EXECUTE_TOOL),
    "search_memory": SpanTable("INTERNAL", _SEARCH_MEMORY),
    "mcp": SpanTable("SERVER", _MCP_SERVER),
}

_OF_MODEL: Final = (
    _Rows(("gen_ai.operation.name", "gen_ai.provider.name")).at(REQUIRED)
    | _Rows(("gen_ai.request.model",), ("server.port",)).at(CONDITION)
    | _Rows(("gen_ai.response.model", "server.address")).at(RECOMMENDED)
)
METRICS: Final[Mapping[str, MetricTable]] = {
    "http.server.request.duration": MetricTable(
        "s",
        _Rows(("http.request.method", "url.scheme")).at(REQUIRED)
        | _Rows(("error.type", "http.route", "network.protocol.name"), ("http.response.status_code",)).at(CONDITION)
        | _Rows(("network.protocol.version",)).at(RECOMMENDED)
        | _Rows(("server.address", "user_agent.synthetic.type"), ("server.port",)).at(OPT_IN),
    ),
    "gen_ai.client.token.usage": MetricTable("{token}", _OF_MODEL | _Rows(("gen_ai.token.type",)).at(REQUIRED)),
    "gen_ai.client.operation.duration": MetricTable("s", _OF_MODEL | _Rows(("error.type",)).at(CONDITION)),
    "gen_ai.client.operation.time_to_first_chunk": MetricTable("s", _OF_MODEL),
    "gen_ai.client.operation.time_per_output_chunk": MetricTable("s", _OF_MODEL),
    "mcp.server.operation.duration": MetricTable(
        "s",
        _Rows(("mcp.method.name",)).at(REQUIRED)
        | _Rows(("error.type", "gen_ai.prompt.name", "gen_ai.tool.name", "rpc.response.status_code")).at(CONDITION)
        | _Rows(
            (
                "gen_ai.operation.name",
                "jsonrpc.protocol.version",
                "mcp.protocol.version",
                "network.protocol.name",
                "network.protocol.version",
                "network.transport",
                "server.address",
            ),
            ("server.port",),
        ).at(RECOMMENDED)
        | _Rows(("mcp.resource.uri",)).at(OPT_IN),
    ),
}

_TEXT: Final = "text of prompts, arguments or results is in no signal"
_AGENTS: Final = "the agent's own span has what it asks for"
_ONE_SERVER: Final = "the settings name one address for each provider"
_CLIENT: Final = "addresses of clients are in the log of refused calls alone"
_DOOR: Final = "the door speaks HTTP/1.1, at the address that is in its settings"
_HOSTS: Final = "the host's own span has it"
_NOT_OURS: Final = "the sidecar has no such thing"
NOT_WRITTEN: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "gen_ai.input.messages",
            "gen_ai.output.messages",
            "gen_ai.system_instructions",
            "gen_ai.tool.definitions",
            "gen_ai.tool.call.arguments",
            "gen_ai.tool.call.result",
            "gen_ai.tool.description",
            "gen_ai.memory.query.text",
            "gen_ai.memory.records",
            "url.query",
            "http.request.method_original",
        ),
        _TEXT,
    ),
    **dict.fromkeys(
        (
            "gen_ai.output.type",
            "gen_ai.prompt.name",
            "gen_ai.prompt.version",
            "gen_ai.request.choice.count",
            "gen_ai.request.seed",
            "gen_ai.request.top_k",
            "gen_ai.request.previous_response.id",
            "gen_ai.request.reasoning.level",
            "gen_ai.request.max_tokens",
            "gen_ai.request.frequency_penalty",
            "gen_ai.request.presence_penalty",
            "gen_ai.request.stop_sequences",
            "gen_ai.request.temperature",
            "gen_ai.request.top_p",
            "user_agent.original",
            "user_agent.synthetic.type",
        ),
        _AGENTS,
    ),
    **dict.fromkeys(
        (
            "gen_ai.response.id",
            *(name for name in _INFERENCE if name.startswith("gen_ai.usage.") and name.count(".") > 3),
        ),
        "it is not read of answers",
    ),
    "gen_ai.usage.reasoning.output_tokens": "it is not read of answers",
    **{
        f"gen_ai.usage.{modality}.{count}": "it is not read of answers"
        for modality in ("audio", "image", "text")
        for count in ("input_tokens", "output_tokens")
    },
    "gen_ai.memory.record.id": "a search is of many records",
    **dict.fromkeys(("client.address", "client.port", "network.peer.address", "network.peer.port"), _CLIENT),
    "http.route": "the door knows APIs by name, not by a template of paths: prompt_sidecar.http.route",
    **dict.fromkeys(("mcp.resource.uri", "jsonrpc.protocol.version"), _NOT_OURS),
    "mcp.session.id": "the MCP process has no sessions: any replica answers any request",
}
NOT_WRITTEN_HERE: Final[Mapping[str, Mapping[str, str]]] = {
    "http": dict.fromkeys(
        ("server.address", "server.port", "network.protocol.name", "network.protocol.version"), _DOOR
    ),
    "http.server.request.duration": dict.fromkeys(
        ("server.address", "server.port", "network.protocol.name", "network.protocol.version"), _DOOR
    ),
    "mcp": {"network.protocol.version": _HOSTS},
    "mcp.server.operation.duration": dict.fromkeys(
        ("network.protocol.version", "server.address", "server.port"), _HOSTS
    ),
    "search_memory": dict.fromkeys(
        ("error.type", "gen_ai.provider.name", "server.address", "server.port"), "the memory is the sidecar's own"
    ),
    **{
        name: dict.fromkeys(("server.address", "server.port"), _ONE_SERVER)
        for name in METRICS
        if name.startswith("gen_ai.")
    },
    "gen_ai.client.operation.time_per_output_chunk": {
        **dict.fromkeys(("server.address", "server.port"), _ONE_SERVER),
        "gen_ai.response.model": "it is not known while the pieces come",
    },
}
"""What is written, but not on these."""
