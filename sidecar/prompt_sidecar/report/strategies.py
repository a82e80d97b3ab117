"""The cost of a run's prompts under a strategy: never trimming, the plain control, or the sidecar.

A prompt's cost depends on how much of it the provider has cached. It may have cached what the prompt shares with the
previous one under the same strategy: so never trimming pays again where the agent itself changed its history, and a cut
pays again for everything after it.

The provider's own counts, if known, say more, and never trimming is then charged exactly the real amount. The provider
may have had less cached, as after a pause in which the cache expired: `warmth` is the share of the cacheable tokens
that were cached, and it is applied to every strategy. Or it had more, as another run had sent the same beginning: the
share `found` of the new tokens was cached. The share `written` of the rest was written to the cache, and `hour` of that
for an hour.

A prompt larger than the model's window would have been refused. Not sending it is not a saving: never trimming is
charged nothing for it, and strategies are compared on the other prompts.

The control is the plain way to keep a cache warm: it remembers its cut and, when a prompt passes the limit, drops the
oldest groups (an answer of the model with what follows) down to half of the limit. System prompt, opening messages and
newest group stay. Dropped groups cannot be recalled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from prompt_sidecar.facts.money import ModelPrice, Money
from prompt_sidecar.report.prices import RelativePrices
from prompt_sidecar.report.sizes import Step
from prompt_sidecar.report.transcripts.model import RecordedPrompt

CONTROL_DEPTH: Final = 0.5
"""Share of the limit down to which the control drops."""


@dataclass(frozen=True, slots=True)
class StrategyPrompt:
    """One prompt as a strategy sends it. Tokens."""

    tokens: int
    kept: int
    """Those of them that the strategy's previous prompt began with too."""
    cut: bool = False
    """Whether the strategy removed something that had been sent before."""


