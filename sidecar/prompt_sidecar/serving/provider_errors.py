"""The sidecar's errors in the shape of the provider that the request was for, so that its SDK understands them.

Refusals of the guard and of ceilings are final: they are 400 like other invalid requests, or 403 where the guard cannot
read a request, which no provider's SDK tries again by itself (they do on 408, 409, 429 and from 500 on).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson

from prompt_sidecar.errors import SidecarError

FINAL_REASONS: Final = frozenset({"GUARD_REFUSED", "GUARD_UNREAD", "CEILING_REACHED", "RUN_CEILING", "CALLER_CEILING"})
"""Reasons of errors that a door never turns into an untrimmed prompt."""
_FINAL: Final = 400
"""The status of refusals by a rule or a ceiling."""
ERROR_TYPE_HEADER: Final = "x-amzn-errortype"
"""By which Amazon's SDKs know an error."""
ANTHROPIC_TYPES: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
"""Types of Anthropic's errors by status."""
GEMINI_STATUS: Final[Mapping[int, str]] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    413: "INVALID_ARGUMENT",
    499: "CANCELLED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_BEDROCK_TYPES: Final[Mapping[int, str]] = {
    401: "AccessDeniedException",
    403: "AccessDeniedException",
    499: "ModelTimeoutException",
    503: "ServiceUnavailableException",
    504: "ModelTimeoutException",
}
_HTTP_STATUS: Final[Mapping[str, int]] = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "FAILED_PRECONDITION": 400,
    "RESOURCE_EXHAUSTED": 503,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
    "CANCELLED": 499,
}
"""The HTTP status of an error's gRPC status."""


def is_final(error: BaseException) -> bool:
    """Whether the request must be refused, where any other failure lets it pass as it came."""
    return isinstance(error, SidecarError) and error.reason in FINAL_REASONS


def http_status(error: SidecarError) -> int:
    """Return the HTTP status of an error."""
    return _HTTP_STATUS.get(error.status, 500)


def error_headers(format_name: str, status: int) -> dict[str, str]:
    """Return the headers of an error's response, in lower case."""
    headers = {"content-type": "application/json"}
    if format_name == "bedrock_converse":
        otherwise = "ValidationException" if status < 500 else "InternalServerException"
        headers[ERROR_TYPE_HEADER] = _BEDROCK_TYPES.get(status, otherwise)
    return headers


def error_body(format_name: str, status: int, message: str, reason: str) -> bytes:
    """Return an error as JSON in a provider's shape.

    Args:
        format_name: the request's format; empty: of no known API.
        status: of HTTP.
        message: the sidecar's own.
        reason: the sidecar's; before the message where the provider's shape has no place for it.
    """
    told = f"{reason}: {message}"
    shape: object
    if format_name == "anthropic_messages":
        kind = ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        shape = {"type": "error", "error": {"type": kind, "message": told}}
    elif format_name == "gemini_contents":
        of_status = GEMINI_STATUS.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
        name = "FAILED_PRECONDITION" if reason in FINAL_REASONS and status == _FINAL else of_status
        shape = {"error": {"code": status, "message": told, "status": name}}
    elif format_name == "bedrock_converse":
        shape = {"message": told}
    elif format_name:
        kind = "invalid_request_error" if status < 500 else "server_error"
        shape = {"error": {"message": message, "type": kind, "param": None, "code": reason}}
    else:
        shape = {"error": {"message": message, "code": reason}}
    return orjson.dumps(shape)
