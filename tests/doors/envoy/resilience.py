"""The bounds, retries and times of every Envoy in front of sidecars and providers: each value once, with its reason.

The files in deploy/ repeat them, as each has to work by itself; `test_resilience.py` compares every file with these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

AT_ONCE: Final = 10_000
"""Connections, requests and waiting requests at a time. Envoy's own 1,024 would refuse calls, or let prompts pass that
the guard has not seen; a sidecar has bounds of its own (server.max_calls, http.max_requests, envoy.max_exchanges), and
counts what is beyond them."""
BREAKERS: Final[Mapping[str, Any]] = {
    "max_connections": AT_ONCE,
    "max_pending_requests": AT_ONCE,
    "max_requests": AT_ONCE,
    # Every call in progress may be repeated at once, and num_retries ends that; some more where few are. By itself: 3.
    "retry_budget": {"budget_percent": {"value": 100}, "min_retry_concurrency": 100},
}
"""Of each cluster."""
ELSEWHERE: Final[Mapping[str, Any]] = {
    "num_retries": 2,
    "retry_host_predicate": [
        {
            "name": "envoy.retry_host_predicates.previous_hosts",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
            },
        }
    ],
    # Each attempt draws another place of the table, which may be the same sidecar's again.
    "host_selection_retry_max_attempts": 50,
}
"""Of each retry policy: twice, and not where it failed."""
GRPC: Final[Mapping[str, Any]] = {
    **ELSEWHERE,
    "retry_on": "connect-failure,refused-stream,reset,unavailable",
    # As envoy.patience: longer than the longest prompt takes, so that only a sidecar that hangs loses its calls.
    "per_try_timeout": "30s",
}
"""Of calls to sidecars: every method can be repeated."""
EXT_PROC: Final[Mapping[str, Any]] = {
    **ELSEWHERE,
    "retry_on": "connect-failure,refused-stream,unavailable",
    # Where no sidecar runs at all, a request waits for this before it goes on.
    "retry_back_off": {"base_interval": "0.01s", "max_interval": "0.05s"},
}
"""Of the external processor's streams: only their beginning; what each reply may take is message_timeout."""
PROVIDER: Final[Mapping[str, Any]] = {**ELSEWHERE, "retry_on": "connect-failure,refused-stream,reset-before-request"}
"""Of calls of models: only what no provider can have seen, as the rest may be billed; no time ends a long answer."""
HTTP: Final[Mapping[str, Any]] = {
    **PROVIDER,
    "retry_on": PROVIDER["retry_on"] + ",retriable-headers",
    "retriable_headers": [{"name": "x-prompt-sidecar-stopping", "present_match": True}],
}
"""Of requests to the HTTP door: as to a provider, and what a sidecar that stops has not begun."""
