"""What the doors of one process share."""

from __future__ import annotations

from dataclasses import dataclass

from prompt_sidecar.calls.caller_names import CallerNames
from prompt_sidecar.calls.pool import InFlight, Pool
from prompt_sidecar.calls.refusals import Refusals
from prompt_sidecar.calls.tokens import Tokens
from prompt_sidecar.calls.use_cases import UseCases


@dataclass(frozen=True, slots=True)
class Shared:
    """Given to a door when it starts to serve."""

    use_cases: UseCases
    workers: Pool
    """The threads that run the use cases."""
    in_flight: InFlight
    """Calls at work: background work waits for them."""
    tokens: Tokens
    """Of the callers that may call; none: no token is needed."""
    names: CallerNames
    """Of callers, as settings give them."""
    refusals: Refusals
    """Logs refused calls."""

    def refused(self, method: str, error: BaseException, code: str, peer: str) -> None:
        """Count and log an error that ended a request, or that it went on without what it asked for."""
        self.use_cases.observer.failed(error)
        self.refusals.log(method, error, code, peer)
