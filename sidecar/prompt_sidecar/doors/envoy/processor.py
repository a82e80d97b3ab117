"""Processes one request of the Envoy door in a worker thread.

The core is called, and its answer or failure is turned into messages to Envoy. A request continues unchanged whenever
the core cannot answer; only refusals of the guard or of a ceiling end it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Final

from prompt_sidecar.answers.base import Dialect
from prompt_sidecar.answers.reported_usage import usage_call
from prompt_sidecar.answers.restoring import Restore
from prompt_sidecar.answers.table import DIALECTS
from prompt_sidecar.calls import headers as names
from prompt_sidecar.calls.checks import checked_run_id
from prompt_sidecar.calls.provider_errors import error_body, error_headers, http_status, is_final
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.calls.use_cases import Check
from prompt_sidecar.doors.envoy import messages
from prompt_sidecar.doors.envoy.identity import Identities, Identity
from prompt_sidecar.errors import (
    CallCancelled,
    DeadlinePassed,
    GuardUnread,
    InvalidRequest,
    OutOfMemory,
    RunUnknown,
    SidecarError,
    TooLarge,
)
from prompt_sidecar.facts.envoy_calls import EnvoyOutcome
from prompt_sidecar.facts.guard_calls import MaskCall, SendingDoor, Unread
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.facts.untrimmed import Handled, Through, Untrimmed, untrimmed_by
from prompt_sidecar.facts.usage_calls import UsageCall
from prompt_sidecar.process.logs import frames
from prompt_sidecar.prompt.members import Members, NotJson, prompt_format
from prompt_sidecar.providers.table import PathFound
from prompt_sidecar.providers.usage import ProviderUsage

_RECALL: Final = frozenset({"mcp", "tools"})
_WINDOW_DIGITS: Final = 8
METHOD: Final = "envoy.service.ext_proc.v3.ExternalProcessor/Process"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProcessedRequest:
    """The answer to Envoy about a request, and data for the report of its response."""

    outcome: EnvoyOutcome
    reply: bytes
    """A serialised ProcessingResponse."""
    identity: Identity | None = None
    revision: bytes = b""
    headers: Mapping[str, str] | None = None
    """Headers to add to the response: what the sidecar did."""
    restore: Restore | None = None
    """Restores masks in the response; None if there is nothing to restore."""
    handled: Handled | None = None
    """What was done about the request; None if it is not forwarded, or is not trimmed."""
    untrimmed: Untrimmed | None = None
    """Why it is not trimmed; None if the outcome says it."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Asks for the guard to search this body, which is not a prompt to be trimmed."""

    body: bytes
    passed: ProcessedRequest
    """The answer to Envoy if the body continues unchanged."""
    why: Unread | None = None
    """Why the body cannot be read; None if it may be readable."""
    signed: bool = False
    """Whether a signature covers the body."""


