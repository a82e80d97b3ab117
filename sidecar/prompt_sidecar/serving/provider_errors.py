"""A refusal of ours as an error in the shape of the provider that the request was for, so that its SDK understands it.

Refusals of the guard and of ceilings are final: they are 400 like other invalid requests, which no provider's SDK tries
again by itself (they do on 408, 409, 429 and from 500 on). The HTTP door writes the same shapes (`http/dialects`).
"""

from __future__ import annotations

from typing import Final

import orjson

from prompt_sidecar.errors import SidecarError

FINAL_REASONS: Final = frozenset({"GUARD_REFUSED", "CEILING_REACHED", "RUN_CEILING", "CALLER_CEILING"})
"""Reasons of errors that a door never turns into an untrimmed prompt."""
STATUS: Final = 400
ERROR_TYPE_HEADER: Final = "x-amzn-errortype"
"""By which Amazon's SDKs know an error."""


def is_final(error: BaseException) -> bool:
    """Whether the request must be refused, where any other failure lets it pass as it came."""
    return isinstance(error, SidecarError) and error.reason in FINAL_REASONS


def error_headers(format_name: str) -> dict[str, str]:
    """Return the headers of an error's response, in lower case."""
    headers = {"content-type": "application/json"}
    if format_name == "bedrock_converse":
        headers[ERROR_TYPE_HEADER] = "ValidationException"
    return headers


def error_body(format_name: str, error: SidecarError) -> bytes:
    """Return an error as JSON in a provider's shape; message and reason are the sidecar's own."""
    message, told = error.message, f"{error.reason}: {error.message}"
    if format_name == "anthropic_messages":
        shape: object = {"type": "error", "error": {"type": "invalid_request_error", "message": told}}
    elif format_name == "gemini_contents":
        shape = {"error": {"code": STATUS, "message": told, "status": "FAILED_PRECONDITION"}}
    elif format_name == "bedrock_converse":
        shape = {"message": told}
    else:
        shape = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": error.reason}}
    return orjson.dumps(shape)
