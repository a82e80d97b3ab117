"""One call of a provider, reported to telemetry once: when its answer has ended and its usage is read.

The usage in a stream is read in a worker thread after the answer; the call has ended by then.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Final

from prompt_sidecar.calls.provider_states import ProviderStates
from prompt_sidecar.facts.http_calls import ProviderAnswered, ProviderAsked
from prompt_sidecar.providers.usage import ProviderUsage
from prompt_sidecar.telemetry.observer import Observer

MOST_GAPS: Final = 256
"""Times between two pieces of a stream that are kept before they are added to the metric: a stream may have any
number."""


class ProviderCall:
    """One call of a provider, measured. See the file. Thread-safe."""

    def __init__(self, observer: Observer, asked: ProviderAsked, states: ProviderStates) -> None:
        """Begin the call now; `states` is notified how it ended."""
        self._states = states
        self._observer = observer
        self._asked = asked
        self._began = perf_counter()
        self._lock = threading.Lock()
        self._usage: ProviderUsage | None = None
        self._first: float | None = None
        self._answered: float | None = None
        self._last = 0.0
        self._gaps: list[float] = []
        self._took: float | None = None
        self._awaits = self._over = False
        self._span = observer.provider_asked(asked)
        self.status = 0
        """The response's status."""
        self.error = ""
        """Why the call failed; empty if it did not."""
        self.finish = ""
        """Why the model stopped; empty if not known."""
        self.hidden = False
        """Whether the answer was a hidden turn."""

    @property
    def failed(self) -> bool:
        """Whether the answer is known to have failed before its model stopped."""
        return bool(self.error) and not self.finish

    def sending(self) -> AbstractContextManager[object]:
        """Return a context in which the request that is sent belongs to this call."""
        return self._observer.provider_sending(self._span)

    def answers(self, status: int) -> None:
        """Note that the headers of the answer have arrived."""
        self.status = status
        self._answered = perf_counter() - self._began

    def chunk(self) -> None:
        """Note that bytes of a stream have arrived."""
        now = perf_counter()
        if self._first is None:
            self._first = now - self._began
        else:
            self._gaps.append(now - self._last)
            if len(self._gaps) >= MOST_GAPS:
                self._count_gaps()
        self._last = now

    def _count_gaps(self) -> None:
        gaps, self._gaps = self._gaps, []
        self._observer.provider_streamed(self._asked, gaps)

    def ends(self, error: str = "") -> None:
        """Note that the provider has finished its answer; only the first such call counts."""
        self.error = self.error or error
        if self._took is None:
            self._took = perf_counter() - self._began

    def awaits(self) -> None:
        """Note that `counted` will be called, however the answer ends."""
        self._awaits = True

    def counted(self, usage: ProviderUsage | None) -> None:
        """Note the usage that the provider reported; None if it reported none."""
        with self._lock:
            self._usage, self._awaits = usage, False
            tells = self._over
        if tells:
            self._tell()

    def over(self) -> None:
        """Note that the call is finished, but that its usage may still be read. To be called once."""
        self.ends()
        if self._gaps:
            self._count_gaps()
        with self._lock:
            self._over = True
            tells = not self._awaits
        if tells:
            self._tell()

    def _tell(self) -> None:
        usage = self._usage
        answered = ProviderAnswered(
            self.status,
            self._took or 0.0,
            self._first,
            self._answered,
            usage=usage,
            finish=self.finish,
            hidden=self.hidden,
            error=self.error,
            input_tokens=usage.whole_input(cached_apart=self._asked.cached_apart) if usage is not None else None,
        )
        self._states.answered(self._asked, answered)
        self._observer.provider_answered(self._span, self._asked, answered)
