"""Calibration of token estimates: learning the factor between our count and the provider's.

Theory. A provider counts a prompt with its own vocabulary and adds its own framing: real = f * ours + c. On recorded
runs counted in four other vocabularies, f is between 0.91 and 1.33, differs by up to 0.2 between two runs of one
vocabulary, and drifts within a run as prose gives way to code and logs. Successive prompts of a run share most of their
text, so the best predictor of the next ratio is the last one, and a long average is a worse one: medians over 5, 9 and
31 ratios have errors of up to 2, 4 and 8 per cent at the 95th percentile where all runs share a caller and vocabulary.
A line through the last prompts (Theil and Sen), which would separate f from c, is worse than the ratio alone, since
successive prompts are too similar: c is a fraction of a per cent of the prompts whose size matters.

But the last report may be wrong: uncached tokens alone, another model's, a wrong sum. So the factor follows the last
ratio at most `BAND` from the weighted median of the last `WINDOW`. One false report moves the factor by at most 5 per
cent, for one call; two in five do not move the median. Until there are five, two neutral reports are added, so that the
first report alone changes little. All is computed on logarithms, so that twice and half have the same weight.

Encrypted text (signatures, encrypted reasoning) has a factor g of its own, since no vocabulary counts it: real = f *
text + g * encrypted. Prompts with the same share of encrypted text cannot separate the two, but a cut changes that
share when it removes old reasoning. So g is 1 until a report after a cut gives, with the one before it, two equations
for the two factors; f is then learned from the rest of a report after its encrypted text is subtracted.

A changing factor changes the limit, and with it the fold's inputs. So it does not change within `DEAD_BAND`: about six
changes in a hundred calls instead of one at each call, with errors below 1 per cent at the median.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from threading import Lock
from typing import Final, NamedTuple

LEAST_FACTOR: Final = 0.5
MOST_FACTOR: Final = 2.5
"""Bounds of a factor: no vocabulary in use needs half the tokens of o200k_base for agents' prompts, and the highest
measured ratio is 1.9 (a recorded run of Claude Fable 5), to which the provider's framing adds."""
PLAUSIBLE: Final = 4.0
"""A ratio above this, or below its inverse, is implausible and ignored. Wider than the bounds of a factor, as framing
can double a prompt of a hundred tokens."""
WINDOW: Final = 5
"""Reports in the median: the fewest with which two false ones do no harm."""
NEUTRAL: Final = 2
"""Neutral reports of average weight that are added until there are `WINDOW`; three real ones outweigh them. Their ratio
is the factor before them: 1, or the factor of the run's previous model."""
FOLLOW_FROM: Final = 3
"""Least reports with which the last ratio is followed; with fewer the median alone is used."""
BAND: Final = 0.05
"""Largest distance, as a logarithm, of the factor from the median towards the last ratio. Within a run successive
ratios differ by less than 2 per cent; 0.1 is no more accurate and doubles the effect of a false report."""
DEAD_BAND: Final = 0.01
"""Least relative error of the factor before it changes; 0.02 doubles the error, 0.005 the number of changes."""
HALF_WEIGHT_TOKENS: Final = 1_000
"""Tokens of a prompt with half the full weight: framing of some hundred tokens distorts the ratio of smaller ones."""
LEAST_OPAQUE: Final = 0.25
MOST_OPAQUE: Final = 2.0
"""Bounds of the factor of encrypted text: 0.07 to 0.56 tokens a character, twice the measured range."""
MIXTURE: Final = 0.1
"""Least difference in the share of encrypted text between two reports that its factor is computed from. With less, an
error of 1 per cent in the text's tokens would be one of more than 10 per cent in the factor."""
OPAQUE_WINDOW: Final = 3
"""Factors of encrypted text in the median: each cut adds one, and a single false one does no harm."""
MOST_KEYS: Final = 4_096
"""Most factors: a few models each for a thousand callers, in about 2 MB."""
BOUND: Final = "calibration.factors"
"""The name under which both limits are counted when one is reached."""
KEY_BYTES: Final = 1_500
"""Bytes of a factor with the reports that it was made from."""
CALLER_KEYS: Final = 64
"""Most factors of one caller, so that a caller who makes up model names evicts only its own factors."""


