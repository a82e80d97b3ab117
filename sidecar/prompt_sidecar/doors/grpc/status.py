"""Turns errors into gRPC statuses, in one place.

Each error becomes a google.rpc.Status with one ErrorInfo (reason, domain); an INVALID_ARGUMENT that knows its field
carries a BadRequest that names it (AIP-193). Any other exception becomes INTERNAL with an opaque id that is logged as
well: an exception's own text may contain prompt text, so it never leaves the process.
"""

from __future__ import annotations

import logging
import secrets
from typing import NoReturn

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from prompt_sidecar.errors import SidecarError
from prompt_sidecar.process.logs import frames

DOMAIN = "prompt-sidecar"
_MESSAGE_CHARACTERS = 2_000
"""Characters of a status message. It is sent in HTTP/2 trailers, for which clients accept 8 KiB by default, twice."""

_log = logging.getLogger(__name__)


def status_of(error: BaseException) -> status_pb2.Status:
    """Return the client's status for `error`; an unknown error is logged under a new id."""
    if isinstance(error, SidecarError):
        return _status(error.status, error.message, error.reason, error.field)
    incident = secrets.token_hex(6)
    _log.error("call failed, incident %s: %s", incident, frames(error))
    return _status("INTERNAL", f"the sidecar failed; its log has more under incident {incident}", "INTERNAL", "")


def abort(context: grpc.ServicerContext, error: BaseException) -> NoReturn:
    """End the call with the status of `error`."""
    context.abort_with_status(rpc_status.to_status(status_of(error)))


def _status(code: str, message: str, reason: str, field: str) -> status_pb2.Status:
    message = message[:_MESSAGE_CHARACTERS]
    status = status_pb2.Status(code=code_pb2.Code.Value(code), message=message)
    status.details.append(_packed(error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN)))
    if field and code == "INVALID_ARGUMENT":
        violation = error_details_pb2.BadRequest.FieldViolation(field=field[:_MESSAGE_CHARACTERS], description=message)
        status.details.append(_packed(error_details_pb2.BadRequest(field_violations=[violation])))
    return status


def _packed(detail: error_details_pb2.ErrorInfo | error_details_pb2.BadRequest) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed
