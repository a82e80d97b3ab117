"""Metering: what each prompt counts for, and whether a ceiling refuses it before anything of it is recorded.

What a prompt takes is known once it was trimmed. So one that may pass a ceiling that refuses is trimmed on a copy of
its run's memory. Any other one is trimmed as usual: that it cannot pass follows from what was sent, as trimming makes
nothing larger. Of a caller, whose runs are used at the same time, that much is held until the prompt is done, so that
no two prompts share what is left.

A run's use is what this process counted; or what a revision that another process signed carries, or the history of a
run that this process does not know implies, where that is more. A caller's is what this process counted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final

from prompt_sidecar.engine.runs.run import Run
from prompt_sidecar.engine.steps.memory import Memory
from prompt_sidecar.engine.steps.opening import OpenedPrompt
from prompt_sidecar.engine.steps.turn import Result
from prompt_sidecar.errors import CallerCeiling, CeilingReached, RunCeiling
from prompt_sidecar.facts.money import ModelPrice, Money
from prompt_sidecar.guard.ceilings import NOTHING, Ceilings, CeilingScope, CeilingUsage, CeilingUse
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.prompt.items import Role
from prompt_sidecar.tokens.calibration import Factors, calibrated_tokens
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.revision import Revision

CALLERS_BOUND: Final = "ceilings.callers"
_UNREAD: Final = 1_000_000
"""Results that a message may hold that was not read again: so many that it is trimmed on a copy."""


@dataclass(frozen=True, slots=True)
class CallerRules:
    """What holds for a caller."""

    policy: Policy
    """For requests that name no preset."""
    overrides: Mapping[str, object] = field(default_factory=dict)
    """Policy fields that are configured, which hold for a preset that a request names too."""
    ceilings: Ceilings = field(default_factory=Ceilings)
    guard: GuardOptions = field(default_factory=GuardOptions)
    """What is looked for in new text, and what is done about it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for whom."""

    general: CallerRules
    own: Mapping[str, CallerRules] = field(default_factory=dict)
    """Of callers for whom something else holds."""
    money: Money = field(default_factory=Money)
    observe: bool = False
    """Whether the sidecar only observes: every prompt is returned as it was sent, and none is refused by a ceiling."""

    def of(self, caller: str) -> CallerRules:
        """What holds for a caller."""
        return self.own.get(caller, self.general)


class CallerTotals:
    """What each caller has used in this process. Thread-safe."""

    def __init__(self, most: int, reached: Callable[[str], None]) -> None:
        """Remember `most` callers; `reached` is called with the bound's name when one is forgotten for another."""
        self._lock = Lock()
        self._most = most
        self._reached = reached
        self._used: OrderedDict[str, CeilingUsage] = OrderedDict()

    def __len__(self) -> int:
        return len(self._used)

    def of(self, caller: str) -> CeilingUsage:
        """What a caller has used, prompts in work included."""
        with self._lock:
            return self._used.get(caller, NOTHING)

    def add(self, caller: str, use: CeilingUsage) -> CeilingUsage:
        """Add to what a caller has used; what it has used then."""
        with self._lock:
            return self._add(caller, use)

    def hold(self, caller: str, use: CeilingUsage, ceilings: Ceilings) -> CeilingUse | None:
        """Add to what a caller has used, unless it would pass a ceiling that refuses; that one, or None."""
        with self._lock:
            after = self._used.get(caller, NOTHING).plus(use)
            passed = _refusing(ceilings.uses(NOTHING, after), CeilingScope.CALLER)
            if passed is None:
                self._add(caller, use)
            return passed

    def _add(self, caller: str, use: CeilingUsage) -> CeilingUsage:
        # One that was forgotten while its prompt was in work must not go below nothing.
        used = self._used[caller] = self._used.pop(caller, NOTHING).plus(use).largest(NOTHING)
        if len(self._used) > self._most:
            self._used.popitem(last=False)
            self._reached(CALLERS_BOUND)
        return used


