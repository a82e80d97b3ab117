"""The errors of a call of the sidecar: one tree.

    ClientError
    ├── Unreachable      UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED   down, stopping, too slow, or not called
    ├── InvalidRequest   INVALID_ARGUMENT                            wrong in any state of the sidecar
    ├── RunUnknown       NOT_FOUND                                   this sidecar has not seen the run: send its prompt
    └── Refused          all others                                   too large, too busy, not authenticated, failed
        └── MustNotBeSent    FAILED_PRECONDITION                      the prompt must not be sent to a model
            ├── RunCeiling       its run has reached a ceiling
            ├── CallerCeiling    its caller has reached a ceiling
            ├── GuardRefused     it contains text that a rule of the guard refuses
            └── MaskedRun        raised here: its run has masks, and new messages would be sent unmasked

`code` is the name of a gRPC status code. `reason` is the reason in the google.rpc.ErrorInfo that the sidecar sends, or
the code if the error is not the sidecar's own. `field` is the invalid request field. No message contains text of a
prompt.
"""

from __future__ import annotations

from typing import Any, Final

from prompt_sidecar.client.schema import message_class

_DETAILS: Final = "grpc-status-details-bin"
_DOMAIN: Final = "prompt-sidecar"
NOT_JSON: Final = "PROMPT_NOT_JSON"
"""Reason: a prompt contains an object that cannot be sent to a provider either."""
CIRCUIT_OPEN: Final = "CIRCUIT_OPEN"
"""Reason: the sidecar was not called, as it did not answer the calls before; see `breaker.py`."""
REVISION_UNKNOWN: Final = "REVISION_UNKNOWN"
"""The sidecar's reason: it does not know a `base_revision`."""
STORE_UNAVAILABLE: Final = "STORE_UNAVAILABLE"
"""The sidecar's reason: it runs, but the store that it shares with others did not answer."""
NO_PROMPT: Final = "NO_PROMPT"
"""Reason: the answer has no prompt; the server may not be a sidecar."""
BAD_EDITS: Final = "EDITS_DO_NOT_APPLY"
"""Reason: the answer's edits do not fit the prompt that was sent."""
MASKED_RUN: Final = "MASKED_RUN"
"""Reason: a prompt of a run with masks could only be sent unmasked."""
BAD_ANSWER: Final = "BAD_ANSWER"
"""Reason: the answer does not match the request; the server may not be a sidecar."""


class ClientError(Exception):
    """A call of the sidecar failed."""

    def __init__(self, message: str, *, code: str, reason: str = "", field: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason or code
        self.field = field

    def __str__(self) -> str:
        at = f" at {self.field}" if self.field else ""
        return f"{self.reason}{at}: {self.message}"


class Unreachable(ClientError):
    """The sidecar did not answer within the deadline, or not at all."""


class InvalidRequest(ClientError):
    """The request is invalid; `field` names the field."""


class RunUnknown(ClientError):
    """This sidecar has not seen the run, or has forgotten it: send its prompt again."""


class Refused(ClientError):
    """The sidecar answered that it cannot or will not do it."""


class MustNotBeSent(Refused):
    """The prompt must not be sent. Raised also by clients that fail open, unless they are configured otherwise."""


class RunCeiling(MustNotBeSent):
    """The run has reached one of its ceilings; the message has limit and use."""


class CallerCeiling(MustNotBeSent):
    """The caller has reached one of its ceilings; the message has limit and use."""


class GuardRefused(MustNotBeSent):
    """The prompt contains text that a rule of the guard refuses."""


class MaskedRun(MustNotBeSent):
    """The sidecar did not answer, and the run has masks: without the sidecar new messages would be sent unmasked.

    `code` is the code of the sidecar's error, which is the cause. Raised until the sidecar answers again, unless the
    client has `fail_open_masked`.
    """


_BY_REASON: Final[dict[str, type[ClientError]]] = {
    "RUN_CEILING": RunCeiling,
    "CALLER_CEILING": CallerCeiling,
    "GUARD_REFUSED": GuardRefused,
}
_BY_CODE: Final[dict[str, type[ClientError]]] = {
    "UNAVAILABLE": Unreachable,
    "DEADLINE_EXCEEDED": Unreachable,
    "CANCELLED": Unreachable,
    "INVALID_ARGUMENT": InvalidRequest,
    "NOT_FOUND": RunUnknown,
}


def from_rpc(error: Any) -> ClientError:
    """Translate an error of a gRPC stub, blocking or asyncio's."""
    if answer_was_cut_off(error):
        return Unreachable("the connection to the sidecar ended within its answer", code="UNAVAILABLE")
    code = error.code().name
    reason = field = ""
    for detail in _details(error):
        if detail.type_url.endswith("/google.rpc.ErrorInfo"):
            info = message_class("google.rpc.ErrorInfo").FromString(detail.value)
            reason = info.reason if info.domain == _DOMAIN else reason
        elif detail.type_url.endswith("/google.rpc.BadRequest"):
            violations = message_class("google.rpc.BadRequest").FromString(detail.value).field_violations
            field = violations[0].field if violations else field
    return (_BY_REASON.get(reason) or _BY_CODE.get(code, Refused))(
        error.details() or "", code=code, reason=reason, field=field
    )


def answer_was_cut_off(error: Any) -> bool:
    """Return whether a proxy ended the call because its connection to the sidecar ended within the answer.

    A proxy repeats a call whose sidecar is gone at another one, but not after it has passed on the beginning of an
    answer: then it resets the stream with HTTP/2's INTERNAL_ERROR, which gRPC reports as INTERNAL. gRPC's own retries
    end where an answer begins, too. A sidecar that fails sends INTERNAL as a status, with details of its own.
    """
    return error.code().name == "INTERNAL" and "RST_STREAM" in (error.details() or "") and not _has_details(error)


def _has_details(error: Any) -> bool:
    return any(key == _DETAILS for key, _ in error.trailing_metadata() or ())


def _details(error: Any) -> Any:
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS:
            return message_class("google.rpc.Status").FromString(value).details
    return ()
