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

Encrypted text (signatures, encrypted reasoning) has a factor g of its own, since no vocabulary counts it: real = f *
text + g * encrypted. From prompts of one mixture the two cannot be told apart, and a cut changes the mixture: it
removes old reasoning. So g stands at 1 until a report after a cut, with the one before it, gives two equations for the
two; f is then learned from what is left of a report when its encrypted text is taken off.

A moving factor moves the limit, and with it the fold's inputs. So it stands still within `DEAD_BAND`: about six moves
in a hundred calls, against one at each call, for errors that stay below 1 per cent at the median.
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
"""Bounds of a factor: no vocabulary in use takes half the tokens of o200k_base on what agents send, and the most that
was measured is 1.9 times as many (a recorded run of Claude Fable 5), to which the provider's framing adds."""
PLAUSIBLE: Final = 4.0
"""A ratio past this, or below its inverse, is no tokenizer's: it is not even remembered. Wider than the bounds of a
factor, as framing can double a prompt of a hundred tokens."""
WINDOW: Final = 5
"""Reports that the median is of: the fewest in which two false ones do no harm."""
NEUTRAL: Final = 2
"""Reports of the factor that was in force before, which stand in until there are `WINDOW`, of average weight: three
real ones outweigh them. That factor is 1, or the one of the model that the run was with before."""
FOLLOW_FROM: Final = 3
"""Reports from which the last is followed; before, the median alone, which the neutral ones hold back."""
BAND: Final = 0.05
"""How far, as a logarithm, the last ratio is followed from the median. Within a run successive ratios differ by less
than 2 per cent; 0.1 measures the same and lets a false report do twice the harm."""
DEAD_BAND: Final = 0.01
"""Share that the factor must be off by before it moves; 0.02 doubles the error, 0.005 the moves."""
HALF_WEIGHT_TOKENS: Final = 1_000
"""Tokens of a prompt that weighs half: framing of some hundred tokens distorts the ratio of smaller ones."""
LEAST_OPAQUE: Final = 0.25
MOST_OPAQUE: Final = 2.0
"""Bounds of the factor of encrypted text: 0.07 to 0.56 tokens a character, twice as far as has been measured."""
MIXTURE: Final = 0.1
"""How much the share of encrypted text must differ between two reports that its factor is told from. With less, an
error of 1 per cent in what the text takes would be one of more than 10 per cent in the factor."""
OPAQUE_WINDOW: Final = 3
"""Factors of encrypted text that the median is of: each cut tells one, and a false one does no harm to the next."""
MOST_KEYS: Final = 4_096
"""Factors kept: a few models each for a thousand callers, in about 2 MB."""
BOUND: Final = "calibration.factors"
"""What both are counted as when one is reached."""
KEY_BYTES: Final = 1_500
"""What a factor takes with the reports that it was made from."""
CALLER_KEYS: Final = 64
"""Factors kept for one caller, so that one who makes up names of models forgets his own factors and nobody else's."""


class Factors(NamedTuple):
    """What our count is multiplied with to be the provider's."""

    text: float = 1.0
    opaque: float = 1.0
    """For encrypted text."""


class Counted(NamedTuple):
    """One prompt as we counted it, without any factor, and as the provider did. Tokens."""

    text: int
    opaque: int
    """Of encrypted text."""
    real: int

    @property
    def share(self) -> float:
        """Share of encrypted text in our count."""
        return self.opaque / max(1, self.text + self.opaque)

    def ratio(self, opaque_factor: float) -> float:
        """What the text must be multiplied with."""
        left = self.real - opaque_factor * self.opaque
        return left / self.text if self.text > 0 and left > 0 else self.real / max(1, self.text + self.opaque)


