"""Every setting as a row: its name, default, reader, and one line on what it is for; and the file that explains all.

Names and defaults come from the structs that the parts take: ServerOptions, Limits, RecallLimits, SearchLimits,
TelemetryOptions, Policy.
The tables below add what a source may say and one line on what it is for, so that messages, the example file and
`check-config` say the same.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from prompt_sidecar.config.knobs import groups, knob, reader
from prompt_sidecar.config.readers import (
    GIB,
    KIB,
    MIB,
    Reader,
    address,
    byte_count,
    choice,
    seconds,
    secret,
    switch,
    text,
    texts,
    url,
    whole,
)
from prompt_sidecar.facts.limits import Limits, RecallLimits
from prompt_sidecar.recall.found import MOST_SNIPPET_TOKENS, MOST_SNIPPETS, MOST_TOTAL_TOKENS, SearchLimits
from prompt_sidecar.recall.retrieve import MAX_PAGE_TOKENS
from prompt_sidecar.server.options import ServerOptions
from prompt_sidecar.server.refusals import LINES
from prompt_sidecar.telemetry.options import MOST_MODELS, TelemetryOptions
from prompt_sidecar.trim.policy import DEFAULT_PRESET, PRESETS

PREFIX = "PROMPT_SIDECAR_"


def _setting(default: object, reader: Reader, reason: str) -> Any:
    return field(default=default, metadata={"reader": reader, "reason": reason})


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How the server logs, on stderr. Never text of a prompt."""

    format: str = _setting("text", choice("text", "json"), "One line for each event, for people or for machines.")
    refusals: int = _setting(
        LINES,
        whole(0, 1_000_000),
        "Lines a minute on refused calls, and as many of gRPC's own; what is over is counted in one line. 60 lines of "
        "200 bytes are 17 MB a day.",
    )
    level: str = _setting("info", choice("debug", "info", "warning", "error"), "The least severe event that is logged.")


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """How tokens are counted."""

    counter: str = _setting(
        "auto",
        choice("auto", "tiktoken"),
        "auto: by the extra `fast`, where it is installed and counts as tiktoken does. The same for all replicas.",
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One setting as the sources and the messages see it."""

    name: str
    default: object
    reader: Reader
    reason: str

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return PREFIX + self.name.upper().replace(".", "__")


_SERVER: Mapping[str, tuple[Reader, str]] = {
    "listen": (address(), "TCP address; empty: none; port 0: a free one. Beyond loopback it needs authentication."),
    "socket": (text(107), "Path of a unix socket, mode 0600; empty: none. 107 bytes is what Linux allows."),
    "workers": (whole(1, 256), "Threads that run calls."),
    "max_calls": (whole(1, 100_000), "Calls running or waiting; past it a call is refused."),
    "slow_messages": (
        whole(1, 100_000),
        "Calls whose message takes longer than 0.1 s to come; past it, one of the connection with the most is refused.",
    ),
    "message_timeout": (seconds(0.1, 3_600), "Time in which a call's message must have come; past it the call ends."),
    "answer_timeout": (seconds(1, 3_600), "Time in which a caller must have taken its answer; past it the call ends."),
    "untaken_bytes": (byte_count(1 * KIB, 64 * GIB), "Bytes of answers that their callers have yet to take, in all."),
    "max_connections": (whole(8, 100_000), "Connections of each listener; past it new ones are closed."),
    "max_streams": (whole(1, 100_000), "Calls that one connection may have open."),
    "connection_idle": (seconds(1, 30 * 86_400), "How long a connection without calls stays open."),
    "connection_age": (seconds(1, 30 * 86_400), "How long any connection stays open, with a minute for its calls."),
    "keepalive": (seconds(1, 86_400), "How long a connection may be silent before its peer is pinged."),
    "keepalive_timeout": (seconds(1, 3_600), "Time in which a pinged peer must answer; past it the connection ends."),
    "handshake_timeout": (seconds(0.1, 3_600), "Time in which a new connection must have spoken TLS and HTTP/2."),
    "channelz": (
        switch(),
        "gRPC's channelz service, which shows every peer's address to each caller. Off: it is not served.",
    ),
    "max_message_bytes": (byte_count(1 * KIB, 2 * GIB - 1), "Bytes of one request or answer."),
    "grace": (seconds(0, 3_600), "How long calls in flight get to finish at a stop."),
    "sweep_interval": (seconds(0.01, 3_600), "Time between slices of housekeeping."),
    "tls_certificate": (text(4_096), "File of the server's certificate chain, PEM; empty: no TLS."),
    "tls_key": (text(4_096), "File of the certificate's private key, PEM."),
    "client_ca": (text(4_096), "File of the authorities that clients' certificates must come from, PEM; empty: none."),
    "tokens_file": (text(4_096), "File of bearer tokens, one name:token a line, mode 0600; empty: none."),
}

_LIMITS: Mapping[str, tuple[Reader, str]] = {
    "stash_bytes": (byte_count(1 * MIB, 1024 * GIB), "Originals of all runs together, as held; fits a small pod."),
    "run_stash_bytes": (byte_count(64 * KIB, 1024 * GIB), "Originals of one run, as held; at most stash_bytes."),
    "time_to_live": (seconds(1, 30 * 86_400), "How long an original is kept after it was last received or retrieved."),
    "runs": (whole(1, 10_000_000), "Runs remembered; past it the one idle for longest is forgotten."),
    "run_messages": (whole(10, 10_000_000), "Messages in one prompt."),
    "default_window": (whole(256, 100_000_000), "Tokens of a window where neither the agent nor the model tells."),
    "run_items": (whole(10, 10_000_000), "Items in one prompt."),
    "memory_bytes": (byte_count(MIB, 1024 * GIB), "What all runs keep beside the originals, estimated."),
    "process_bytes": (
        byte_count(0, 1024 * GIB),
        "What the process may take in all: a prompt that may need more than is left is refused. 0: the container's.",
    ),
    "revision_bytes": (byte_count(0, 64 * MIB), "Bytes of a revision; past it the state is left out."),
}

_RECALL: Mapping[str, tuple[Reader, str]] = {
    "page_tokens": (whole(200, MAX_PAGE_TOKENS), "Tokens of one page of a retrieval."),
    "repeats": (
        whole(1, 1_000),
        "Times that a model is shown the same range of the same content; after that it is told that it has it.",
    ),
}

_SEARCH: Mapping[str, tuple[Reader, str]] = {
    "max_snippets": (whole(1, MOST_SNIPPETS), "Snippets of one answer, where no number is asked for."),
    "snippet_tokens": (whole(32, MOST_SNIPPET_TOKENS), "Tokens of one snippet, where no number is asked for."),
    "total_tokens": (
        whole(200, MOST_TOTAL_TOKENS),
        "Tokens of a whole answer, where no number is asked for; at least snippet_tokens.",
    ),
    "query_bytes": (byte_count(64, MIB), "Bytes of a query; a longer one is refused."),
    "query_terms": (whole(1, 1_024), "Terms of a query that count, the rarest first."),
    "index_bytes": (
        byte_count(64 * KIB, 1024 * GIB),
        "Index of one run, estimated, a part of limits.memory_bytes; past it the oldest half is left out.",
    ),
}

_TELEMETRY: Mapping[str, tuple[Reader, str]] = {
    "metrics_listen": (
        address(),
        "TCP address of /metrics; empty: none; port 0: a free one. Whoever reaches it reads all figures, but no text.",
    ),
    "scrapes": (whole(1, 1_000), "Connections to /metrics at a time, each with a thread."),
    "scrape_timeout": (seconds(0.1, 3_600), "Time that a connection to /metrics has in all."),
    "otlp_endpoint": (
        url(),
        "Collector that metrics and traces are pushed to; empty: what OTEL_EXPORTER_OTLP_ENDPOINT says, if anything.",
    ),
    "models": (
        texts(MOST_MODELS, 128),
        "Models that figures are told apart by, beside the known ones; any other counts as other.",
    ),
}

_TABLES: Sequence[tuple[str, type[Any], Mapping[str, tuple[Reader, str]]]] = (
    ("server.", ServerOptions, _SERVER),
    ("limits.", Limits, _LIMITS),
    ("recall.", RecallLimits, _RECALL),
    ("search.", SearchLimits, _SEARCH),
    ("telemetry.", TelemetryOptions, _TELEMETRY),
)
"""The structs that have a table of settings each, by the settings' prefix."""


def _rows() -> Iterator[Row]:
    yield Row(
        "key",
        b"",
        secret(),
        "Secret from which stash ids and revisions are made, the same for all replicas. Empty: random for the process, "
        "and ids change over a restart.",
    )
    for struct, prefix in ((LogSettings, "log."), (TokenSettings, "tokens.")):
        for entry in fields(struct):
            yield Row(prefix + entry.name, entry.default, entry.metadata["reader"], entry.metadata["reason"])
    for prefix, core, table in _TABLES:
        for entry in fields(core):
            yield Row(prefix + entry.name, entry.default, *table[entry.name])
    yield Row("policy.preset", DEFAULT_PRESET, choice(*PRESETS), "The values that the other policy fields start from.")
    for group in groups():
        for name in group.knobs:
            yield Row("policy." + name, None, reader(name), knob(name).what)


ROWS: Mapping[str, Row] = {row.name: row for row in _rows()}
"""Every setting by name. The default of a policy field is None: the preset's."""


def example() -> str:
    """Return a TOML file that explains every setting; each line is a comment, so that it changes nothing as it is."""
    lines = [
        "# Settings of the prompt sidecar. Every line shows a default; remove the # of those to change.",
        "# The environment overrides this file: PROMPT_SIDECAR_SERVER__LISTEN for `listen` of [server].",
    ]
    section = ""
    for name, row in ROWS.items():
        prefix, _, key = name.rpartition(".")
        if prefix != section:
            section = prefix
            lines += ["", f"[{section}]"]
        shown = row.reader.show(getattr(PRESETS[DEFAULT_PRESET], key) if row.default is None else row.default)
        told = textwrap.wrap(f"{row.reason} It may be {row.reader.accepted}.", 116)
        lines += ["", *(f"# {line}" for line in told), f"# {key} = {shown}"]
    return "\n".join(lines) + "\n"
