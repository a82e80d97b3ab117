"""How long the phases of a call take; time spent on counting is not part of the other phases.

Only measured: no decision reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from prompt_sidecar.facts.trim_calls import Phases
from prompt_sidecar.tokens import Counter


class Stopwatch:
    """Measures one call. Token counting goes through it, so that counting is a phase of its own."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._marks = [perf_counter()]
        self._counted = [0.0]

    def counting(self, encoding: str, check: Callable[[], None] | None = None) -> Callable[[str], int]:
        """Return a function that counts in an encoding; `check` is called now and then and may raise."""

        def count(text: str) -> int:
            start = perf_counter()
            tokens = self._counter.count(text, encoding, check)
            self._counted[-1] += perf_counter() - start
            return tokens

        return count

    def counting_many(
        self, encoding: str, check: Callable[[], None] | None = None
    ) -> Callable[[Sequence[str]], Sequence[int]]:
        """Return a function that counts each of several texts."""

        def count_many(texts: Sequence[str]) -> Sequence[int]:
            start = perf_counter()
            counts = self._counter.count_many(texts, encoding, check)
            self._counted[-1] += perf_counter() - start
            return counts

        return count_many

    def mark(self) -> None:
        """End a phase and begin the next one."""
        self._marks.append(perf_counter())
        self._counted.append(0.0)

    def phases(self) -> Phases:
        """Return the phases of a call that marked the ends of scan, trim and encode."""
        spans = [end - start for start, end in zip(self._marks, self._marks[1:], strict=False)]
        scan, trim, encode = (span - counted for span, counted in zip(spans, self._counted, strict=False))
        return Phases(scan, sum(self._counted), trim, encode)
