"""The options of the external processor."""

from __future__ import annotations

from dataclasses import dataclass

from prompt_sidecar.values import DAY, GIB, HOUR, MIB, address, byte_count, choice, seconds, setting, switch, whole


@dataclass(frozen=True, slots=True)
class EnvoyOptions:
    """Options of the Envoy door. Times in seconds; an empty address means none."""

    listen: str = setting(
        "",
        address(),
        "TCP address of the external processor for Envoy; empty: none; port 0: a free one. Beyond loopback it needs "
        "the same authentication as server.listen, whose TLS files and tokens it uses.",
        "A door that nobody asked for is not opened.",
    )
    caller_by: str = setting(
        "peer",
        choice("peer", "credential"),
        "Whose runs are. peer: who Envoy proved to be, or `local`; credential: each API key behind it, or subject of a "
        "JWT, is a caller of its own.",
        "In a pod there is one agent, and recall through another door must know its runs by the same caller. Choose "
        "credential where many agents share an Envoy.",
    )
    usage: bool = setting(
        True,
        switch(),
        "Whether responses are read for the tokens that the provider counted. Off: a stream ends with the request.",
        "Reports correct the estimates, and teach limits; each piece of a response comes 0.6 ms later.",
    )
    max_exchanges: int = setting(
        1_000,
        whole(1, 100_000, "exchanges"),
        "Exchanges in progress; further ones are not trimmed.",
        "A stream that waits for a response holds some 20 kB, and a model call may take minutes.",
    )
    exchange_age: float = setting(
        3_600.0,
        seconds(1, 30 * DAY),
        "How long one exchange may take; then its stream ends, and the rest of the response passes by itself.",
        "Streams that nobody ends would take the places of others; no model answers for an hour.",
        advanced=True,
    )
    max_prompts: int = setting(
        128,
        whole(1, 100_000, "prompts"),
        "Prompts that are trimmed or wait for a thread; further ones are not trimmed.",
        "As server.max_calls: it bounds the wait.",
    )
    max_conversations: int = setting(
        4_096,
        whole(16, 1_000_000, "conversations"),
        "Conversations that are distinguished by what they begin with; the one idle for longest is forgotten.",
        "As http.max_conversations.",
        advanced=True,
    )
    waiting_bytes: int = setting(
        268_435_456,
        byte_count(MIB, 64 * GIB),
        "Bytes of prompts that are trimmed or wait for a thread, in all; a further one is not trimmed, unless it is "
        "alone.",
        "Four of the largest bodies, or two megabytes for each of max_prompts.",
        advanced=True,
    )
    answer_bytes: int = setting(
        8 * MIB,
        byte_count(1024, GIB),
        "Bytes of one response in which masks are restored; the rest of a longer stream, and all of another response "
        "that is longer, keep them.",
        "A long answer with images has some; what was read of a stream is kept until its end.",
        advanced=True,
    )
    patience: float = setting(
        30.0,
        seconds(1, HOUR),
        "How long Envoy is asked to wait for the answer to a large prompt; Envoy's max_message_timeout must be as "
        "long.",
        "A first prompt of 64 MiB takes some ten seconds on a busy core.",
        advanced=True,
    )