ROUNDING: Final = 1e-6
"""Part of a token: the most by which a product of floats may be too large, so that a whole number is not rounded up to
the next."""


class Factors(NamedTuple):
    """Factors from our token count to the provider's."""

    text: float = 1.0
    opaque: float = 1.0
    """For encrypted text."""


@dataclass(frozen=True, slots=True)
class InForce:
    """The limit of the next prompt."""

    limit: int
    """The announced limit: in the provider's tokens, by the factor."""
    raw: int
    """The fold's limit: in our tokens."""


class CountedPrompt(NamedTuple):
    """One prompt's tokens by our count, without any factor, and by the provider's."""

    text: int
    opaque: int
    """Tokens of encrypted text."""
    real: int

    @property
    def share(self) -> float:
        """Share of encrypted text in our count."""
        return self.opaque / max(1, self.text + self.opaque)

    def ratio(self, opaque_factor: float) -> float:
        """The factor for the text that yields the provider's count."""
        left = self.real - opaque_factor * self.opaque
        return left / self.text if self.text > 0 and left > 0 else self.real / max(1, self.text + self.opaque)


def opaque_factor(one: CountedPrompt, other: CountedPrompt) -> float | None:
    """The factor of encrypted text by two prompts; None if their shares of encrypted text are too similar."""
    if abs(one.share - other.share) < MIXTURE:
        return None
    by = one.opaque * other.text - other.opaque * one.text
    return (one.real * other.text - other.real * one.text) / by if by else None


@dataclass(frozen=True, slots=True)
class Correction:
    """The effect of one report on a factor."""

    factor_before: float
    factor_after: float
    error: float
    """The estimate's error as a share of the real tokens: 0.1 means 10 per cent too high."""
    used: bool
    """False: the report was implausible and changed nothing."""
    reports: int
    """Number of reports used for this factor so far."""


@dataclass(slots=True)
class _Factor:
    """One factor and the reports that it is computed from."""

    factor: float = 1.0
    opaque: float = 1.0
    """The factor of encrypted text."""
    reports: int = 0
    prior: float = 1.0
    """The factor before the first report."""
    recent: deque[CountedPrompt] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """Oldest first."""
    mixtures: deque[float] = field(default_factory=lambda: deque(maxlen=OPAQUE_WINDOW))
    """Factors of encrypted text, one from each cut."""

    def take(self, counted: CountedPrompt, before: CountedPrompt | None) -> None:
        self.reports += 1
        self.recent.append(counted)
        found = opaque_factor(before, counted) if before is not None else None
        if found is not None:
            self.mixtures.append(min(MOST_OPAQUE, max(LEAST_OPAQUE, found)))
            self.opaque = round(median(self.mixtures), 4)
        points = [(math.log(each.ratio(self.opaque)), _weight(each)) for each in self.recent]
        target = math.exp(_target(points, math.log(self.prior)))
        target = min(MOST_FACTOR, max(LEAST_FACTOR, target))
        if abs(target / self.factor - 1) > DEAD_BAND:
            self.factor = round(target, 4)


