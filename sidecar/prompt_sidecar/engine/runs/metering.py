"""Metering: what each prompt counts for, and whether a ceiling refuses it before anything of it is recorded.

The size of a prompt is known once it was trimmed. So a prompt that may pass a ceiling that refuses is trimmed on a copy
of its run's memory. Any other prompt is trimmed as usual: trimming makes nothing larger, so what was sent already fits.
As a caller's runs are used at the same time, the prompt's largest use is reserved for the caller until the prompt is
done, so that no two prompts spend the same remainder.

A run's use is the largest of three: what this process counted, what a revision signed by another process carries, and,
for a run new to this process, what its history implies. A caller's use is what this process counted.
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
"""Results that a message which was not read again may hold: so many that the prompt is trimmed on a copy."""


@dataclass(frozen=True, slots=True)
class CallerRules:
    """The settings that apply to a caller."""

    policy: Policy
    """The policy for requests that name no preset."""
    overrides: Mapping[str, object] = field(default_factory=dict)
    """Configured policy fields, which override a preset that a request names too."""
    ceilings: Ceilings = field(default_factory=Ceilings)
    guard: GuardOptions = field(default_factory=GuardOptions)
    """What the guard looks for in new text, and what it does about it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings that apply to each caller."""

    general: CallerRules
    own: Mapping[str, CallerRules] = field(default_factory=dict)
    """Callers with settings of their own."""
    money: Money = field(default_factory=Money)
    observe: bool = False
    """Whether the sidecar only observes: every prompt is returned as it was sent, and none is refused by a ceiling."""

    def of(self, caller: str) -> CallerRules:
        """Return the settings that apply to a caller."""
        return self.own.get(caller, self.general)


class CallerTotals:
    """The use of each caller in this process. Thread-safe."""

    def __init__(self, most: int, reached: Callable[[str], None]) -> None:
        """Remember `most` callers; `reached` is called with the bound's name when one is forgotten for another."""
        self._lock = Lock()
        self._most = most
        self._reached = reached
        self._used: OrderedDict[str, CeilingUsage] = OrderedDict()

    def __len__(self) -> int:
        return len(self._used)

    def of(self, caller: str) -> CeilingUsage:
        """Return a caller's use, including prompts that are being processed."""
        with self._lock:
            return self._used.get(caller, NOTHING)

    def add(self, caller: str, use: CeilingUsage) -> CeilingUsage:
        """Add to a caller's use and return the new total."""
        with self._lock:
            return self._add(caller, use)

    def hold(self, caller: str, use: CeilingUsage, ceilings: Ceilings) -> CeilingUse | None:
        """Add to a caller's use, unless that would pass a ceiling that refuses. Returns that ceiling, or None."""
        with self._lock:
            after = self._used.get(caller, NOTHING).plus(use)
            passed = _refusing(ceilings.uses(NOTHING, after), CeilingScope.CALLER)
            if passed is None:
                self._add(caller, use)
            return passed

    def _add(self, caller: str, use: CeilingUsage) -> CeilingUsage:
        # A caller that was forgotten while its prompt was processed must not go below zero.
        used = self._used[caller] = self._used.pop(caller, NOTHING).plus(use).largest(NOTHING)
        if len(self._used) > self._most:
            self._used.popitem(last=False)
            self._reached(CALLERS_BOUND)
        return used


@dataclass(slots=True)
class MeteredPrompt:
    """One prompt while it is metered."""

    caller: str
    ceilings: Ceilings
    price: ModelPrice | None
    before: CeilingUsage
    """The run's use without it."""
    refusing: bool
    """Whether a ceiling may refuse it."""
    on_copy: bool = False
    """Whether it may pass such a ceiling, and is therefore trimmed on a copy."""
    held: CeilingUsage = NOTHING
    """What is reserved for it in its caller's use."""
    after: CeilingUsage = NOTHING
    """The run's use with it."""
    charge: CeilingUsage = NOTHING
    """The use of this prompt alone."""
    answer: CeilingUsage = NOTHING
    """The use of the answer to the previous prompt, if that was not reported."""
    uses: Sequence[CeilingUse] = ()
    done: bool = False
    """Whether it was answered."""

    @property
    def carried(self) -> CeilingUsage:
        """The use that its revision carries.

        Without a ceiling nothing is carried, so that the same prompt has the same revision whenever it is sent.
        """
        return self.after if self.uses else NOTHING


