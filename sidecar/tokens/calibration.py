"""Estimates that correct themselves: what our count must be multiplied with to be the provider's.

Theory. A provider counts a prompt with its own vocabulary and puts its own framing around it: real = f * ours + c. On
recorded runs counted in four other vocabularies, f lies between 0.91 and 1.33, differs by up to 0.2 between two runs of
one vocabulary, and drifts within a run as prose gives way to code and logs. Successive prompts of a run share most of
their text, so the best forecast of the next ratio is the last one, and a long average is a worse one: medians over 5, 9
and 31 ratios err by up to 2, 4 and 8 per cent at the 95th percentile where all runs share a caller and vocabulary. A
line through the last prompts (Theil and Sen), which would tell f from c, does worse than the ratio alone, since
successive prompts lie too close together: c is a fraction of a per cent of the prompts whose size matters.

But the last report may be absurd: uncached tokens alone, another model's, a wrong sum. So the last ratio is followed no
further than `BAND` from the weighted median of the last `WINDOW`. One false report moves the factor by 5 per cent at
the most, for one call; two in five leave the median where it is. Before there are five, two neutral ones stand in:
nobody is believed at his first word. All is done on logarithms, so that twice and half weigh alike.

A moving factor moves the limit, and with it the fold's inputs. So it stands still within `DEAD_BAND`: about six moves
in a hundred calls, against one at each call, for errors that stay below 1 per cent at the median.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

LEAST_FACTOR: Final = 0.5
MOST_FACTOR: Final = 2.0
"""Bounds of a factor: no vocabulary in use takes half or twice the tokens of o200k_base on what agents send."""
PLAUSIBLE: Final = 4.0
"""A ratio past this, or below its inverse, is no tokenizer's: it is not even remembered. Wider than the bounds of a
factor, as framing can double a prompt of a hundred tokens."""
WINDOW: Final = 5
"""Reports that the median is of: the fewest in which two false ones do no harm."""
NEUTRAL: Final = 2
"""Neutral reports that stand in until there are `WINDOW`, of average weight: three real ones outweigh them."""
FOLLOW_FROM: Final = 3
"""Reports from which the last is followed; before, the median alone, which the neutral ones hold back."""
BAND: Final = 0.05
"""How far, as a logarithm, the last ratio is followed from the median. Within a run successive ratios differ by less
than 2 per cent; 0.1 measures the same and lets a false report do twice the harm."""
DEAD_BAND: Final = 0.01
"""Share that the factor must be off by before it moves; 0.02 doubles the error, 0.005 the moves."""
HALF_WEIGHT_TOKENS: Final = 1_000
"""Tokens of a prompt that weighs half: framing of some hundred tokens distorts the ratio of smaller ones."""
MOST_KEYS: Final = 4_096
"""Factors kept: a few models each for a thousand callers, in about 2 MB."""
CALLER_KEYS: Final = 64
"""Factors kept for one caller, so that one who makes up names of models forgets his own factors and nobody else's."""


@dataclass(frozen=True, slots=True)
class Correction:
    """What one report made of a factor."""

    factor_before: float
    factor_after: float
    error: float
    """The estimate's error as a share of the real tokens: 0.1 where it was 10 per cent too high."""
    used: bool
    """False: the report was implausible and changed nothing."""
    reports: int
    """Reports that were used for this factor so far."""


@dataclass(slots=True)
class _State:
    """One factor and what it was made from."""

    factor: float = 1.0
    reports: int = 0
    recent: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """Logarithms of the ratios, each with its weight; the last one last."""

    def take(self, ratio: float, weight: float) -> None:
        self.reports += 1
        self.recent.append((math.log(ratio), weight))
        target = math.exp(_target(self.recent))
        target = min(MOST_FACTOR, max(LEAST_FACTOR, target))
        if abs(target / self.factor - 1) > DEAD_BAND:
            self.factor = round(target, 4)


