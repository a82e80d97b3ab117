"""One call of a provider, as telemetry is told of it: once, when its answer is over and what it counted is read.

What a provider has counted in a stream is read in a worker thread, behind the answer; the call has ended by then.
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
"""Times between two pieces of a stream that are kept before they are counted: a stream may have any number."""


class ProviderCall:
    """See the file. Thread-safe."""

    def __init__(self, observer: Observer, asked: ProviderAsked, states: ProviderStates) -> None:
        """Begin now; `states` hears how it ended."""
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
        """Of the answer."""
        self.error = ""
        """Why it failed; empty: it did not."""
        self.finish = ""
        """Why the model stopped; empty: it is not known."""
        self.hidden = False
        """Whether the answer was a turn that is answered here."""

    @property
    def failed(self) -> bool:
        """Whether the provider's answer failed before its model had stopped, as far as is known."""
        return bool(self.error) and not self.finish

    def sending(self) -> AbstractContextManager[object]:
        """Have the request that is sent within be this call's."""
        return self._observer.provider_sending(self._span)

    def answers(self, status: int) -> None:
        """Note that the headers of the answer have come."""
        self.status = status
        self._answered = perf_counter() - self._began

    def chunk(self) -> None:
        """Note that bytes of a stream have come."""
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
        """Note that the answer is over, as far as the provider is concerned; the first end counts."""
        self.error = self.error or error
        if self._took is None:
            self._took = perf_counter() - self._began

    def awaits(self) -> None:
        """Note that `counted` follows, whatever becomes of the answer."""
        self._awaits = True

    def counted(self, usage: ProviderUsage | None) -> None:
        """Note what the provider has counted; None: it did not say."""
        with self._lock:
            self._usage, self._awaits = usage, False
            tells = self._over
        if tells:
            self._tell()

    def over(self) -> None:
        """Note that nothing more is done about it, but that what it counted may still be read. To be called once."""
        self.ends()
        if self._gaps:
            self._count_gaps()
        with self._lock:
            self._over = True
            tells = not self._awaits
        if tells:
            self._tell()

    def _tell(self) -> None:
        answered = ProviderAnswered(
            self.status,
            self._took or 0.0,
            self._first,
            self._answered,
            usage=self._usage,
            finish=self.finish,
            hidden=self.hidden,
            error=self.error,
        )
        self._states.answered(self._asked, answered)
        self._observer.provider_answered(self._span, self._asked, answered)