class Processor:
    """Processes the requests of exchanges. Thread-safe."""

    def __init__(self, shared: DoorServices, identities: Identities) -> None:
        self._use_cases = shared.use_cases
        self._shared = shared
        self._identities = identities

    def trim(
        self, path: PathFound, headers: Mapping[str, str], body: bytes, peer: str, check: Callable[[], None]
    ) -> ProcessedRequest:
        """Trim a request's body; `peer` is the name that Envoy authenticated as, a part of the run's owner."""
        found: list[Identity] = []

        def read(_: Check) -> TrimCall:
            found.append(self._identities.of(path.format, headers, body, peer))
            return TrimCall(
                caller=found[0].caller,
                run_id=found[0].run_id,
                format=path.format,
                body=body,
                model=path.model,
                context_window=_window(headers),
                pinned=names.pinned(headers, lambda: _messages(DIALECTS[path.format], body)),
                recall_unavailable=headers.get(names.RECALL, "").strip().lower() not in _RECALL,
                accept_bytes=self._shared.options.max_message_bytes,
            )

        def write(call: TrimCall, answer: TrimAnswer) -> ProcessedRequest:
            caller, run_id = found[0].caller, found[0].run_id
            recall = RecallOffer.UNAVAILABLE if call.recall_unavailable else RecallOffer.OFFERED
            restore = self._use_cases.restores(caller, run_id) if answer.guard.restorable else None
            return ProcessedRequest(
                EnvoyOutcome.ANSWERED,
                messages.request_body(answer.prompt.body, plain=restore is not None),
                found[0],
                answer.prompt.revision,
                {names.RUN: run_id, **names.facts(answer), **names.handled(answer.untrimmed, recall)},
                restore,
                Handled(Through.ENVOY, answer.untrimmed, len(body), recall, caller, run_id),
            )

        try:
            return self._use_cases.trim(body, read, check, write)
        except Exception as error:  # noqa: BLE001 - whatever it is, the request must go on
            caller = self._identities.caller(headers, peer)
            if isinstance(error, InvalidRequest) and self._use_cases.runs.guarding.unread(caller):
                return self._masked(path, headers, body, caller, check)
            return self._failed(path.format, error, caller)

    def guards(self, headers: Mapping[str, str], peer: str) -> bool:
        """Return whether no body of a request with these headers may be forwarded unread."""
        return bool(self._use_cases.runs.guarding.unread(self._identities.caller(headers, peer)))

    def guard(self, step: Guard, headers: Mapping[str, str], peer: str, check: Callable[[], None]) -> ProcessedRequest:
        """Have the guard search a body that is not a prompt; it continues masked, unchanged, or not at all."""
        caller = self._identities.caller(headers, peer)
        try:
            if step.why is not None:
                self._use_cases.left_unread(SendingDoor.ENVOY, caller, step.why)
                return step.passed
            if not step.body.strip():
                return step.passed
            call = MaskCall(caller, step.body, _run(headers))
            made = self._use_cases.mask(SendingDoor.ENVOY, call, check, signed=step.signed)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing goes on that must not
            return self._failed("", error, caller)
        return step.passed if made is step.body else ProcessedRequest(step.passed.outcome, messages.request_body(made))

    def left(
        self, headers: Mapping[str, str], peer: str, format_name: str, otherwise: ProcessedRequest
    ) -> ProcessedRequest:
        """Return the answer for a request that the guard could not search: the sidecar was stopping, busy, or failed.

        `otherwise`: the answer if the guard does not have to search it.
        """
        caller = self._identities.caller(headers, peer)
        if not self._use_cases.runs.guarding.unread(caller):
            return otherwise
        try:
            self._use_cases.left_unread(SendingDoor.ENVOY, caller, Unread.FAILED)
        except GuardUnread as error:
            return self._refused(format_name, error)
        return otherwise

    def report(self, identity: Identity, revision: bytes, usage: ProviderUsage | None) -> None:
        """Report the provider's usage; None if the call failed."""
        caller, run_id = identity.caller, identity.run_id
        failed = UsageCall(caller, run_id, failed=True, revision=revision)
        try:
            call = failed if usage is None else usage_call(usage, caller, run_id, revision)
            self._use_cases.report_usage(call, _waits)
        except RunUnknown:
            pass  # the run was ended meanwhile
        except Exception as error:  # noqa: BLE001 - the response is with the agent; nobody waits for this
            _log.error("a report of usage failed: %s", frames(error))

    def _masked(
        self,
        path: PathFound,
        headers: Mapping[str, str],
        body: bytes,
        caller: str,
        check: Callable[[], None],
    ) -> ProcessedRequest:
        """Mask a body that is not a prompt of its path's format."""
        call = MaskCall(caller, body, _run(headers), prompt_format(path.format, body))
        try:
            made = self._use_cases.mask(SendingDoor.ENVOY, call, check)
        except Exception as error:  # noqa: BLE001 - as in `guard`
            return self._failed(path.format, error, caller)
        return ProcessedRequest(EnvoyOutcome.INVALID, messages.request_body(None if made is body else made))

    def _failed(self, format_name: str, error: Exception, caller: str) -> ProcessedRequest:
        outcome = _outcome(error)
        if outcome is EnvoyOutcome.FAILED:
            _log.error("a prompt was not trimmed, incident %s: %s", secrets.token_hex(6), frames(error))
        elif outcome is not EnvoyOutcome.LATE:
            code = error.status if isinstance(error, SidecarError) else "INTERNAL"
            self._shared.refusals.log(METHOD, error, code, "envoy")
        if outcome is EnvoyOutcome.REFUSED:
            assert isinstance(error, SidecarError)
            return self._refused(format_name, error)
        if self._use_cases.runs.guarding.unread(caller):
            try:
                self._use_cases.left_unread(SendingDoor.ENVOY, caller, Unread.FAILED)
            except GuardUnread as unread:
                return self._refused(format_name, unread)
        return ProcessedRequest(outcome, messages.request_body(None), untrimmed=untrimmed_by(error))

    @staticmethod
    def _refused(format_name: str, error: SidecarError) -> ProcessedRequest:
        status = http_status(error)
        body = error_body(format_name, status, error.message, error.reason)
        reply = messages.immediate(status, error_headers(format_name, status), body, error.reason.lower())
        return ProcessedRequest(EnvoyOutcome.REFUSED, reply)


def _run(headers: Mapping[str, str]) -> str:
    """Return the run that the agent's header names; empty if there is none, or no valid one."""
    try:
        return checked_run_id(headers[names.RUN]) if names.RUN in headers else ""
    except InvalidRequest:
        return ""


def _window(headers: Mapping[str, str]) -> int:
    """Return the window that the agent's header states; 0 if there is none, or no plausible one."""
    text = headers.get(names.WINDOW, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _WINDOW_DIGITS else 0


def _messages(dialect: Dialect, body: bytes) -> int:
    """Return the number of a body's messages; 0 if it is not JSON."""
    try:
        return sum(1 for _ in dialect.entries(Members(body)))
    except NotJson:
        return 0


def until(ends: float, stopped: Callable[[], bool]) -> Callable[[], None]:
    """Return a check that raises when Envoy has stopped waiting, or at the time `ends` (of `monotonic`)."""

    def check() -> None:
        if stopped():
            raise CallCancelled("Envoy has ended the stream; what was done so far is kept and not done again")
        if monotonic() >= ends:
            raise DeadlinePassed("envoy.patience is over; what was done so far is kept and not done again")

    return check


def _waits() -> None:
    """Do nothing: a report is short."""


def _outcome(error: Exception) -> EnvoyOutcome:
    if is_final(error):
        return EnvoyOutcome.REFUSED
    if isinstance(error, (CallCancelled, DeadlinePassed)):
        return EnvoyOutcome.LATE
    if isinstance(error, (TooLarge, OutOfMemory, MemoryError)):
        return EnvoyOutcome.TOO_LARGE
    return EnvoyOutcome.INVALID if isinstance(error, InvalidRequest) else EnvoyOutcome.FAILED
