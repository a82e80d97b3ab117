"""The HTTP door's options: addresses of the door and of providers, and limits."""

from __future__ import annotations

from dataclasses import dataclass

from prompt_sidecar.providers.table import PROVIDERS
from prompt_sidecar.values import GIB, HOUR, KIB, MIB, address, byte_count, choice, hosts, seconds, setting, url, whole


def _upstream(provider: str, purpose: str, reason: str = "As for OpenAI's.") -> str:
    """Declare the setting for a provider's address."""
    default = next(each.upstream for each in PROVIDERS if each.name == provider)
    declared: str = setting(default, url(), purpose, reason)
    return declared


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Sizes are in bytes, times in seconds; an empty address means none."""

    listen: str = setting(
        "",
        address(),
        "TCP address of the HTTP door, which agents set as their base URL; empty: none; port 0: a free one. Beyond "
        "loopback it needs authentication. It takes the tokens and the TLS files of [server].",
        "A door that nobody asked for is not opened.",
    )
    hosts: tuple[str, ...] = setting(
        (),
        hosts(16),
        "Names by which agents call the door, besides localhost, IP addresses, and names that only private networks "
        "have (without a dot, or ending in .internal, .local, .home.arpa or .svc), and hosts of web pages that may use "
        "it, besides those of this machine; without a port.",
        "Any page in a browser of this machine could otherwise send requests in the name of its user, and by a name of "
        "its own that leads here read what is answered.",
    )
    openai_upstream: str = _upstream(
        "openai",
        "Where requests to OpenAI's APIs go: chat completions, responses, and what is not known to be another's.",
        "Any server with these APIs may take its place. Plain http is accepted on loopback only.",
    )
    anthropic_upstream: str = _upstream("anthropic", "Where requests to Anthropic's API go.")
    gemini_upstream: str = _upstream("gemini", "Where requests to Gemini's API go.")
    bedrock_upstream: str = _upstream(
        "bedrock", "Where requests to Bedrock's Converse API go; the address names the region."
    )
    traceparent: str = setting(
        "drop",
        choice("drop", "send"),
        "Whether providers are told the trace that a call is part of. send: their requests have `traceparent`, of the "
        "span of the call where spans are exported, else as the agent sent it. They never get `tracestate` or "
        "`baggage`.",
        "An id that joins calls is nothing that a provider needs; a gateway of one's own does.",
        advanced=True,
    )
    caller_by: str = setting(
        "address",
        choice("address", "credential"),
        "Who a caller without a token of the sidecar's is. address: all of loopback is one caller, `local`; "
        "credential: each API key, or subject of a JWT, is one.",
        "On a machine of one's own one key may be replaced by another in the middle of a run.",
        advanced=True,
    )
    held_connections: int = setting(
        512,
        whole(1, 65_535, "connections"),
        "Connections that the system holds until the HTTP door accepts them: from the first moments of a start until "
        "the door serves, and later where many come at once. Further ones wait for their client's next try. Each "
        "holds as much of its request as the system's receive buffer takes (on Linux net.ipv4.tcp_rmem, 128 KiB), "
        "and on Linux net.core.somaxconn is a limit, too.",
        "An agent whose sidecar is started again waits for it in place of an error; 512 of them take at most 64 MiB of "
        "the system's memory.",
        advanced=True,
    )
    max_body_bytes: int = setting(
        67_108_864,
        byte_count(KIB, 2 * GIB - 1),
        "Bytes of one request that is trimmed, of one turn of the model that is read, and of one message of a "
        "WebSocket. What else passes through has no limit.",
        "As server.max_message_bytes.",
        advanced=True,
    )
    max_requests: int = setting(
        900,
        whole(1, 100_000, "requests"),
        "Requests in progress; further ones are refused with 503. One caller leaves an eighth of them to others.",
        "Most of the time a request waits for its model, which costs the sidecar some 100 kB and no thread. Fewer than "
        "server.max_connections, so that there is a connection on which to refuse.",
        advanced=True,
    )
    beginning_requests: int = setting(
        16,
        whole(1, 100_000, "requests"),
        "Requests whose prompts are read, trimmed and sent to their providers at once; further ones wait for their "
        "turn, in which callers take turns.",
        "Each makes others wait at each of their steps, and more of them at once are not faster. Waiting for a model "
        "counts no more, nor does waiting for the store or for another prompt of the run.",
        advanced=True,
    )
    stream_rate: int = setting(
        4 * MIB,
        byte_count(64 * KIB, 64 * GIB),
        "Bytes a second of one streamed answer, once it has had 4 MiB; a line counts as at least 256. The provider "
        "waits with what goes beyond.",
        "A thousand tokens a second take 0.8 MB, as counted here. A stream of hundreds of megabytes or of a million "
        "lines a second, as only a broken or hostile provider sends one, would leave little time to others.",
        advanced=True,
    )
    body_bytes: int = setting(
        512 * MIB,
        byte_count(MIB, 64 * GIB),
        "Bytes of the bodies of requests in progress, with answers that are read whole, large events, what goes beyond "
        "4 MiB of a stream, and messages of WebSockets on their way. Further requests are refused with 503, unless "
        "they are alone or small, and answers of more than 4 MiB pass as they come, as streams do, and WebSockets are "
        "closed with 1013. One caller leaves an eighth of them to others.",
        "Eight of the largest bodies, or half a megabyte for each of max_requests.",
        advanced=True,
    )
    stream_grace: float = setting(
        20.0,
        seconds(0, 600),
        "How long answers in progress get to end at a stop, where that is more than server.grace; new requests are "
        "refused with 503 and Retry-After meanwhile. A stream that has not ended then gets its provider's error event.",
        "A model's answer takes longer than a call of the sidecar's own. With a pause of some seconds before SIGTERM "
        "it is within the 30 seconds that Kubernetes gives; give a pod more, and set it higher, for long answers.",
    )
    max_conversations: int = setting(
        4_096,
        whole(16, 1_000_000, "conversations"),
        "Conversations that are distinguished by what they begin with; the one idle for longest is forgotten.",
        "As many as limits.runs keeps runs, with room for calls that do not come back, such as those for a title.",
        advanced=True,
    )
    hidden_bytes: int = setting(
        64 * MIB,
        byte_count(KIB, 64 * GIB),
        "Bytes of hidden turns of all runs: the model's calls of the sidecar's tools, and the answers; as many are "
        "kept to go on from responses that the provider stores.",
        "Sixteen runs with as much as one may have.",
        advanced=True,
    )
    run_hidden_bytes: int = setting(
        4 * MIB,
        byte_count(KIB, GIB),
        "Bytes of hidden turns of one run; its oldest go first.",
        "Two hundred and fifty recalls of a whole page, 16 kB each.",
        advanced=True,
    )
    chain_bytes: int = setting(
        64 * MIB,
        byte_count(KIB, 64 * GIB),
        "Bytes of what is kept of responses on WebSockets, so that a request that goes on from one is trimmed: all "
        "that was said up to it. What goes on from others, goes on from what the provider keeps, untrimmed.",
        "Sixteen conversations of a million tokens.",
        advanced=True,
    )
    websocket: str = setting(
        "trim",
        choice("trim", "refuse"),
        "What becomes of a WebSocket for prompts of OpenAI's Responses API. trim: it is opened, and each request on it "
        "is trimmed, masked and counted as one over HTTP. refuse: it is answered 426, so that the agent uses HTTP.",
        "Codex opens one first, and sends only what is new on it.",
    )
    caller_websockets: int = setting(
        64,
        whole(1, 100_000, "WebSockets"),
        "WebSockets for prompts that one caller may have open; each further one is answered 426, so that the agent "
        "uses HTTP.",
        "Each takes a place of http.max_requests while it is open. An agent has one or two for each session.",
        advanced=True,
    )
    websocket_idle: float = setting(
        900.0,
        seconds(1.0, 24 * HOUR),
        "Time without a request after which a WebSocket for prompts is closed.",
        "As long as a connection without requests stays open. Agents open a new one for their next request.",
        advanced=True,
    )
    websocket_time: float = setting(
        3_900.0,
        seconds(1.0, 24 * HOUR),
        "Time after which a WebSocket for prompts is closed behind the answers that are being made.",
        "OpenAI closes one after sixty minutes and says so to the agent; this is for providers that do not.",
        advanced=True,
    )
    connect_timeout: float = setting(
        10.0,
        seconds(0.1, HOUR),
        "Time in which a connection to an upstream must be made. How long an answer may take is the agent's to decide.",
        "Three retries of a lost SYN.",
        advanced=True,
    )
