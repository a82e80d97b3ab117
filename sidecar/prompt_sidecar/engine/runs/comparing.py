"""One prompt next to never trimming: by estimates when it is returned, by the provider's counts once they are reported.

An estimate is wrong in two ways: the provider counts tokens differently, and its cache may lack what it could have. A
report corrects both for the prompt that was sent. Nobody has counts for the other prompt, that of never trimming. It is
the same conversation at the same time at the same provider, so what the report shows holds for it too:

    size     the provider counted r times our estimate, so it would have counted the other prompt as r times its own
    price    tokens that were new to the cache were written to it or not: in the same proportion
    cache    of what both sides were expected to find in the cache, the same share was there

The last is evidence, and not always of the same thing. Less was read than expected because the time to live was over,
another replica answered, or caching is off: then the untrimmed prompt would have been cold as well, and a comparison
that left it warm would blame trimming for a pause of the agent. But where the sidecar itself rewrote what the prompt
before held, the miss may be its doing: providers look for cached prefixes at some places only, which a cut moves.
Such a prompt says nothing about the other side, which stays as warm as it was estimated. What falls short by no more
than the smallest prefix that providers cache is missing on both sides token for token. More than expected was read
where another run had sent the same beginning, or where this process does not know the prompt before: then of what was
expected to be new the same share was there on the other side too.

Where the sidecar only observes, it is the untrimmed prompt that was sent and counted, and the other is what it would
have returned.

A prompt that the provider refused costs nothing, and the untrimmed one, which is no smaller, would have been refused
as well: it is on neither side. So is one whose provider failed, since nothing shows that it cost anything, and one
that turns out larger than the window by the report's measure. The model's
answers are on neither side: they are paid in full either way, cached or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from prompt_sidecar.facts.comparison import Bill, Comparability, Compared
from prompt_sidecar.facts.money import ModelPrice
from prompt_sidecar.tokens.calibration import PLAUSIBLE

SMALLEST_PREFIX: Final = 4_096
"""Tokens: the largest of the smallest prefixes that providers cache (Anthropic's for some models; others begin at 1,024
and go on in blocks of at most that)."""
NEITHER: Final = Compared(Comparability.REFUSED, Bill(), Bill())
"""The comparison of a prompt that was refused: it costs nothing on either side."""
FAILED: Final = Compared(Comparability.FAILED, Bill(), Bill())
"""The comparison of a prompt whose provider failed: it costs nothing on either side."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A prompt's size in the provider's tokens."""

    tokens: int
    kept: int
    """Tokens of it that the previous prompt began with too, on the same side."""

    def times(self, ratio: float) -> Extent:
        """Return the size multiplied with a ratio."""
        return Extent(round(self.tokens * ratio), round(self.kept * ratio))


@dataclass(frozen=True, slots=True)
class Sides:
    """A prompt on both sides of the comparison, by estimates."""

    returned: Extent
    untrimmed: Extent
    room: int
    """Tokens that the window leaves for an untrimmed prompt."""
    recalls: bool = False
    """Whether the model was called only because of the sidecar's own tools."""
    rewritten: bool = False
    """Whether the sidecar changed what the previous prompt held."""
    observed: bool = False
    """Whether the untrimmed prompt was sent, as the sidecar only observes."""
    price: ModelPrice | None = None

    @property
    def sent(self) -> Extent:
        """The size of the prompt that was sent."""
        return self.untrimmed if self.observed else self.returned


@dataclass(frozen=True, slots=True)
class ReportedTokens:
    """The provider's counts for the prompt that was sent. A count is None if it was not reported."""

    tokens: int
    """Input tokens, cached ones included."""
    cached: int | None = None
    written: int | None = None
    price: ModelPrice | None = None
    """The price of the model that answered."""
    written_hour: int = 0
    """Tokens of `written` that are kept for an hour."""


@dataclass(frozen=True, slots=True)
class _WrittenShares:
    """The share of new tokens that is written to the cache, and the share of those that is kept for an hour."""

    share: float
    hour: float = 0.0


def estimated(sides: Sides) -> Compared:
    """Compare a prompt before anything is reported: its new tokens are priced as written to the cache."""
    return _compared(sides, sides.returned, sides.untrimmed, sides.room, _WrittenShares(1.0), sides.price)


def counted(sides: Sides, reported: ReportedTokens) -> Compared | None:
    """Compare a prompt by a report on it. Returns None if the counts cannot be true, so that the estimate stays."""
    sent, cached, written = sides.sent, reported.cached, reported.written
    if min(reported.tokens, cached or 0, written or 0) < 0 or (cached or 0) + (written or 0) > reported.tokens:
        return None
    if not (sent.tokens > 0 and 1 / PLAUSIBLE <= reported.tokens / sent.tokens <= PLAUSIBLE):
        return None
    ratio = reported.tokens / sent.tokens
    expected = sent.times(ratio).kept
    real = Extent(reported.tokens, expected if cached is None else cached)
    other = (sides.returned if sides.observed else sides.untrimmed).times(ratio)
    other = Extent(other.tokens, _found(expected, real, other, telling=sides.observed or not sides.rewritten))
    returned, untrimmed = (other, real) if sides.observed else (real, other)
    # A prompt that was accepted shows that the window is at least as large.
    return _compared(
        sides, returned, untrimmed, max(sides.room, reported.tokens), _written(reported, real), reported.price
    )


def _found(expected: int, real: Extent, other: Extent, *, telling: bool) -> int:
    """Return the other prompt's tokens that would have been cached; `telling`: whether a miss is evidence."""
    short = expected - real.kept
    if short <= 0:
        new = real.tokens - expected
        return other.kept - (round((other.tokens - other.kept) * short / new) if new else 0)
    if not telling:
        return other.kept
    if short <= SMALLEST_PREFIX:
        return max(0, other.kept - short)
    return other.kept * real.kept // expected


def _written(reported: ReportedTokens, real: Extent) -> _WrittenShares:
    """Return the shares that were written to the cache; where the cache was not reported: all, as estimated."""
    if reported.cached is None and reported.written is None:
        return _WrittenShares(1.0)
    new, written = real.tokens - real.kept, reported.written or 0
    hour = min(1.0, reported.written_hour / written) if written else 0.0
    return _WrittenShares(min(1.0, written / new) if new else 1.0, hour)


def _compared(  # noqa: PLR0917 - both sides, and what their cost depends on
    sides: Sides, returned: Extent, untrimmed: Extent, room: int, written: _WrittenShares, price: ModelPrice | None
) -> Compared:
    def bill(extent: Extent) -> Bill:
        new = extent.tokens - extent.kept
        cost = 0.0
        if price is not None:
            wrote = new * written.share
            hour = wrote * written.hour
            kinds = price.at(extent.tokens)
            cost = kinds.of(plain=new - wrote, cached=extent.kept, written=wrote - hour, written_hour=hour)
        return Bill(extent.kept, new, cost)

    if untrimmed.tokens > room:
        return Compared(Comparability.REFUSED, bill(returned), Bill())
    if sides.recalls:
        return Compared(Comparability.RECALL, bill(returned), Bill())
    return Compared(Comparability.COMPARED, bill(returned), bill(untrimmed))