class Meter:
    """Meters the prompts of all runs. Thread-safe; a run is used under its lock."""

    def __init__(self, rules: Rules, reached: Callable[[str], None]) -> None:
        """`reached` is called with the name of a resource limit that was reached."""
        self.rules = rules
        self.callers = CallerTotals(rules.general.ceilings.callers, reached)

    def begin(self, run: Run, opened: OpenedPrompt, carried: CeilingUsage, most: int) -> MeteredPrompt:
        """Begin to meter a prompt. `end` must follow.

        Args:
            run: its run.
            opened: the prompt.
            carried: the use that its revision carries.
            most: the largest number of tokens that it may take, as the provider counts.

        Raises:
            CeilingReached: a ceiling is passed whatever trimming saves.
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
        """Count a prompt that was trimmed.

        Args:
            metered: the prompt.
            run: its run.
            opened: the prompt, with the memory that it was taken into.
            result: how it was trimmed.
            prompt_tokens: raw tokens of the returned prompt.
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
            metered.answer = CeilingUsage(cost=price.base.of(output=_output_since(opened.memory)))
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
        """Add an answered prompt to its run's use."""
        run.used = metered.after
        run.priced = run.priced or metered.price is not None
        run.usage.charge_last(metered.answer)
        metered.done = True

    def prices(self, caller: str) -> bool:
        """Whether costs are counted for a caller: there are prices in the settings, or ceilings on cost."""
        ceilings = self.rules.of(caller).ceilings
        return bool(self.rules.money.own or ceilings.run_cost or ceilings.caller_cost)

    def uses(self, run: Run) -> Sequence[CeilingUse]:
        """Return the ceilings that are set for a run and its caller, with the use of each."""
        caller, _ = run.name
        return self.rules.of(caller).ceilings.uses(run.used, self.callers.of(caller))

    def corrected(self, caller: str, run: Run, correction: CeilingUsage) -> None:
        """Correct a prompt's use by a report."""
        run.used = run.used.plus(correction).largest(NOTHING)
        self.callers.add(caller, correction)

    def end(self, metered: MeteredPrompt) -> None:
        """End a call: release what was reserved for a prompt that was not answered."""
        if not metered.done and metered.held != NOTHING:
            self.callers.add(metered.caller, NOTHING.minus(metered.held))
            metered.held = NOTHING

    def left(self, metered: MeteredPrompt) -> str:
        """Return a line for the note about ceilings that are nearly reached; empty if there are none."""
        uses = metered.ceilings.uses(metered.before, self.callers.of(metered.caller).minus(metered.held))
        return metered.ceilings.left(uses)

    def _exchange(self, metered: MeteredPrompt, use: CeilingUsage) -> CeilingUse | None:
        """Replace the reservation of a prompt by its real use. Returns the ceiling that refuses it, or None."""
        if metered.held == NOTHING and metered.refusing:
            passed = self.callers.hold(metered.caller, use, metered.ceilings)
            if passed is not None:
                return passed
        else:
            self.callers.add(metered.caller, use.minus(metered.held))
        metered.held = use
        return None

    def _most(self, opened: OpenedPrompt, price: ModelPrice | None, most: int) -> tuple[CeilingUsage, int, int]:
        """Return the largest possible use of one prompt, and the most new model calls and new results in it."""
        new = opened.reads[opened.body.same :]
        calls = 1 + sum(read.role is Role.ASSISTANT for read in new)
        results = sum(len(read.message.answers) if read.message is not None else _UNREAD for read in new)
        # Input and the previous answer, which no report has priced yet.
        cost = 2 * most * price.highest if price is not None else 0.0
        return CeilingUsage(most, cost, 1), calls, results


def carried(revision: Revision | None) -> CeilingUsage:
    """Return the run's use that a revision carries."""
    return CeilingUsage(*revision.used) if revision is not None else NOTHING


def _implied(ledger: Ledger, price: ModelPrice | None, factors: Factors) -> CeilingUsage:
    """Estimate, from a history, the use of its model calls."""
    groups = ledger.groups
    if not groups:
        return NOTHING
    last = groups[-1]
    tokens = calibrated_tokens(last.asked, factors.text)
    newest = calibrated_tokens(last.asked - (groups[-2].asked if len(groups) > 1 else 0), factors.text)
    cost = 0.0
    if price is not None:
        output = calibrated_tokens(last.output_tokens, factors.text)
        cost = price.base.of(cached=max(0, tokens - newest), written=newest, output=output)
    return CeilingUsage(tokens, cost, len(groups))


def _output_since(memory: Memory) -> int:
    """Return the tokens of the model's messages since the previous prompt; 0 if unknown."""
    returned = memory.returned_at
    new = memory.ledger.records[returned[-2] :] if len(returned) > 1 else ()
    return sum(record.full_tokens for record in new if record.role is Role.ASSISTANT)


def _refusing(uses: Iterable[CeilingUse], scope: CeilingScope | None = None) -> CeilingUse | None:
    """Return the first ceiling that refuses its use."""
    return next((use for use in uses if use.refused and scope in (None, use.scope)), None)


def _refused(use: CeilingUse) -> CeilingReached:
    kind = RunCeiling if use.scope is CeilingScope.RUN else CallerCeiling
    return kind(f"{use.words}; nothing of the prompt was recorded", scope=use.scope, kind=use.kind)
