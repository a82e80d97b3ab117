"""The options of all doors: how the server listens, whom it admits, and limits per caller."""

from __future__ import annotations

from dataclasses import dataclass

from prompt_sidecar.values import (
    DAY,
    GIB,
    HOUR,
    KIB,
    address,
    byte_count,
    choice,
    seconds,
    setting,
    switch,
    text,
    whole,
)

_PATH = text(4_096)
"""A path of at most the length that Linux allows."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of the server. Sizes are in bytes, times in seconds; an empty address or path means none."""

    listen: str = setting(
        "127.0.0.1:7717",
        address(),
        "TCP address of the gRPC door; empty: none, and without server.socket there is no such door; port 0: a free "
        "one. Beyond loopback it needs authentication.",
        "Loopback, as prompts are secrets. gRPC's customary port 50051 lies in Linux's range of outgoing ports, and "
        "another container of the same pod is likely to have taken it.",
    )
    socket: str = setting("", text(107), "Path of a unix socket; empty: none. Linux allows 107 bytes.")
    socket_mode: str = setting(
        "0600",
        choice("0600", "0660", "0666"),
        "Mode of the unix socket's file: who may connect, and is then the caller `unix`. 0660: the group too, "
        "server.socket_group or the folder's; 0666: everybody who reaches the folder.",
        "All that connect are one caller, so nobody else is let in unasked.",
    )
    socket_group: str = setting(
        "",
        text(64),
        "Group of the unix socket's file, by name or number, of which the sidecar must be a member; empty: the "
        "folder's, where it hands its group on, else the process's. In a pod fsGroup does it.",
    )
    health_listen: str = setting(
        "",
        address(),
        "TCP address of /healthz, /readyz and /startupz for probes over HTTP; empty: none; port 0: a free one. It "
        "needs no authentication, and tells nothing else.",
        "Outside Kubernetes gRPC's own health service does.",
    )
    workers: int = setting(
        24,
        whole(1, 256, "threads"),
        "Threads, each for a call that has begun, also while it waits. A connection begins a call only while fewer of "
        "its own have begun than threads are free, so it has half of them at most; all connections of one caller leave "
        "an eighth to others.",
        "So many long calls wait for their turn, and short ones still find a thread.",
    )
    running_calls: int = setting(
        3,
        whole(1, 256, "calls"),
        "Of the calls that have begun, how many run at once; one that waits for its turn among long calls, for a lock "
        "or for the store does not count.",
        "Python runs one thread at a time, and short calls wait for each other one that has work at each of their "
        "steps; a second and a third keep other cores busy where native code does the work.",
        advanced=True,
    )
    max_calls: int = setting(
        1_000,
        whole(1, 100_000, "calls"),
        "Calls running or waiting; beyond it calls are refused, first those of the caller with the most, and of its "
        "connection with the most.",
        "It bounds the wait more than the memory, as bodies are read only a little ahead of the threads: 1,000 calls "
        "of 2 ms on one core take two seconds, for which clients wait by default.",
    )
    slow_messages: int = setting(
        32,
        whole(1, 100_000, "calls"),
        "Calls whose message takes longer than 0.1 s to arrive; beyond it, one of the connection with the most is "
        "refused.",
        "Each may hold up to max_message_bytes of what has arrived so far; honest clients on loopback have none.",
        advanced=True,
    )
    message_timeout: float = setting(
        20.0,
        seconds(0.1, HOUR),
        "Time in which a call's message, or the body of a request to the HTTP door, must have arrived; after it the "
        "call ends. A body that passes through unread may take longer, but not be silent for as long.",
        "64 MiB at 30 Mbit/s take 18 seconds.",
        advanced=True,
    )
    answer_timeout: float = setting(
        60.0,
        seconds(1, HOUR),
        "Time in which a caller must have taken its answer, which is kept in memory until then, an agent the next "
        "piece of a stream, or a provider the next piece of an upload; after it the call ends.",
        "Three times what an answer of 64 MiB takes at 30 Mbit/s, as the caller may be busy.",
        advanced=True,
    )
    untaken_bytes: int = setting(
        134_217_728,
        byte_count(KIB, 64 * GIB),
        "Bytes of answers that their callers have yet to take, in all.",
        "A megabyte for each of max_calls, or two of the largest answers; callers on loopback take theirs within "
        "milliseconds.",
        advanced=True,
    )
    max_connections: int = setting(
        1_000,
        whole(8, 100_000, "connections"),
        "Connections of each listener; further ones are closed. Of the HTTP door's, the one that has waited longest "
        "for a request makes room.",
        "Each takes a file descriptor, and some 30 kB.",
    )
    max_streams: int = setting(
        100,
        whole(1, 100_000, "calls"),
        "Calls that one connection may have open; further ones wait at the client.",
        "RFC 9113 asks for at least 100; fewer than max_calls, so that one connection alone cannot take all places.",
        advanced=True,
    )
    connection_idle: float = setting(
        900.0,
        seconds(1, 30 * DAY),
        "How long a connection without calls stays open.",
        "An agent's model call takes less than fifteen minutes; clients connect again when they need to.",
        advanced=True,
    )
    connection_age: float = setting(
        3_600.0,
        seconds(1, 30 * DAY),
        "How long any connection stays open, with a minute more for its calls.",
        "After an hour new certificates and authorities hold for everybody.",
        advanced=True,
    )
    keepalive: float = setting(
        60.0,
        seconds(1, DAY),
        "How long a connection may be silent before its peer is pinged.",
        "With keepalive_timeout, a peer that has gone without a word is noticed in a minute and a half.",
        advanced=True,
    )
    keepalive_timeout: float = setting(
        20.0,
        seconds(1, HOUR),
        "Time in which a pinged peer must answer; after it the connection ends.",
        "gRPC's default.",
        advanced=True,
    )
    handshake_timeout: float = setting(
        10.0,
        seconds(0.1, HOUR),
        "Time in which a new connection must have spoken TLS and HTTP/2, or sent the HTTP door its first request.",
        "gRPC's default of 120 seconds is long for a client that connects and sends nothing.",
        advanced=True,
    )
    channelz: bool = setting(
        False,
        switch(),
        "Whether gRPC's channelz service is served, for finding faults of connections.",
        "It shows every peer's address to each caller.",
        advanced=True,
    )
    max_message_bytes: int = setting(
        67_108_864,
        byte_count(KIB, 2 * GIB - 1),
        "Bytes of one request or answer.",
        "gRPC's own 4 MiB is less than a long prompt with images.",
    )
    grace: float = setting(
        10.0,
        seconds(0, HOUR),
        "How long calls in flight get to finish at a stop.",
        "Well within the 30 seconds that Kubernetes gives.",
    )
    sweep_interval: float = setting(
        1.0,
        seconds(0.01, HOUR),
        "Time between slices of housekeeping.",
        "Each slice is bounded, so that no call waits for a long one.",
        advanced=True,
    )
    tls_certificate: str = setting("", _PATH, "File of the server's certificate chain, PEM; empty: no TLS.")
    tls_key: str = setting("", _PATH, "File of the certificate's private key, PEM.")
    client_ca: str = setting(
        "", _PATH, "File of the authorities that clients' certificates must come from, PEM; empty: none are asked for."
    )
    tokens_file: str = setting(
        "", _PATH, "File of bearer tokens, one name:token a line, mode 0600; empty: none are asked for."
    )
    unauthenticated: bool = setting(
        False,
        switch(),
        "Whether gRPC, the HTTP door and Envoy's may listen beyond loopback without tokens and client certificates. "
        "Any client that can connect may then call, and all of them are the one caller `local`.",
        "Only something outside can decide then who connects: a container's port that is published to its machine "
        "alone, or a service mesh.",
    )