class Calibration:
    """The factors of all callers, for the life of the process. Thread-safe; each call takes microseconds."""

    def __init__(self, most_keys: int = MOST_KEYS, reached: Callable[[str], None] = lambda _: None) -> None:
        """Begin without factors; beyond `most_keys`, factors of the caller idle for longest are evicted first.

        `reached` is called with the limit's name when one is evicted.
        """
        self._most = most_keys
        self._reached = reached
        self._lock = Lock()
        self._callers: OrderedDict[str, OrderedDict[tuple[str, str], _Factor]] = OrderedDict()
        self._keys = 0

    def __len__(self) -> int:
        """Return the number of factors."""
        return self._keys

    @property
    def kept_bytes(self) -> int:
        """Bytes of the factors, estimated."""
        return KEY_BYTES * self._keys

    def factor(self, caller: str, model: str, format: str) -> float:
        """Return the factor for our count of text; 1.0 without reports."""
        with self._lock:
            state = self._find(caller, (model, format))
            return state.factor if state is not None else 1.0

    def factors(self, caller: str, model: str, format: str) -> Factors:
        """Return the factors for our counts of text and of encrypted text; 1.0 without reports."""
        with self._lock:
            state = self._find(caller, (model, format))
            return Factors(state.factor, state.opaque) if state is not None else Factors()

    def reports(self, caller: str, model: str, format: str) -> int:
        """Return the number of reports used for a factor."""
        with self._lock:
            state = self._find(caller, (model, format))
            return state.reports if state is not None else 0

    def report(
        self,
        caller: str,
        model: str,
        format: str,
        counted: CountedPrompt,
        *,
        before: CountedPrompt | None = None,
        estimated_with: Factors | None = None,
    ) -> Correction:
        """Learn from one prompt.

        Args:
            caller: the factor's owner; one caller's reports never change another's factors.
            model: the model, by the name that prompts are sent with.
            format: the prompt's format; framing differs by it.
            counted: the prompt.
            before: the prompt of the same run and model that was reported before it.
            estimated_with: the factors of the estimate that was reported to the agent, for its error; None: the current
                ones.
        """
        real, raw = counted.real, counted.text + counted.opaque
        ratio = real / raw if raw > 0 else 0.0
        plausible = 1 / PLAUSIBLE <= ratio <= PLAUSIBLE
        with self._lock:
            state = self._find(caller, (model, format))
            if state is None:
                state = self._new(caller, (model, format)) if plausible else _Factor()
                if estimated_with is not None:
                    state.factor = state.prior = estimated_with.text
                    state.opaque = estimated_with.opaque
            current = Factors(state.factor, state.opaque)
            if plausible:
                state.take(counted, before)
            used = current if estimated_with is None else estimated_with
            estimate = counted.text * used.text + counted.opaque * used.opaque
            error = estimate / real - 1 if real > 0 else 0.0
            return Correction(current.text, state.factor, error, plausible, state.reports)

    def _find(self, caller: str, key: tuple[str, str]) -> _Factor | None:
        keys = self._callers.get(caller)
        state = keys.get(key) if keys is not None else None
        if keys is None or state is None:
            return None
        self._callers.move_to_end(caller)
        keys.move_to_end(key)
        return state

    def _new(self, caller: str, key: tuple[str, str]) -> _Factor:
        keys = self._callers.setdefault(caller, OrderedDict())
        self._callers.move_to_end(caller)
        state = keys[key] = _Factor()
        self._keys += 1
        if len(keys) > CALLER_KEYS:
            keys.popitem(last=False)
            self._keys -= 1
            self._reached(BOUND)
        while self._keys > self._most:
            idle, theirs = next(iter(self._callers.items()))
            theirs.popitem(last=False)
            self._keys -= 1
            self._reached(BOUND)
            if not theirs:
                del self._callers[idle]
        return state


def _weight(counted: CountedPrompt) -> float:
    """Return the weight of a prompt, which is low if it is small."""
    raw = counted.text + counted.opaque
    return raw / (raw + HALF_WEIGHT_TOKENS)


def _target(recent: list[tuple[float, float]], prior: float) -> float:
    """Return the factor's target logarithm: that of the last ratio, within `BAND` of the median.

    `recent` are logarithms of ratios with their weights, oldest first; `prior` is that of the factor before them.
    """
    points = list(recent)
    if len(points) < WINDOW:
        average = sum(weight for _, weight in points) / len(points)
        points += [(prior, average)] * NEUTRAL
    middle = weighted_median(points)
    if len(recent) < FOLLOW_FROM:
        return middle
    last, weight = recent[-1]
    reach = BAND * weight
    return min(middle + reach, max(middle - reach, last))


def weighted_median(points: list[tuple[float, float]]) -> float:
    """Return the weighted median of values with weights; the mean of two values if it is between them."""
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


def calibrated_tokens(raw: int, factor: float) -> int:
    """Return raw tokens in the provider's tokens: multiplied with the factor, rounded up."""
    return math.ceil(raw * factor - ROUNDING)
