"""Why a request went on untrimmed: one closed list, for headers, metrics, figures of runs, pages and the log.

A door says of each request that goes on what was done about it, once, as `Handled`: its prompt was trimmed, or a reason
of this list. docs/untrimmed.md says what to do about each. A new reason is one line here, with its docstring, and a row
of that page; metrics, alert, log and pages follow.
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
"""In place of a reason, where the prompt was trimmed."""
LARGE_BYTES: Final = 65_536
"""From so many bytes of body on a request counts as large: some 16,000 tokens, more than a background call for a title
has, and less than a coding agent's first request."""


class Through(StrEnum):
    """The doors by which requests are counted."""

    GRPC = "grpc"
    HTTP = "http"
    GATEWAY = "gateway"
    ENVOY = "envoy"


class Untrimmed(StrEnum):
    """Why a request went on untrimmed. The values are public.

    `missed` says that trimming was missed, so that somebody should look at it: such requests are logged, and where they
    are many of the large ones, an alert fires. The others are as they should be, or have an alert of their own.
    """

    missed: bool

    def __new__(cls, value: str, missed: bool = False) -> Self:
        """Make a reason."""
        made = str.__new__(cls, value)
        made._value_ = value
        made.missed = missed
        return made

    NO_NEED = "no_need"
    """The prompt is within its marks, and no result was condensed, so nothing is due."""
    NO_PROMPT = "no_prompt"
    """The request holds no prompt: a list of models, a file, an embedding, an agent's own telemetry."""
    COUNTING = "counting"
    """Only the prompt's tokens are counted, and it is counted as it is."""
    OBSERVING = "observing"
    """The sidecar only observes; it would have trimmed."""
    BYPASSED = "bypassed"
    """The gateway asked to leave it alone."""
    PROTECTED_TEXT = "protected_text"
    """It is too large, and all that is left must stay, such as the system prompt and a user's words."""
    POLICY = "policy"
    """It is too large, and the policy allows to trim nothing more."""
    NOT_STASHABLE = "not_stashable"
    """It is too large, and the stash has no room for the originals, so they stay in the prompt."""
    BATCH = "batch"
    """It holds many prompts of unrelated runs, or the name of a file with them."""
    TEXT_PROMPT = "text_prompt"
    """Its prompt is one text without messages, so there are no items to trim."""
    UNKNOWN_PATH = "unknown_path", True
    """The path is no known API's, and the body may be a prompt."""
    WEBSOCKET = "websocket", True
    """It is a WebSocket, whose messages pass through."""
    STORED_BY_PROVIDER = "stored_by_provider", True
    """It goes on from a history that the provider holds, such as by `previous_response_id`."""
    SIGNED = "signed", True
    """A signature covers the body (AWS's SigV4)."""
    ENCODED = "encoded", True
    """The body is compressed in a way that is not known here, or is damaged."""
    UNBUFFERED = "unbuffered", True
    """Envoy does not give the whole body."""
    UNREADABLE = "unreadable", True
    """The body is no JSON, or not what its path's API takes."""
    TOO_LARGE = "too_large", True
    """A resource limit of the sidecar was reached."""
    OVERLOADED = "overloaded", True
    """The sidecar had no memory, no thread or no place for it now."""
    LATE = "late", True
    """The sidecar was not done in time, or nobody waited for it."""
    STOPPING = "stopping", True
    """The sidecar was stopping."""
    UNAUTHENTICATED = "unauthenticated", True
    """Envoy did not authenticate itself where it must."""
    INTERNAL = "internal", True
    """The sidecar failed; its log says where."""


MISSED: Final = tuple(reason for reason in Untrimmed if reason.missed)
"""The reasons by which trimming was missed."""
OUTCOMES: Final = (TRIMMED, *(reason.value for reason in Untrimmed))
"""What is done about requests, in metrics."""


@dataclass(frozen=True, slots=True)
class Handled:
    """What was done about a request that went on."""

    through: Through
    untrimmed: Untrimmed | None
    """None: its prompt was trimmed."""
    size: int = 0
    """Bytes of its body, as far as they are known."""
    recall: RecallOffer | None = None
    """Whether the model was offered tools for recall, or why not; None: it holds no prompt."""
    caller: str = ""
    run_id: str = ""
    """Of the caller's; empty: it is not known."""
    path: str = ""
    """Of its URL, without the query; empty: it has none."""

    @property
    def is_large(self) -> bool:
        """Whether it may be worth trimming. What the provider stores counts as large: its body has only what is new."""
        return self.size >= LARGE_BYTES or self.untrimmed is Untrimmed.STORED_BY_PROVIDER

    @property
    def outcome(self) -> str:
        """One of `OUTCOMES`."""
        return TRIMMED if self.untrimmed is None else self.untrimmed.value


def untrimmed_by(error: BaseException) -> Untrimmed:
    """Return why a request goes on untrimmed that could not be trimmed for this error."""
    return next((reason for kinds, reason in _BY_ERROR if isinstance(error, kinds)), Untrimmed.INTERNAL)


_BY_ERROR: Final = (
    ((OutOfMemory, MemoryError), Untrimmed.OVERLOADED),
    ((TooLarge,), Untrimmed.TOO_LARGE),
    ((InvalidRequest,), Untrimmed.UNREADABLE),
    ((CallCancelled, DeadlinePassed, TimeoutError), Untrimmed.LATE),
    ((Stopping,), Untrimmed.STOPPING),
    ((Unauthenticated,), Untrimmed.UNAUTHENTICATED),
)
"""The first that fits."""
