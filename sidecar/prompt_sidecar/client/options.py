"""How a client reaches the sidecar: each option with its default and its reason, and gRPC's names for them."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import grpc

from prompt_sidecar.client.errors import ClientError, MustNotBeSent

_log = logging.getLogger("prompt_sidecar.client")
DEFAULT_TARGET: Final = "127.0.0.1:7717"
RUN_METADATA: Final = "x-prompt-sidecar-run"
"""Metadata key for the run's id: a load balancer that hashes it sends all calls of a run to the same sidecar."""
BY_RUN_VARIABLE: Final = "GRPC_EXPERIMENTAL_RING_HASH_SET_REQUEST_HASH_KEY"
"""Without this variable gRPC ignores that its ring hash uses a header, and fails each call."""
DEFAULT_DEADLINE: Final = 2.0
"""Seconds, retries included. An ordinary call takes milliseconds and a long unseen prompt some hundred; a model takes
seconds. So a sidecar that hangs delays an agent by less than the model does."""
DEFAULT_MESSAGE_BYTES: Final = 67_108_864
"""Bytes of one request or answer: the server's own default, 64 MiB. gRPC's 4 MiB is less than a long prompt with
images."""
DEFAULT_FALLBACK_BYTES: Final = 67_108_864
"""Bytes of prompts that are remembered for times when the sidecar is down: 64 runs of a megabyte, sent and returned
prompt together. The runs that were idle for longest are forgotten first, and would then be sent untrimmed."""
DEFAULT_HISTORY_BYTES: Final = 67_108_864
"""Bytes of sent messages that are remembered, so that prompts that go on from them are sent as what is new: 64 runs of
a megabyte, as for `DEFAULT_FALLBACK_BYTES`. Texts are shared with the agent as long as it keeps them. The runs that
were idle for longest are forgotten first; their next prompt is sent whole."""
RETRIES: Final[Mapping[str, Any]] = {
    "maxAttempts": 3,
    "initialBackoff": "0.05s",
    "maxBackoff": "0.5s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
"""For a call that found no sidecar, or one that is stopping: three tries within a quarter of a second, enough for a
restart behind a socket or a load balancer. Not after a deadline or a refusal: another try would fail as well. Calls
that change state have a request id, so that they are not applied twice."""
RECONNECT_MILLISECONDS: Final = (100, 1_000)
"""The first and the longest pause before reconnecting. gRPC's own 1 s and 120 s would leave prompts
untrimmed long after a sidecar is back."""
CONNECT_MILLISECONDS: Final = 2_000
"""Time limit of one attempt to connect; gRPC's own 20 s would wait for one that hangs. The name of gRPC's option is
misleading: after a refused connection gRPC tries again earlier."""


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS to the sidecar. All files are PEM; with key and chain the client presents its own certificate (mTLS)."""

    root_certificates: bytes | None = None
    """Authorities for the server's certificate; None: gRPC's built-in ones."""
    private_key: bytes | None = field(default=None, repr=False)
    certificate_chain: bytes | None = None
    server_name: str = ""
    """The name in the server's certificate, if it differs from the target's."""


@dataclass(frozen=True, slots=True)
class Options:
    """All options of a client."""

    target: str = DEFAULT_TARGET
    """`host:port`, `unix:/path`, or any target that gRPC resolves."""
    deadline: float = DEFAULT_DEADLINE
    fail_open: bool = True
    """Whether a prompt is sent untrimmed if the sidecar does not trim it; otherwise the error is raised."""
    token: str = field(default="", repr=False)
    """A bearer token; empty for none. Without TLS it is sent in the clear."""
    tls: Tls | None = None
    max_message_bytes: int = DEFAULT_MESSAGE_BYTES
    trace_context: Callable[[], Mapping[str, str]] | None = None
    """Returns the headers `traceparent` and `tracestate` of the call that is being made, for agents that trace without
    OpenTelemetry. None: OpenTelemetry's current span, if the agent has loaded OpenTelemetry."""
    fallback_bytes: int = DEFAULT_FALLBACK_BYTES
    """Bytes of prompts that are remembered, over all runs; the newest run's prompt is kept in any case. 0: none is
    kept, and a prompt that the sidecar does not trim is sent to the model as it was given."""
    history_bytes: int = DEFAULT_HISTORY_BYTES
    """Bytes of sent messages that are remembered, over all runs, to send only the messages since; the newest run's are
    kept in any case. 0: none are kept, and each prompt is sent whole."""
    fail_open_guard: bool = False
    """Whether a prompt that the guard or a ceiling refused is sent to the model anyway, if the client fails open."""
    fail_open_masked: bool = False
    """Whether a prompt of a run with masks is sent to the model without the sidecar, if the client fails open: new
    messages are then sent unmasked. Otherwise `MaskedRun` is raised."""
    masking_required: bool = False
    """Whether no prompt may be sent to the model without the sidecar, as new messages would be unmasked: if it does not
    answer, the error is raised instead of failing open."""
    by_run: bool = False
    """Whether a run's id decides which of the sidecars that `target` resolves to has the run, as consistent hashing in
    a load balancer does; for a headless service. When a sidecar goes, its runs move and no others. Needs a gRPC for
    Python with gRFC A76 (1.85 is tested), whose variable `BY_RUN_VARIABLE` is set in this process."""
    clock: Callable[[], float] = time.monotonic
    """Monotonic time in seconds, used by the circuit breaker."""

    def __post_init__(self) -> None:
        for name, kind, words in _TYPES:
            if not isinstance(getattr(self, name), kind) or (kind is not bool and getattr(self, name) is True):
                raise TypeError(f"{name} is a {type(getattr(self, name)).__name__}; it must be {words}")
        if not (self.token.isascii() and self.token.isprintable()):  # gRPC refuses each call with such a header
            raise ValueError("token holds a character that no header can carry")
        if not 0 < self.deadline <= 86_400:
            raise ValueError(f"deadline is {self.deadline}; it must be over 0 and at most 86,400 seconds")
        if not 0 < self.max_message_bytes <= 2_147_483_647:
            raise ValueError(f"max_message_bytes is {self.max_message_bytes}; it must be 1 to 2,147,483,647")
        if not self.fallback_bytes >= 0:
            raise ValueError(f"fallback_bytes is {self.fallback_bytes}; it must be 0 or more")
        if not self.history_bytes >= 0:
            raise ValueError(f"history_bytes is {self.history_bytes}; it must be 0 or more")
        if not self.target:
            raise ValueError("target is empty; it may be such as 127.0.0.1:7717 or unix:/run/sidecar.sock")
        if not self.target.isprintable():
            raise ValueError("target holds a character that cannot be printed")

    def goes_without(self, error: ClientError) -> bool:
        """Whether a prompt is sent to the model without the sidecar after this error."""
        if isinstance(error, MustNotBeSent):
            return self.fail_open and self.fail_open_guard
        return self.fail_open and not self.masking_required

    @property
    def channel_arguments(self) -> Sequence[tuple[str, Any]]:
        """Return the channel's arguments, as gRPC names them."""
        config: dict[str, Any] = {"methodConfig": [{"name": [{}], "retryPolicy": RETRIES}]}
        if self.by_run:
            os.environ.setdefault(BY_RUN_VARIABLE, "true")  # gRPC reads it when it creates a channel
            config["loadBalancingConfig"] = [{"ring_hash_experimental": {"requestHashHeader": RUN_METADATA}}]
        arguments: list[tuple[str, Any]] = [
            ("grpc.max_send_message_length", self.max_message_bytes),
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.service_config", json.dumps(config)),
            ("grpc.enable_retries", 1),
            # A larger request is not kept for a retry; gRPC's 256 KiB is less than most long prompts.
            ("grpc.per_rpc_retry_buffer_size", self.max_message_bytes),
            ("grpc.initial_reconnect_backoff_ms", RECONNECT_MILLISECONDS[0]),
            ("grpc.min_reconnect_backoff_ms", CONNECT_MILLISECONDS),
            ("grpc.max_reconnect_backoff_ms", RECONNECT_MILLISECONDS[1]),
            # A proxy from the environment must not be used between an agent and its sidecar.
            ("grpc.enable_http_proxy", 0),
        ]
        if self.tls is not None and self.tls.server_name:
            arguments.append(("grpc.ssl_target_name_override", self.tls.server_name))
        return arguments

    @property
    def credentials(self) -> grpc.ChannelCredentials | None:
        """Return the channel's credentials, or None if it is not encrypted."""
        tls = self.tls
        if tls is None:
            return None
        return grpc.ssl_channel_credentials(tls.root_certificates, tls.private_key, tls.certificate_chain)

    def metadata(self, run_id: str = "") -> tuple[tuple[str, str], ...]:
        """Return the metadata of one call, including the run's id if there is one."""
        headers = self._trace_headers()
        carried = [(name, headers[name]) for name in ("traceparent", "tracestate") if is_header(headers.get(name))]
        if self.token:
            carried.append(("authorization", f"Bearer {self.token}"))
        if run_id:
            plain = run_id.isascii() and run_id.isprintable()
            carried.append((RUN_METADATA, run_id if plain else quote(run_id, errors="replace")))
        return tuple(carried)

    def _trace_headers(self) -> Mapping[str, str]:
        """Return the call's trace headers; none if the agent's own tracing fails, which must not fail its run."""
        try:
            found: Any = _opentelemetry() if self.trace_context is None else self.trace_context()
        except Exception as error:  # noqa: BLE001  # whatever the agent's function raises
            _log.warning("a call is sent without its trace: trace_context raised %s", type(error).__name__)
            return {}
        return found if isinstance(found, Mapping) else {}


def is_header(value: object) -> bool:
    """Whether a value can be sent as a header. gRPC fails the call otherwise, with all headers in the error's text."""
    return isinstance(value, str) and value != "" and value.isascii() and value.isprintable()


_TYPES: Final[Sequence[tuple[str, Any, str]]] = (
    ("target", str, "a text such as 127.0.0.1:7717"),
    ("deadline", (int, float), "a number over 0 and at most 86,400: seconds"),
    ("fail_open", bool, "True or False"),
    ("fail_open_guard", bool, "True or False"),
    ("fail_open_masked", bool, "True or False"),
    ("masking_required", bool, "True or False"),
    ("by_run", bool, "True or False"),
    ("token", str, "a text"),
    ("tls", (Tls, type(None)), "a Tls or None"),
    ("trace_context", (Callable, type(None)), "a function that returns headers, or None"),
    ("clock", Callable, "a function that returns seconds"),
    ("max_message_bytes", int, "a whole number from 1 to 2,147,483,647"),
    ("fallback_bytes", int, "a whole number, 0 or more"),
    ("history_bytes", int, "a whole number, 0 or more"),
)


def _opentelemetry() -> Mapping[str, str]:
    """Return the current span as W3C headers, if the program has loaded OpenTelemetry; it is never loaded here."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from importlib import import_module

    try:
        module = import_module("opentelemetry.trace.propagation.tracecontext")
    except ImportError:
        return {}
    headers: dict[str, str] = {}
    module.TraceContextTextMapPropagator().inject(headers)
    return headers
