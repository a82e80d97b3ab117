"""OpenAI's Responses API over a WebSocket: what its messages are.

A client sends `response.create` with the members of a request's body, but for those of the transport; the provider
sends the events of a stream, a message each. Responses with the same `stream_id` are made one after another, others at
once: at most 16 at a time and 32 names on one WebSocket, which lasts at most 60 minutes. Of each stream the newest
response is kept with the WebSocket, so that `previous_response_id` goes on from it also where `store` is false; of any
other such id the answer is `previous_response_not_found`. With `generate: false` a request is only made ready: its
response has no output, and one goes on from its id. A request that is refused is answered by an event `error` that has
the `status` of HTTP. `response.steer` queues what the user says for a response that is being made, and is answered by
`response.steer.failed`, with what was sent, where that cannot be: the client then says it in its next request. Where it
can, the provider begins another response by itself. `response.inject` gives a response of several agents (the header
`OpenAI-Beta: responses_multi_agent=v1`) results of calls while it is made: `response_id` and an array, `input`. It
is answered by `response.inject.created`, or by `response.inject.failed` with what was sent.

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
"""How the types of events begin that are of one response; others are of the WebSocket."""
ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
"""Events after which no more of a response comes."""
NOT_FOUND: Final = "previous_response_not_found"
"""The code of an error: the provider has not kept what a request goes on from."""
MOST_STREAMS: Final = 32
"""Names of streams on one WebSocket."""
REFUSED: Final = 400
"""The status of an error that names none."""


def refusal(status: int, error: Any, stream: str) -> bytes:
    """Write the event that refuses a request.

    Args:
        status: of HTTP.
        error: the member `error` of a refusal over HTTP.
        stream: of the request; empty: it names none.
    """
    event = {"type": "error", "status": status, "error": error} | ({STREAM: stream} if stream else {})
    return json.dumps(event, separators=(",", ":")).encode()


def is_injection(event: Any) -> bool:
    """Whether a message gives a response that is being made more input, in the form that the API documents."""
    return (
        isinstance(event, Mapping)
        and event.get("type") == INJECT
        and isinstance(event.get("response_id"), str)
        and isinstance(event.get("input"), list)
    )


def steering_failed(event: Mapping[str, Any], message: str) -> bytes:
    """Write the event that gives back what a client has sent to steer a response."""
    stream = {STREAM: event[STREAM]} if isinstance(event.get(STREAM), str) else {}
    steer = {PREVIOUS: event.get(PREVIOUS), "input": event.get("input")}
    error = {"type": "invalid_request_error", "code": "steering_not_supported", "message": message}
    failed = {"type": "response.steer.failed", "sequence_number": 0, "steer": steer, "error": error, **stream}
    return json.dumps(failed, separators=(",", ":"), ensure_ascii=False).encode()