@dataclass(slots=True)
class MeteredPrompt:
    """One prompt on its way."""

    caller: str
    ceilings: Ceilings
    price: ModelPrice | None
    before: CeilingUsage
    """What the run has used without it."""
    refusing: bool
    """Whether a ceiling may refuse it."""
    on_copy: bool = False
    """Whether it may pass such a ceiling, and is therefore trimmed on a copy."""
    held: CeilingUsage = NOTHING
    """What is counted for its caller on its account."""
    after: CeilingUsage = NOTHING
    """What the run has used with it."""
    charge: CeilingUsage = NOTHING
    """What it counts for by itself."""
    answer: CeilingUsage = NOTHING
    """What the answer to the prompt before it counts for, on which there is no report."""
    uses: Sequence[CeilingUse] = ()
    done: bool = False
    """Whether it was answered."""

    @property
    def carried(self) -> CeilingUsage:
        """What its revision carries of it.

        Without a ceiling that is nothing, and the same prompt has the same revision whenever it is sent.
        """
        return self.after if self.uses else NOTHING


class Meter:
    """Meters the prompts of all runs. Thread-safe; a run is used under its lock."""

    def __init__(self, rules: Rules, reached: Callable[[str], None]) -> None:
        """`reached` is called with the name of a bound that was reached."""
        self.rules = rules
        self.callers = CallerTotals(rules.general.ceilings.callers, reached)

    def begin(self, run: Run, opened: OpenedPrompt, carried: CeilingUsage, most: int) -> MeteredPrompt:
        """Begin to meter a prompt. `end` must follow.

        Args:
            run: its run.
            opened: the prompt.
            carried: what its revision carries.
            most: tokens that it takes at most, as the provider counts.

        Raises:
            CeilingReached: a ceiling is passed in any case.
        """
        call = opened.call
        ceilings = self.rules.of(call.caller).ceilings
        price = self.rules.money.of(opened.model.name)
        before = run.used.largest(carried)
        refusing = ceilings.refuse and not (self.rules.observe or call.dry_run)
        metered = MeteredPrompt(call.caller, ceilings, price, before, refusing)
        if not refusing:
            return metered
        least = CeilingUsage(input_tokens=1, model_calls=1)
        passed = _refusing(ceilings.uses(before.plus(least), self.callers.of(call.caller).plus(least)))
        if passed is not None:
            raise _refused(passed)
        bound, calls, results = self._most(opened, price, most)
        repeated = opened.memory.recorder.repeated.most + results
        whole = before.plus(CeilingUsage(bound.input_tokens * calls, bound.cost * calls, calls))
        if _refusing(ceilings.uses(replace(whole, repeated_calls=repeated), NOTHING)) is not None:
            metered.on_copy = True
        held = replace(bound, repeated_calls=results)
        if self.callers.hold(call.caller, held, ceilings) is None:
            metered.held = held
        else:
            metered.on_copy = True
        return metered

    def settle(  # noqa: PLR0917 - all that is known of it by then
        self,
        metered: MeteredPrompt,
        run: Run,
        opened: OpenedPrompt,
        result: Result,
        prompt_tokens: int,
        factors: Factors,
    ) -> None:
        """The prompt was trimmed: count it.

        Args:
            metered: the prompt.
            run: its run.
            opened: the prompt, with the memory that it was taken into.
            result: what was made of it.
            prompt_tokens: tokens of what is returned, raw.
            factors: what calibration multiplies them with.

        Raises:
            CeilingReached: it passes a ceiling that refuses; it was trimmed on a copy then.
        """
        ledger, price = opened.memory.ledger, metered.price
        tokens = calibrated_tokens(prompt_tokens, factors.text)
        kept = min(calibrated_tokens(result.cache.kept, factors.text), tokens)
        cost = price.at(tokens).of(cached=kept, written=tokens - kept) if price is not None else 0.0
        metered.charge = CeilingUsage(tokens, cost, 1)
        implied = _implied(ledger, price, factors)
        before = metered.before
        if implied.model_calls > before.model_calls:
            before = before.largest(implied)
        elif price is not None and run.usage.unreported:
            metered.answer = CeilingUsage(cost=price.base.of(output=_said_since(opened.memory)))
        metered.after = replace(
            before.plus(metered.charge).plus(metered.answer), repeated_calls=opened.memory.recorder.repeated.most
        )
        news = result.news
        of_caller = replace(
            metered.charge.plus(metered.answer), repeated_calls=news.repeated_whole + news.repeated_trimmed
        )
        if opened.call.dry_run:
            together = self.callers.of(metered.caller).plus(of_caller)
        else:
            passed = self._exchange(metered, of_caller)
            if passed is not None:
                raise _refused(passed)
            together = self.callers.of(metered.caller)
        metered.uses = metered.ceilings.uses(metered.after, together)
        if metered.refusing and metered.on_copy:
            passed = _refusing(metered.uses, CeilingScope.RUN)
            if passed is not None:
                raise _refused(passed)

    def answered(self, metered: MeteredPrompt, run: Run) -> None:
        """The prompt is answered and changes its run."""
        run.used = metered.after
        run.priced = run.priced or metered.price is not None
        run.usage.charge_last(metered.answer)
        metered.done = True

    def prices(self, caller: str) -> bool:
        """Whether what a caller's prompts cost is asked for: there are prices in the settings, or ceilings on cost."""
        ceilings = self.rules.of(caller).ceilings
        return bool(self.rules.money.own or ceilings.run_cost or ceilings.caller_cost)

    def uses(self, run: Run) -> Sequence[CeilingUse]:
        """The ceilings that are set for a run and its caller, with what is used of them."""
        caller, _ = run.name
        return self.rules.of(caller).ceilings.uses(run.used, self.callers.of(caller))

    def corrected(self, caller: str, run: Run, correction: CeilingUsage) -> None:
        """A report says what a prompt really took."""
        run.used = run.used.plus(correction).largest(NOTHING)
        self.callers.add(caller, correction)

    def end(self, metered: MeteredPrompt) -> None:
        """The call is through: what was held for a prompt that was not answered is given back."""
        if not metered.done and metered.held != NOTHING:
            self.callers.add(metered.caller, NOTHING.minus(metered.held))
            metered.held = NOTHING

    def left(self, metered: MeteredPrompt) -> str:
        """A line for the note on ceilings that are nearly reached; empty if none is."""
        uses = metered.ceilings.uses(metered.before, self.callers.of(metered.caller).minus(metered.held))
        return metered.ceilings.left(uses)

    def _exchange(self, metered: MeteredPrompt, use: CeilingUsage) -> CeilingUse | None:
        """Count what the prompt takes in place of what was held for it; the ceiling that refuses, or None."""
        if metered.held == NOTHING and metered.refusing:
            passed = self.callers.hold(metered.caller, use, metered.ceilings)
            if passed is not None:
                return passed
        else:
            self.callers.add(metered.caller, use.minus(metered.held))
        metered.held = use
        return None

    def _most(self, opened: OpenedPrompt, price: ModelPrice | None, most: int) -> tuple[CeilingUsage, int, int]:
        """What one prompt takes at most; the model calls and the results that are new with it, at most."""
        new = opened.reads[opened.body.same :]
        calls = 1 + sum(read.role is Role.ASSISTANT for read in new)
        results = sum(len(read.message.answers) if read.message is not None else _UNREAD for read in new)
        # Input and the answer before it, which no report has priced yet.
        cost = 2 * most * price.highest if price is not None else 0.0
        return CeilingUsage(most, cost, 1), calls, results


