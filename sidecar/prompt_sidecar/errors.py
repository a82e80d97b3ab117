"""The errors that a caller can get: one tree, each with its gRPC status and its reason.

    SidecarError
    ├── InvalidRequest          INVALID_ARGUMENT     the request is invalid; `field` names the field
    │   ├── InvalidJson         INVALID_ARGUMENT     the body is not JSON of its format's shape
    │   │   └── AmbiguousJson   INVALID_ARGUMENT     JSON that two parsers may read differently
    │   ├── WrongFormat         INVALID_ARGUMENT     the body is in another format than json.format
    │   └── InvalidPolicy       INVALID_ARGUMENT     a policy value is out of its bounds
    ├── TooLarge                RESOURCE_EXHAUSTED   a bound of the sidecar would be exceeded
    │   └── OutOfMemory         RESOURCE_EXHAUSTED   memory ran out during the call; nothing is lost
    ├── RevisionUnknown         FAILED_PRECONDITION  `base_revision` is not known to this process
    ├── GuardRefused            FAILED_PRECONDITION  the prompt contains text that a rule of the guard refuses
    ├── GuardUnread             PERMISSION_DENIED    the guard cannot read a body that a door would forward
    │   └── GuardAway           UNAVAILABLE          the guard cannot read the body now
    ├── CeilingReached          FAILED_PRECONDITION  a ceiling that refuses would be exceeded; nothing was recorded
    │   ├── RunCeiling          FAILED_PRECONDITION  a ceiling of the run
    │   └── CallerCeiling       FAILED_PRECONDITION  a ceiling of the caller
    ├── RunUnknown              NOT_FOUND            this process has not seen the run
    ├── Unauthenticated         UNAUTHENTICATED      no credential, or an unknown one
    ├── DeadlinePassed          DEADLINE_EXCEEDED    the caller's deadline passed during the call
    ├── MessageLate             DEADLINE_EXCEEDED    the call's message did not arrive in time
    ├── CallCancelled           CANCELLED            the caller cancelled the call
    ├── NotServed               UNIMPLEMENTED        there is no such method
    ├── StoreUnavailable        UNAVAILABLE          the shared store did not answer in time, and the call needs it
    └── Stopping                UNAVAILABLE          the server is draining; nothing of the call was done

A message says what is wrong and what would be accepted. It never contains text of a prompt.
"""

from __future__ import annotations

from typing import ClassVar


class SidecarError(Exception):
    """An error with a gRPC status. `status` is the name of the status code, `reason` that of the ErrorInfo."""

    status: ClassVar[str] = "INTERNAL"
    reason: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, *, field: str = "", bound: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        """The invalid request field, as a path such as `json.body.messages[3].content`; empty if there is none."""
        self.bound = bound
        """Name of the bound that was reached, as in the metric; empty if none was."""
        self.model = ""
        """The model in the refused prompt; empty if that was not read."""
        self.counted = False
        """Whether telemetry has counted it: an error is counted once, however many places report it."""


class InvalidRequest(SidecarError):
    """A request that is invalid in any state of the sidecar."""

    status = "INVALID_ARGUMENT"
    reason = "INVALID_REQUEST"


class InvalidJson(InvalidRequest):
    """A body that is not JSON, or not of its format's shape."""

    reason = "INVALID_JSON"


class AmbiguousJson(InvalidJson):
    """JSON that two parsers may read differently: lone surrogate, duplicate key, large number. It is not trimmed."""


class WrongFormat(InvalidRequest):
    """A body in another format than `json.format`; the message names the detected one."""

    reason = "WRONG_FORMAT"


class InvalidPolicy(InvalidRequest):
    """A policy value out of its bounds."""

    reason = "INVALID_POLICY"


class TooLarge(SidecarError):
    """Something exceeds a bound of the sidecar; the message names the bound and its setting."""

    status = "RESOURCE_EXHAUSTED"
    reason = "TOO_LARGE"


class OutOfMemory(TooLarge):
    """Memory ran out during a call; the run is unchanged, and the call may be retried."""

    reason = "OUT_OF_MEMORY"


class RevisionUnknown(SidecarError):
    """The history of a `base_revision` is not known to this process: send the whole history."""

    status = "FAILED_PRECONDITION"
    reason = "REVISION_UNKNOWN"


class GuardRefused(SidecarError):
    """A prompt holds what a rule of the guard refuses. Nothing of it was recorded, and it must not be sent."""

    status = "FAILED_PRECONDITION"
    reason = "GUARD_REFUSED"

    def __init__(self, message: str, *, field: str = "", rule: str = "") -> None:
        super().__init__(message, field=field)
        self.rule = rule
        """The rule that refuses; empty if no rule matched, but not all text could be searched."""


class GuardUnread(SidecarError):
    """A door would send on a body that the guard cannot read, and `guard.unread` is refuse. It must not be sent."""

    status = "PERMISSION_DENIED"
    reason = "GUARD_UNREAD"


class GuardAway(GuardUnread):
    """The guard cannot read it now, as the sidecar stops, is busy or late, or failed. The request may be retried."""

    status = "UNAVAILABLE"


class CeilingReached(SidecarError):
    """The prompt would pass a ceiling that refuses. Nothing of it was recorded; the message has limit and use."""

    status = "FAILED_PRECONDITION"
    reason = "CEILING_REACHED"

    def __init__(self, message: str, *, scope: str = "", kind: str = "") -> None:
        super().__init__(message)
        self.scope = scope
        """Whose use the ceiling limits, as in the metric."""
        self.kind = kind
        """The quantity that the ceiling limits, as in the metric."""


class RunCeiling(CeilingReached):
    """The run would pass one of its ceilings."""

    reason = "RUN_CEILING"


class CallerCeiling(CeilingReached):
    """The caller would pass one of its ceilings."""

    reason = "CALLER_CEILING"


class RunUnknown(SidecarError):
    """This process has not seen the run, or has forgotten it: send its prompt again."""

    status = "NOT_FOUND"
    reason = "RUN_UNKNOWN"


class Unauthenticated(SidecarError):
    """The call has no credential where one is required, or an unknown one."""

    status = "UNAUTHENTICATED"
    reason = "UNAUTHENTICATED"


class DeadlinePassed(SidecarError):
    """The caller's deadline passed while the sidecar worked; what was done so far is kept and not done again."""

    status = "DEADLINE_EXCEEDED"
    reason = "DEADLINE_EXCEEDED"


class MessageLate(SidecarError):
    """The call's headers arrived, but its message did not in time. The call had no effect."""

    status = "DEADLINE_EXCEEDED"
    reason = "MESSAGE_LATE"


class CallCancelled(SidecarError):
    """The caller cancelled while the sidecar worked; what was done so far is kept and not done again."""

    status = "CANCELLED"
    reason = "CANCELLED"


class NotServed(SidecarError):
    """There is no such method."""

    status = "UNIMPLEMENTED"
    reason = "NOT_SERVED"


class StoreUnavailable(SidecarError):
    """The shared store gave no answer in time, and this process alone cannot answer. The call may be retried."""

    status = "UNAVAILABLE"
    reason = "STORE_UNAVAILABLE"


class Stopping(SidecarError):
    """The server is draining. The call had no effect, so clients may retry it anywhere."""

    status = "UNAVAILABLE"
    reason = "STOPPING"