@dataclass(frozen=True, slots=True)
class Charge:
    """The factors that decide the price of one model call, whatever the strategy."""

    warmth: float
    accepted: bool
    """Whether the untrimmed prompt fits the window."""
    output: int
    found: float = 0.0
    written: float = 1.0
    hour: float = 0.0
    price: ModelPrice | None = None
    """The price of the call's model; None if it has none."""

    def cached(self, sent: StrategyPrompt) -> float:
        """Return the tokens of a prompt that the provider had cached."""
        return sent.kept * self.warmth + (sent.tokens - sent.kept) * self.found

    def bill(self, sent: StrategyPrompt) -> float:
        """Return the cost of a prompt and its answer in money; 0 if the model has no price."""
        if self.price is None:
            return 0.0
        cached = self.cached(sent)
        wrote = (sent.tokens - cached) * self.written
        hour = wrote * self.hour
        return self.price.at(sent.tokens).of(
            plain=sent.tokens - cached - wrote,
            cached=cached,
            written=wrote - hour,
            written_hour=hour,
            output=self.output,
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a run under a strategy. Relative costs are in plain input tokens."""

    tokens: int
    """Tokens of all prompts together."""
    cost: float
    comparable_cost: float
    """The cost of the prompts that fit the window untrimmed, which can be compared with never trimming."""
    money: float | None
    """With the model's answers, for the calls whose model has a price; None if none has."""
    comparable_money: float | None
    over_limit: int
    refused: int
    """Number of prompts larger than the window."""
    cuts: int

    def share_of(self, untrimmed: Cost) -> float:
        """The cost as a share of never trimming's, on the prompts that fit the window untrimmed; 1 if none does.

        In money with the model's answers if there are prices, so that it is the share of the bill.
        """
        if self.comparable_money is not None and untrimmed.comparable_money:
            return self.comparable_money / untrimmed.comparable_money
        return self.comparable_cost / untrimmed.comparable_cost if untrimmed.comparable_cost else 1.0


def never(steps: Sequence[Step]) -> list[StrategyPrompt]:
    """Return every prompt as the agent sent it."""
    made: list[StrategyPrompt] = []
    for step in steps:
        last = made[-1].tokens if made else 0
        made.append(
            StrategyPrompt(step.before, min(step.kept, last, step.before), cut=bool(made) and step.kept < last * 0.99)
        )
    return made


def control(steps: Sequence[Step], limit: int) -> list[StrategyPrompt]:
    """Return every prompt as the plain control sends it."""
    made: list[StrategyPrompt] = []
    dropped, last_messages = 0, 0
    for step in steps:
        if step.common < last_messages:
            dropped = 0  # the agent has rewritten its history
        last_messages = len(step.messages)
        starts = [*step.opens, len(step.messages)]
        groups = [sum(step.messages[start:end]) for start, end in pairwise(starts)]
        opening = step.head + sum(step.messages[: starts[0]])
        total = opening + sum(groups[dropped:])
        earlier = dropped
        if total > limit:
            while total > limit * CONTROL_DEPTH and dropped < len(groups) - 1:
                total -= groups[dropped]
                dropped += 1
        cut = dropped > earlier
        last = made[-1].tokens if made else 0
        kept = opening if cut else step.kept - sum(groups[:dropped])
        made.append(StrategyPrompt(total, max(0, min(kept if step.same_head else 0, last, total)), cut))
    return made


def charges(
    prompts: Sequence[RecordedPrompt], steps: Sequence[Step], window: int, money: Money | None = None, model: str = ""
) -> list[Charge]:
    """Return the factors that decide the price of each call.

    Args:
        prompts: the run's.
        steps: their sizes.
        window: the model's; 0: unknown, so nothing is refused. Prompts that the provider has counted were accepted.
        money: prices by model; None if there are none.
        model: the model of prompts that name none.
    """
    made: list[Charge] = []
    for prompt, step, sent in zip(prompts, steps, never(steps), strict=True):
        accepted = not window or step.before <= window or prompt.usage is not None
        price = money.of(prompt.model or model) if money is not None else None
        made.append(replace(_charge(prompt, sent), accepted=accepted, output=step.output, price=price))
    return made


def _charge(prompt: RecordedPrompt, sent: StrategyPrompt) -> Charge:
    used = prompt.usage
    if used is None or not used.input or not sent.tokens:
        return Charge(1.0, accepted=True, output=0)
    cached, new = used.cached / used.input * sent.tokens, sent.tokens - sent.kept
    rest = used.input - used.cached
    return Charge(
        warmth=min(1.0, cached / sent.kept) if sent.kept else 1.0,
        accepted=True,
        output=0,
        found=min(1.0, (cached - sent.kept) / new) if new and cached > sent.kept else 0.0,
        written=used.written / rest if used.written and rest else 1.0,
        hour=used.written_hour / used.written if used.written else 0.0,
    )


def cost(
    sent: Sequence[StrategyPrompt],
    charged: Sequence[Charge],
    prices: RelativePrices,
    limits: tuple[int, int],
) -> Cost:
    """Return the cost of a strategy's prompts; `limits`: that of a prompt and the window, 0 if there is none."""
    limit, window = limits
    spent = paid = comparable = comparable_paid = 0.0
    priced = any(charge.price is not None for charge in charged)
    for one, charge in zip(sent, charged, strict=True):
        if _refused(one, charge, window):
            continue  # it costs nothing and has no answer
        cached = charge.cached(one)
        price = prices.of(cached, one.tokens - cached)
        bill = charge.bill(one)
        spent, paid = spent + price, paid + bill
        if charge.accepted:
            comparable, comparable_paid = comparable + price, comparable_paid + bill
    return Cost(
        tokens=sum(one.tokens for one in sent),
        cost=spent,
        comparable_cost=comparable,
        money=paid if priced else None,
        comparable_money=comparable_paid if priced else None,
        over_limit=sum(one.tokens > limit for one in sent) if limit else 0,
        refused=sum(_refused(one, charge, window) for one, charge in zip(sent, charged, strict=True)),
        cuts=sum(one.cut for one in sent),
    )


def _refused(sent: StrategyPrompt, charge: Charge, window: int) -> bool:
    """Whether the provider would have refused a prompt; a prompt no larger than an accepted one is accepted too."""
    return bool(window) and sent.tokens > window and not charge.accepted
