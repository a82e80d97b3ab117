"""Ceilings: how much a run, or all runs of a caller, may use of input tokens, money, model calls and repeated calls.

A prompt is checked with itself included, before anything of it is recorded:

    used so far ──► + this prompt ──► over a limit? ──► observe: count and report
    (see `CeilingUsage`)     (its estimate)                      warn:    the note says how much is left
                                                        refuse:  an error, and nothing has happened

A prompt counts by its estimate until the agent reports what the provider counted; from then on it counts by the report.
A prompt that the provider refused as too long costs nothing. A prompt without any report is estimated: tokens of the
kept prefix at the price of cached ones, the rest at that of written ones, and the model's messages as its output.

Repeated calls are counted differently for the two scopes: for a run, how often one call with the same arguments had the
same result; for a caller, how many calls of its runs repeated an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import add, sub
from typing import Any, Final

from prompt_sidecar.providers.usage import HOUR_WRITE
from prompt_sidecar.values import Kind, choice, number, required, setting, whole

PER_MILLION: Final = 1_000_000
"""Number of tokens that a price applies to."""
DECIMALS: Final = 12
"""Decimals of a sum of costs: adding and subtracting the same cost leaves exactly zero."""
AS_INPUT: Final = -1.0
"""For a price of cached or written tokens: that of plain input."""
ANY_MODEL: Final = "*"
"""Name of the prices of all models that no other name matches."""


class CeilingScope(StrEnum):
    """Whose use a ceiling limits."""

    RUN = "run"
    CALLER = "caller"


class CeilingKind(StrEnum):
    """What a ceiling limits."""

    INPUT_TOKENS = "input_tokens"
    COST = "cost"
    MODEL_CALLS = "model_calls"
    REPEATED_CALLS = "repeated_calls"


class CeilingAction(StrEnum):
    """What happens at a ceiling."""

    OBSERVE = "observe"
    WARN = "warn"
    REFUSE = "refuse"


_WORDS: Final[Mapping[CeilingKind, str]] = {
    CeilingKind.INPUT_TOKENS: "input tokens",
    CeilingKind.COST: "cost",
    CeilingKind.MODEL_CALLS: "model calls",
    CeilingKind.REPEATED_CALLS: "repeated calls",
}


@dataclass(frozen=True, slots=True)
class CeilingUse:
    """A configured ceiling and its use, this prompt included."""

    scope: CeilingScope
    kind: CeilingKind
    action: CeilingAction
    limit: float
    used: float

    @property
    def over(self) -> bool:
        """Whether more is used than the limit allows."""
        return self.used > self.limit

    @property
    def refused(self) -> bool:
        """Whether a prompt with this use is refused."""
        return self.over and self.action is CeilingAction.REFUSE

    @property
    def setting(self) -> str:
        """Name of the setting with the limit."""
        return f"ceilings.{self.scope}_{self.kind}"

    @property
    def words(self) -> str:
        """Return the use and its limit, for an error."""
        return (
            f"with this prompt the {self.scope} would have used {_amount(self.used)} of {_amount(self.limit)} "
            f"{_WORDS[self.kind]}, which {self.setting} allows"
        )


@dataclass(frozen=True, slots=True)
class CeilingUsage:
    """The use of one prompt, or of many together."""

    input_tokens: int = 0
    """In the provider's tokens, cached ones included."""
    cost: float = 0.0
    """In the currency of the configured prices."""
    model_calls: int = 0
    repeated_calls: int = 0

    def plus(self, other: CeilingUsage) -> CeilingUsage:
        """Return the sum of both."""
        return self._each(other, add)

    def minus(self, other: CeilingUsage) -> CeilingUsage:
        """Return the difference of both."""
        return self._each(other, sub)

    def largest(self, other: CeilingUsage) -> CeilingUsage:
        """Return the larger value of each figure."""
        return self._each(other, max)

    def _each(self, other: CeilingUsage, both: Callable[[Any, Any], Any]) -> CeilingUsage:
        return CeilingUsage(
            both(self.input_tokens, other.input_tokens),
            round(both(self.cost, other.cost), DECIMALS),
            both(self.model_calls, other.model_calls),
            both(self.repeated_calls, other.repeated_calls),
        )