def carried(revision: Revision | None) -> CeilingUsage:
    """What a revision says that its run has used."""
    return CeilingUsage(*revision.used) if revision is not None else NOTHING


def _implied(ledger: Ledger, price: ModelPrice | None, factors: Factors) -> CeilingUsage:
    """What the model calls took that a history shows, as far as it can be told from it."""
    groups = ledger.groups
    if not groups:
        return NOTHING
    last = groups[-1]
    tokens = calibrated_tokens(last.asked, factors.text)
    newest = calibrated_tokens(last.asked - (groups[-2].asked if len(groups) > 1 else 0), factors.text)
    cost = 0.0
    if price is not None:
        said = calibrated_tokens(last.said, factors.text)
        cost = price.base.of(cached=max(0, tokens - newest), written=newest, output=said)
    return CeilingUsage(tokens, cost, len(groups))


def _said_since(memory: Memory) -> int:
    """Tokens of the model's messages since the prompt before the one that was just taken; 0: that is not known."""
    returned = memory.returned_at
    new = memory.ledger.records[returned[-2] :] if len(returned) > 1 else ()
    return sum(record.full_tokens for record in new if record.role is Role.ASSISTANT)


def _refusing(uses: Iterable[CeilingUse], scope: CeilingScope | None = None) -> CeilingUse | None:
    """The first ceiling that refuses what is used."""
    return next((use for use in uses if use.refused and scope in (None, use.scope)), None)


def _refused(use: CeilingUse) -> CeilingReached:
    kind = RunCeiling if use.scope is CeilingScope.RUN else CallerCeiling
    return kind(f"{use.words}; nothing of the prompt was recorded", scope=use.scope, kind=use.kind)