class Calibration:
    """The factors of all callers, kept for the process's life. Thread-safe; each call takes microseconds."""

    def __init__(self, most_keys: int = MOST_KEYS) -> None:
        """Begin with none; `most_keys` are kept, and of those the ones of the caller idle for longest go first."""
        self._most = most_keys
        self._lock = Lock()
        self._callers: OrderedDict[str, OrderedDict[tuple[str, str], _State]] = OrderedDict()
        self._keys = 0

    def __len__(self) -> int:
        """Factors kept."""
        return self._keys

    def factor(self, caller: str, model: str, format: str) -> float:
        """What to multiply our count with; 1.0 where nothing was reported."""
        with self._lock:
            state = self._find(caller, (model, format))
            return state.factor if state is not None else 1.0

    def reports(self, caller: str, model: str, format: str) -> int:
        """Reports that were used for a factor."""
        with self._lock:
            state = self._find(caller, (model, format))
            return state.reports if state is not None else 0

    def report(
        self, caller: str, model: str, format: str, estimated_raw: int, real: int, *, told_with: float | None = None
    ) -> Correction:
        """Learn from one prompt.

        Args:
            caller: whose factor it is: one caller's reports never touch another's.
            model: the model, by the name that prompts are sent with.
            format: the prompt's format; framing differs by it.
            estimated_raw: our count of the prompt, without any factor.
            real: the provider's count of the whole prompt.
            told_with: the factor that the estimate was told with, for its error; None: the one that stands now.
        """
        ratio = real / estimated_raw if estimated_raw > 0 else 0.0
        plausible = 1 / PLAUSIBLE <= ratio <= PLAUSIBLE
        with self._lock:
            state = self._find(caller, (model, format))
            if state is None:
                state = self._new(caller, (model, format)) if plausible else _State()
            before = state.factor
            if plausible:
                state.take(ratio, estimated_raw / (estimated_raw + HALF_WEIGHT_TOKENS))
            told = before if told_with is None else told_with
            error = estimated_raw * told / real - 1 if real > 0 else 0.0
            return Correction(before, state.factor, error, plausible, state.reports)

    def _find(self, caller: str, key: tuple[str, str]) -> _State | None:
        keys = self._callers.get(caller)
        state = keys.get(key) if keys is not None else None
        if keys is None or state is None:
            return None
        self._callers.move_to_end(caller)
        keys.move_to_end(key)
        return state

    def _new(self, caller: str, key: tuple[str, str]) -> _State:
        keys = self._callers.setdefault(caller, OrderedDict())
        self._callers.move_to_end(caller)
        state = keys[key] = _State()
        self._keys += 1
        if len(keys) > CALLER_KEYS:
            keys.popitem(last=False)
            self._keys -= 1
        while self._keys > self._most:
            idle, theirs = next(iter(self._callers.items()))
            theirs.popitem(last=False)
            self._keys -= 1
            if not theirs:
                del self._callers[idle]
        return state


def _target(recent: deque[tuple[float, float]]) -> float:
    """The logarithm that the factor ought to have: the last ratio's, held to the median's neighbourhood."""
    points = list(recent)
    if len(points) < WINDOW:
        average = sum(weight for _, weight in points) / len(points)
        points += [(0.0, average)] * NEUTRAL
    middle = weighted_median(points)
    if len(recent) < FOLLOW_FROM:
        return middle
    last, weight = recent[-1]
    reach = BAND * weight
    return min(middle + reach, max(middle - reach, last))


def weighted_median(points: list[tuple[float, float]]) -> float:
    """The value at which half the weight is passed; between two, their mean. `points` are values with their weights."""
    ordered = sorted(points)
    half = sum(weight for _, weight in ordered) / 2
    passed = 0.0
    for index, (value, weight) in enumerate(ordered):
        passed += weight
        if math.isclose(passed, half, rel_tol=1e-9) and index + 1 < len(ordered):
            return (value + ordered[index + 1][0]) / 2
        if passed > half:
            return value
    return ordered[-1][0]