NOTHING: Final = CeilingUsage()


@dataclass(frozen=True, slots=True)
class Price:
    """What a million tokens of a model cost. The currency is the user's own."""

    input: float = required(number(0.0, 1e9), "Price of a million input tokens that come from no cache.")
    output: float = required(number(0.0, 1e9), "Price of a million output tokens.")
    cached: float = setting(
        AS_INPUT,
        number(AS_INPUT, 1e9),
        "Price of a million input tokens that the provider read from its cache; -1: that of input.",
        "Without a discount the cost is not underestimated.",
    )
    written: float = setting(
        AS_INPUT,
        number(AS_INPUT, 1e9),
        "Price of a million input tokens that the provider wrote to its cache; -1: that of input.",
        "Most providers charge no more for them.",
    )

    def of(
        self,
        *,
        plain: float = 0,
        cached: float = 0,
        written: float = 0,
        written_hour: float = 0,
        output: float = 0,
    ) -> float:
        """Return the cost of tokens of each kind; `written_hour`: those written to be kept for an hour."""
        of_cached = self.input if self.cached < 0 else self.cached
        of_written = self.input if self.written < 0 else self.written
        total = plain * self.input + cached * of_cached + written * of_written + output * self.output
        return (total + written_hour * self.input * HOUR_WRITE) / PER_MILLION

    @property
    def highest(self) -> float:
        """Return the price of the most expensive token."""
        return max(self.input, self.cached, self.written, self.output) / PER_MILLION


class CeilingPrices:
    """Prices by model. A name matches all models whose names begin with it; the longest match is used.

    Case does not matter, and neither does a gateway's prefix before the last slash.
    """

    def __init__(self, prices: Mapping[str, Price]) -> None:
        self._prices = {"" if name == ANY_MODEL else name.lower(): price for name, price in prices.items()}

    def __bool__(self) -> bool:
        return bool(self._prices)

    def of(self, model: str) -> Price | None:
        """Return the prices of a model, or None if it has none."""
        name = model.lower()
        fits = (known for known in self._prices if name.startswith(known) or name.rpartition("/")[2].startswith(known))
        found = max(fits, key=len, default=None)
        return None if found is None else self._prices[found]


_ACTION: Final = choice(*CeilingAction)
_ACTION_WHY: Final = "A ceiling that stops agents is for who has seen by its figures what they use."
_NONE_WHY: Final = "What is much differs from agent to agent."


def _limit(default: float, kind: Kind, what: str) -> Any:
    return setting(default, kind, f"{what}; 0: no ceiling.", _NONE_WHY)


def _action(above: str) -> str:
    return (
        f"What happens above {above}: it is counted and reported (observe), the note also says how much is left "
        "(warn), or the prompt is refused (refuse)."
    )


