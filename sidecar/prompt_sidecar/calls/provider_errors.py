"""The sidecar's errors in the format of the request's provider, so that its SDK understands them.

Refusals of the guard and of ceilings are final: they are 400 like other invalid requests, or 403 where the guard cannot
read a request, which no provider's SDK retries by itself (they do on 408, 409, 429 and from 500 on).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson

from prompt_sidecar.errors import SidecarError
from prompt_sidecar.providers.table import APIS

FINAL_REASONS: Final = frozenset({"GUARD_REFUSED", "GUARD_UNREAD", "CEILING_REACHED", "RUN_CEILING", "CALLER_CEILING"})
"""Reasons of errors that a door never turns into an untrimmed prompt."""
_FINAL: Final = 400
"""The status of refusals by a rule or a ceiling."""
_HTTP_STATUS: Final[Mapping[str, int]] = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "FAILED_PRECONDITION": 400,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 503,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
    "CANCELLED": 499,
}
"""The HTTP status for each gRPC status of an error."""


def is_final(error: BaseException) -> bool:
    """Whether the request must be refused; after any other failure it is forwarded unchanged."""
    return isinstance(error, SidecarError) and error.reason in FINAL_REASONS


def http_status(error: SidecarError) -> int:
    """Return the HTTP status of an error."""
    return _HTTP_STATUS.get(error.status, 500)


def error_headers(format_name: str, status: int) -> dict[str, str]:
    """Return the headers of an error's response, in lower case."""
    api = APIS.get(format_name)
    return {"content-type": "application/json", **(api.error_headers(status) if api is not None else {})}


def error_body(format_name: str, status: int, message: str, reason: str) -> bytes:
    """Return an error as JSON in a provider's format.

    Args:
        format_name: the request's format; empty for an unknown API.
        status: the HTTP status.
        message: the sidecar's message.
        reason: the sidecar's reason; put before the message if the provider's format has no field for it.
    """
    api = APIS.get(format_name)
    if api is None:
        return orjson.dumps({"error": {"message": message, "code": reason}})
    return orjson.dumps(api.error(status, message, reason, final=reason in FINAL_REASONS and status == _FINAL))
