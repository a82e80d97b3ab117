"""Why a request went on untrimmed: one closed list, for headers, metrics, figures of runs, pages and the log.

A door reports once for each forwarded request what was done, as `Handled`: its prompt was trimmed, or a reason of this
list. docs/untrimmed.md describes what to do about each. A new reason is one line here, with its docstring, and a row of
that page; metrics, alert, log and pages follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from prompt_sidecar.errors import (
    CallCancelled,
    DeadlinePassed,
    InvalidRequest,
    OutOfMemory,
    Stopping,
    TooLarge,
    Unauthenticated,
)
from prompt_sidecar.facts.recall_offer import RecallOffer

TRIMMED: Final = "trimmed"
"""In place of a reason, if the prompt was trimmed."""
LARGE_BYTES: Final = 65_536
"""Bytes of body from which a request counts as large: some 16,000 tokens, more than a background call for a title has,
and less than a coding agent's first request."""


class Through(StrEnum):
    """The doors by which requests are counted."""

    GRPC = "grpc"
    HTTP = "http"
    GATEWAY = "gateway"
    ENVOY = "envoy"


class Untrimmed(StrEnum):
    """Why a request was forwarded untrimmed. The values are public.

    `missed`: trimming was missed, so that an operator should check it: such requests are logged, and if many of the
    large ones are, an alert fires. The others are intended, or have an alert of their own.
    """

    missed: bool

    def __new__(cls, value: str, missed: bool = False) -> Self:
        """Make a reason."""
        made = str.__new__(cls, value)
        made._value_ = value
        made.missed = missed
        return made

    NO_NEED = "no_need"
    """The prompt is within its marks, and no result was condensed, so nothing had to be done."""
    NO_PROMPT = "no_prompt"
    """The request holds no prompt: a list of models, a file, an embedding, an agent's own telemetry."""
    COUNTING = "counting"
    """Only the prompt's tokens are counted, and it is counted unchanged."""
    OBSERVING = "observing"
    """The sidecar only observes; it would have trimmed."""
    BYPASSED = "bypassed"
    """The gateway asked for no trimming."""
    PROTECTED_TEXT = "protected_text"
    """It is too large, and everything left must stay, such as the system prompt and a user's words."""
    POLICY = "policy"
    """It is too large, and the policy allows no further trimming."""
    NOT_STASHABLE = "not_stashable"
    """It is too large, and the stash has no room for the originals, so they stay in the prompt."""
    BATCH = "batch"
    """It holds many prompts of unrelated runs, or the name of a file with them."""
    TEXT_PROMPT = "text_prompt"
    """Its prompt is one text without messages, so there are no items to trim."""
    UNKNOWN_PATH = "unknown_path", True
    """The path belongs to no known API, and the body may be a prompt."""
    WEBSOCKET = "websocket", True
    """It is a WebSocket, whose messages are forwarded unchanged."""
    STORED_BY_PROVIDER = "stored_by_provider", True
    """It continues a history stored by the provider, such as by `previous_response_id`."""
    SIGNED = "signed", True
    """A signature covers the body (AWS's SigV4)."""
    ENCODED = "encoded", True
    """The body is compressed in an unknown way, or damaged."""
    UNBUFFERED = "unbuffered", True
    """Envoy does not send the whole body."""
    UNREADABLE = "unreadable", True
    """The body is not JSON, or not what its path's API accepts."""
    TOO_LARGE = "too_large", True
    """A resource limit of the sidecar was reached."""
    OVERLOADED = "overloaded", True
    """The sidecar had no free memory, thread or slot for it."""
    LATE = "late", True
    """The sidecar was not done in time, or the client did not wait."""
    STOPPING = "stopping", True
    """The sidecar was stopping."""
    UNAUTHENTICATED = "unauthenticated", True
    """Envoy did not authenticate itself although it must."""
    INTERNAL = "internal", True
    """The sidecar failed; its log has the details."""


MISSED: Final = tuple(reason for reason in Untrimmed if reason.missed)
"""The reasons that mean that trimming was missed."""
OUTCOMES: Final = (TRIMMED, *(reason.value for reason in Untrimmed))
"""What can be done about requests, in metrics."""


@dataclass(frozen=True, slots=True)
class Handled:
    """What was done about a forwarded request."""

    through: Through
    untrimmed: Untrimmed | None
    """None if its prompt was trimmed."""
    size: int = 0
    """Bytes of its body, as far as known."""
    recall: RecallOffer | None = None
    """Whether the model was offered tools for recall, or why not; None if there is no prompt."""
    caller: str = ""
    run_id: str = ""
    """The caller's run id; empty if unknown."""
    path: str = ""
    """The path of its URL, without the query; empty if it has none."""

    @property
    def is_large(self) -> bool:
        """Whether it may be worth trimming.

        Conversations stored by the provider count as large: the body has only new items.
        """
        return self.size >= LARGE_BYTES or self.untrimmed is Untrimmed.STORED_BY_PROVIDER

    @property
    def outcome(self) -> str:
        """One of `OUTCOMES`."""
        return TRIMMED if self.untrimmed is None else self.untrimmed.value


def untrimmed_by(error: BaseException) -> Untrimmed:
    """Return why a request with this error is forwarded untrimmed."""
    return next((reason for kinds, reason in _BY_ERROR if isinstance(error, kinds)), Untrimmed.INTERNAL)


_BY_ERROR: Final = (
    ((OutOfMemory, MemoryError), Untrimmed.OVERLOADED),
    ((TooLarge,), Untrimmed.TOO_LARGE),
    ((InvalidRequest,), Untrimmed.UNREADABLE),
    ((CallCancelled, DeadlinePassed, TimeoutError), Untrimmed.LATE),
    ((Stopping,), Untrimmed.STOPPING),
    ((Unauthenticated,), Untrimmed.UNAUTHENTICATED),
)
"""The first match is used."""