_TOKENS: Final = whole(0, 10**15, "tokens")
_COST: Final = number(0.0, 1e12)
_CALLS: Final = whole(0, 10**12, "calls")


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The ceilings for each run of a caller and for the caller. A limit of 0 is no ceiling."""

    run_input_tokens: int = _limit(0, _TOKENS, "Input tokens of all prompts of one run")
    run_input_tokens_action: CeilingAction = setting(
        CeilingAction.OBSERVE, _ACTION, _action("run_input_tokens"), _ACTION_WHY
    )
    run_cost: float = _limit(0.0, _COST, "Cost of one run, in the currency of [prices]")
    run_cost_action: CeilingAction = setting(CeilingAction.OBSERVE, _ACTION, _action("run_cost"), _ACTION_WHY)
    run_model_calls: int = _limit(0, _CALLS, "Model calls of one run: prompts that were returned to it")
    run_model_calls_action: CeilingAction = setting(
        CeilingAction.OBSERVE, _ACTION, _action("run_model_calls"), _ACTION_WHY
    )
    run_repeated_calls: int = _limit(
        0, _CALLS, "How often one tool call of a run may have the same arguments and the same result"
    )
    run_repeated_calls_action: CeilingAction = setting(
        CeilingAction.OBSERVE, _ACTION, _action("run_repeated_calls"), _ACTION_WHY
    )
    caller_input_tokens: int = _limit(0, _TOKENS, "Input tokens of all prompts of one caller in this process")
    caller_input_tokens_action: CeilingAction = setting(
        CeilingAction.OBSERVE, _ACTION, _action("caller_input_tokens"), _ACTION_WHY
    )
    caller_cost: float = _limit(0.0, _COST, "Cost of one caller in this process, in the currency of [prices]")
    caller_cost_action: CeilingAction = setting(CeilingAction.OBSERVE, _ACTION, _action("caller_cost"), _ACTION_WHY)
    caller_model_calls: int = _limit(0, _CALLS, "Model calls of one caller in this process")
    caller_model_calls_action: CeilingAction = setting(
        CeilingAction.OBSERVE, _ACTION, _action("caller_model_calls"), _ACTION_WHY
    )
    caller_repeated_calls: int = _limit(
        0, _CALLS, "Tool calls of one caller in this process that repeat an earlier one of their run, result included"
    )
    caller_repeated_calls_action: CeilingAction = setting(
        CeilingAction.OBSERVE, _ACTION, _action("caller_repeated_calls"), _ACTION_WHY
    )
    warn_from: float = setting(
        0.8,
        number(0.0, 1.0),
        "Share of a ceiling from which on the note says how much is left, where the action is warn.",
        "A model that has a fifth left can still finish; before that the line would only take tokens.",
    )
    callers: int = setting(
        10_000,
        whole(1, 10_000_000, "callers"),
        "Callers whose use is remembered; beyond it the one that called longest ago is forgotten.",
        "Callers are authenticated, so there are few; each takes some hundred bytes.",
        advanced=True,
    )

    @property
    def refuse(self) -> bool:
        """Whether any ceiling refuses prompts."""
        return any(each.action is CeilingAction.REFUSE for each in self.uses(NOTHING, NOTHING))

    def uses(self, run: CeilingUsage, caller: CeilingUsage) -> Sequence[CeilingUse]:
        """Return the ceilings that are set, with the use of each."""
        found: list[CeilingUse] = []
        for scope, kind, name in _ROWS:
            limit = getattr(self, name)
            if limit:
                used = getattr(run if scope is CeilingScope.RUN else caller, kind)
                found.append(CeilingUse(scope, kind, getattr(self, f"{name}_action"), float(limit), float(used)))
        return found

    def left(self, uses: Iterable[CeilingUse]) -> str:
        """Return a line for the model about ceilings that warn and are nearly reached; empty if there are none.

        Args:
            uses: the ceilings' use without the current prompt.
        """
        near = [
            _left(use) for use in uses if use.action is CeilingAction.WARN and use.used >= self.warn_from * use.limit
        ]
        return f"Left, this call included: {'; '.join(near)}." if near else ""


_ROWS: Final = tuple((scope, kind, f"{scope}_{kind}") for scope in CeilingScope for kind in CeilingKind)
CEILINGS: Final = tuple(name for _, _, name in _ROWS)
"""Names of all ceilings."""


def _amount(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:,.4f}".rstrip("0")


def _left(use: CeilingUse) -> str:
    of = " for all runs together" if use.scope is CeilingScope.CALLER else ""
    return f"{_amount(max(0.0, use.limit - use.used))} of {_amount(use.limit)} {_WORDS[use.kind]}{of}"