def opaque_factor(one: Counted, other: Counted) -> float | None:
    """The factor of encrypted text that two prompts of different mixtures tell; None if theirs do not differ enough."""
    if abs(one.share - other.share) < MIXTURE:
        return None
    by = one.opaque * other.text - other.opaque * one.text
    return (one.real * other.text - other.real * one.text) / by if by else None


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
    opaque: float = 1.0
    """The factor of encrypted text."""
    reports: int = 0
    prior: float = 1.0
    """The factor that was in force before the first report."""
    recent: deque[Counted] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """The last one last."""
    mixtures: deque[float] = field(default_factory=lambda: deque(maxlen=OPAQUE_WINDOW))
    """Factors of encrypted text that cuts told."""

    def take(self, counted: Counted, before: Counted | None) -> None:
        self.reports += 1
        self.recent.append(counted)
        told = opaque_factor(before, counted) if before is not None else None
        if told is not None:
            self.mixtures.append(min(MOST_OPAQUE, max(LEAST_OPAQUE, told)))
            self.opaque = round(median(self.mixtures), 4)
        points = [(math.log(each.ratio(self.opaque)), _weight(each)) for each in self.recent]
        target = math.exp(_target(points, math.log(self.prior)))
        target = min(MOST_FACTOR, max(LEAST_FACTOR, target))
        if abs(target / self.factor - 1) > DEAD_BAND:
            self.factor = round(target, 4)


class Calibration:
    """The factors of all callers, kept for the process's life. Thread-safe; each call takes microseconds."""

    def __init__(self, most_keys: int = MOST_KEYS, reached: Callable[[str], None] = lambda _: None) -> None:
        """Begin with none; `most_keys` are kept, and of those the ones of the caller idle for longest go first.

        `reached` is told the name of the bound when one goes.
        """
        self._most = most_keys
        self._reached = reached
        self._lock = Lock()
        self._callers: OrderedDict[str, OrderedDict[tuple[str, str], _State]] = OrderedDict()
        self._keys = 0

    def __len__(self) -> int:
        """Factors kept."""
        return self._keys

    @property
    def kept_bytes(self) -> int:
        """What the factors take, estimated."""
        return KEY_BYTES * self._keys

    def factor(self, caller: str, model: str, format: str) -> float:
        """What to multiply our count with; 1.0 where nothing was reported."""
        with self._lock:
            state = self._find(caller, (model, format))
            return state.factor if state is not None else 1.0

    def factors(self, caller: str, model: str, format: str) -> Factors:
        """What to multiply our counts with, of text and of encrypted text."""
        with self._lock:
            state = self._find(caller, (model, format))
            return Factors(state.factor, state.opaque) if state is not None else Factors()

    def reports(self, caller: str, model: str, format: str) -> int:
        """Reports that were used for a factor."""
        with self._lock:
            state = self._find(caller, (model, format))
            return state.reports if state is not None else 0

    def report(
        self,
        caller: str,
        model: str,
        format: str,
        counted: Counted,
        *,
        before: Counted | None = None,
        told_with: Factors | None = None,
    ) -> Correction:
        """Learn from one prompt.

        Args:
            caller: whose factor it is: one caller's reports never touch another's.
            model: the model, by the name that prompts are sent with.
            format: the prompt's format; framing differs by it.
            counted: the prompt.
            before: the prompt of the same run and model that was reported before it.
            told_with: the factors that the estimate was told with, for its error; None: those that stand now.
        """
        real, raw = counted.real, counted.text + counted.opaque
        ratio = real / raw if raw > 0 else 0.0
        plausible = 1 / PLAUSIBLE <= ratio <= PLAUSIBLE
        with self._lock:
            state = self._find(caller, (model, format))
            if state is None:
                state = self._new(caller, (model, format)) if plausible else _State()
                if told_with is not None:
                    state.factor = state.prior = told_with.text
                    state.opaque = told_with.opaque
            stands = Factors(state.factor, state.opaque)
            if plausible:
                state.take(counted, before)
            told = stands if told_with is None else told_with
            estimate = counted.text * told.text + counted.opaque * told.opaque
            error = estimate / real - 1 if real > 0 else 0.0
            return Correction(stands.text, state.factor, error, plausible, state.reports)

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
            self._reached(BOUND)
        while self._keys > self._most:
            idle, theirs = next(iter(self._callers.items()))
            theirs.popitem(last=False)
            self._keys -= 1
            self._reached(BOUND)
            if not theirs:
                del self._callers[idle]
        return state


def _weight(counted: Counted) -> float:
    """How much a prompt counts: little if it is small."""
    raw = counted.text + counted.opaque
    return raw / (raw + HALF_WEIGHT_TOKENS)


def _target(recent: list[tuple[float, float]], prior: float) -> float:
    """The logarithm that the factor ought to have: the last ratio's, held to the median's neighbourhood.

    `recent` are logarithms of ratios, each with its weight, the last one last; `prior` is that of the factor before
    them.
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
