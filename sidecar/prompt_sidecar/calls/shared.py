"""Services that the doors of one process share: callers, TLS files, threads, memory, the use cases, and readiness.

They belong to no door, so a process may have any combination of doors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from prompt_sidecar.calls.call_pool import CallPool
from prompt_sidecar.calls.caller_names import CallerNames
from prompt_sidecar.calls.housekeeping import Housekeeper
from prompt_sidecar.calls.indexing import Indexer
from prompt_sidecar.calls.memory import MemoryGate
from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.pool import InFlight
from prompt_sidecar.calls.provider_states import ProviderStates
from prompt_sidecar.calls.readiness import Readiness, State
from prompt_sidecar.calls.refusals import LINES, Refusals
from prompt_sidecar.calls.tls import TlsFiles
from prompt_sidecar.calls.tokens import Tokens, TokensError, read_tokens
from prompt_sidecar.calls.use_cases import UseCases
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.process import cgroups
from prompt_sidecar.process.allocator import give_back
from prompt_sidecar.process.logs import Once
from prompt_sidecar.process.starting import StartError
from prompt_sidecar.telemetry.observer import Observer

_END_SECONDS: Final = 2.0
"""Seconds that a stop waits for one slice of housekeeping and of indexing each."""

_log = logging.getLogger(__name__)


class DoorServices:
    """Services shared by all doors. Doors get it when they are created, and use it from `start` to `stop`.

    Raises:
        StartError: a TLS file cannot be used.
        TokensError: the tokens file cannot be used.
    """

    def __init__(
        self,
        options: ServerOptions,
        observer: Observer | None = None,
        refusals: Refusals | None = None,
        names: CallerNames | None = None,
    ) -> None:
        """Read the files. `refusals` logs refused calls; None: at the default rate. `names`: of callers."""
        self.options = options
        self.observer = observer or Observer()
        """Receives the facts of each call."""
        self.refusals = refusals or Refusals(LINES)
        self.names = names or CallerNames()
        self.tokens = Tokens(read_tokens(options.tokens_file) if options.tokens_file else {})
        """Tokens of the callers that are admitted; empty if no token is required."""
        self.tls = TlsFiles(options) if options.tls_certificate else None
        """None without TLS."""
        self.in_flight = InFlight()
        """Calls in flight: background work waits for them."""
        self.workers = CallPool(options.workers, options.running_calls, "call", waited=self.observer.waited)
        """The threads that run the use cases."""
        self.readiness = Readiness()
        self.provider_states = ProviderStates()
        """Logs failing providers."""
        self.once = Once()
        """Logs, once each, events that may occur at each request."""
        self.calls: Callable[[], int] = lambda: 0
        """The number of calls in progress, for metrics."""
        self.buffers: dict[str, Callable[[], int]] = {}
        """Bytes of a door's other buffers, by name in metrics."""
        self.readers: list[Callable[[], str]] = []
        """Functions that read a file again and return what changed."""
        if options.tokens_file:
            self.readers.append(lambda: self.tokens.replace(read_tokens(options.tokens_file)))
        if self.tls is not None:
            self.readers.append(self.tls.reload)
        self.use_cases: UseCases
        """Set by `start`."""
        self._background: list[Indexer | Housekeeper] = []

    def start(self, runs: Runs) -> None:
        """Create the use cases of `runs`, and start the background threads."""
        memory = MemoryGate(runs.limits.process_bytes)
        indexer = Indexer(runs.work_off, self.in_flight)
        self._background.append(indexer)
        self.use_cases = UseCases(runs, memory, self.observer, indexer.wake)
        self._background.append(Housekeeper(runs, memory, self.refusals, self.options.sweep_interval))
        self.observer.watch(
            runs.totals,
            lambda: self.calls(),  # noqa: PLW0108 - a door may set another
            memory.figures,
            buffers=lambda: {name: size() for name, size in self.buffers.items()},
            cpu=cgroups.processor,
        )

    def load(self, load: Callable[[], None], warm: Callable[[], None]) -> None:
        """Load what calls need, and warm up the first threads that serve calls.

        `load` runs in a thread that serves calls, because the tokenizer caches data per thread. Early calls wait for it
        themselves. Then `warm` runs once in each of the first threads.
        """
        self.workers.start(load).result()
        self.workers.warm(warm, self.options.running_calls + 1)
        give_back()
        self.use_cases.memory.settle()

    def drain(self) -> None:
        """Report that the process is stopping, and start no further background work."""
        self.readiness.become(State.DRAINING)
        for each in self._background:
            each.end()

    def stop(self, grace: float = 0) -> None:
        """Stop the threads, after all doors have stopped; work that no caller waits for has `grace` seconds to finish.

        Such work is the report of what the last answers cost.
        """
        self.workers.wait_for_none(grace)
        self.refusals.log_omitted(at_once=True)
        for each in self._background:
            each.join(_END_SECONDS)
        self.workers.shutdown(wait=False, cancel_futures=True)

    def reload(self) -> Sequence[str]:
        """Read the tokens and the TLS files again; return what changed, one sentence for each.

        A file that cannot be used is logged as an error, and the previous content stays in use. A removed token is
        refused from the next call on. Open connections keep their certificates.
        """
        changes: list[str] = []
        for read in self.readers:
            try:
                changes.append(read())
            except (TokensError, StartError) as error:
                _log.error("%s; what was read before stays in use", error)
        return changes

    def refused(self, method: str, error: BaseException, code: str, peer: str) -> None:
        """Count and log an error that ended a request, or made it continue without a part of what it asked for."""
        self.observer.failed(error)
        self.refusals.log(method, error, code, peer)
