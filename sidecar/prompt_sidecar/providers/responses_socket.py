"""OpenAI's Responses API over a WebSocket: its messages.

A client sends `response.create` with the members of a request's body, except those of the transport; the provider sends
the events of a stream, one in each message. Responses with the same `stream_id` are made one after another, others at
once: at most 16 at a time and 32 names on one WebSocket, which lasts at most 60 minutes. The newest response of each
stream is kept with the WebSocket, so that `previous_response_id` can continue it even if `store` is false; for any
other such id the answer is `previous_response_not_found`. With `generate: false` a request is only prepared: its
response has no output, and a later request continues it by its id. A request that is refused is answered by an event
`error` that has the `status` of HTTP. `response.steer` queues a user's words for a response in progress, and is
answered by `response.steer.failed`, with what was sent, if that is impossible: the client then sends the words in its
next request. Otherwise the provider begins another response by itself. `response.inject` gives a response of several
agents (the header `OpenAI-Beta: responses_multi_agent=v1`) results of calls while it is in progress: `response_id` and
an array, `input`. It is answered by `response.inject.created`, or by `response.inject.failed` with what was sent.

developers.openai.com/api/docs/guides/websocket-mode and the types of openai-python 3.8 (`responses_client_event.py`,
`responses_server_event.py`, `response_steer_failed_event.py`), the guides "Mid-turn steering" and "Multi-agent", and
the reference "WebSocket events" of the beta (`BetaResponseInjectEvent`), read in November 2026. Codex also sends
`response.processed`, which names a response that it has read (openai/codex, codex-rs/codex-api).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

CREATE: Final = "response.create"
STEER: Final = "response.steer"
INJECT: Final = "response.inject"
PROCESSED: Final = "response.processed"
STREAM: Final = "stream_id"
PREVIOUS: Final = "previous_response_id"
OF_RESPONSES: Final = "response."
"""Prefix of the types of events that belong to one response; others belong to the WebSocket."""
ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
"""Events that end a response."""
NOT_FOUND: Final = "previous_response_not_found"
"""The code of an error: the provider has not kept the response to continue."""
MOST_STREAMS: Final = 32
"""Names of streams on one WebSocket."""
REFUSED: Final = 400
"""The status of an error that has none."""


def refusal(status: int, error: Any, stream: str) -> bytes:
    """Write the event that refuses a request.

    Args:
        status: the HTTP status.
        error: the member `error` of a refusal over HTTP.
        stream: the request's stream; empty if it names none.
    """
    event = {"type": "error", "status": status, "error": error} | ({STREAM: stream} if stream else {})
    return json.dumps(event, separators=(",", ":")).encode()


def is_injection(event: Any) -> bool:
    """Whether a message adds input to a response in progress, in the documented form."""
    return (
        isinstance(event, Mapping)
        and event.get("type") == INJECT
        and isinstance(event.get("response_id"), str)
        and isinstance(event.get("input"), list)
    )


def steering_failed(event: Mapping[str, Any], message: str) -> bytes:
    """Write the event that returns what a client has sent to steer a response."""
    stream = {STREAM: event[STREAM]} if isinstance(event.get(STREAM), str) else {}
    steer = {PREVIOUS: event.get(PREVIOUS), "input": event.get("input")}
    error = {"type": "invalid_request_error", "code": "steering_not_supported", "message": message}
    failed = {"type": "response.steer.failed", "sequence_number": 0, "steer": steer, "error": error, **stream}
    return json.dumps(failed, separators=(",", ":"), ensure_ascii=False).encode()
