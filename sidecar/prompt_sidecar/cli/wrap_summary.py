"""The sidecar's work for an agent, from its figures: requests, tokens, recalls, findings of the guard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prompt_sidecar.facts.guard_calls import FindingAction
from prompt_sidecar.facts.untrimmed import MISSED, Untrimmed
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.report.prices import RelativePrices
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.catalog import HTTP_ROUTES
from prompt_sidecar.telemetry.shown import MetricFamilies

_SENT_TO_HTTP: Final = "sent_to_http"
"""Outcome of a request for a WebSocket for prompts that was sent to HTTP."""
_USUAL: Final = frozenset({"answered", _SENT_TO_HTTP, "cancelled"})
"""Outcomes of requests that need no remark."""
_PASSED: Final = HTTP_ROUTES[-1]


@dataclass(frozen=True, slots=True)
class WrapSummary:
    """Sums since the sidecar started. Tokens are estimated."""

    requests: int = 0
    """All requests, including those without a prompt."""
    prompts: int = 0
    troubled: Mapping[str, int] = field(default_factory=dict)
    """Requests by outcome, for unusual outcomes."""
    before: int = 0
    """Tokens of all prompts, untrimmed."""
    after: int = 0
    """Tokens of all prompts, as they were sent."""
    share: float | None = None
    """Ratio of the prompts' cost to their cost without trimming; None if there is nothing to compare."""
    costs: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By currency: the prompts' cost, and their cost without trimming, both estimated."""
    untrimmed: Mapping[str, int] = field(default_factory=dict)
    """Requests that were forwarded untrimmed, by reason (docs/untrimmed.md), except those without a prompt."""
    condensed: int = 0
    """Tokens that condensing removed from new results."""
    originals: int = 0
    """Originals that the model recalled by id."""
    searches: int = 0
    finds: Mapping[str, int] = field(default_factory=dict)
    """Findings of the guard, by the action taken."""

    def lines(self) -> Iterator[str]:
        """Yield a line for each kind of work the sidecar did."""
        if not self.requests:
            yield (
                "requests  none came through the sidecar: the agent has another base URL in its own settings, "
                "or is signed in to a service that takes none"
            )
            return
        trouble = ", ".join(f"{number:,} {outcome.replace('_', ' ')}" for outcome, number in self.troubled.items())
        yield f"requests  {self.requests:,}, of which {self.prompts:,} prompts{f'; {trouble}' if trouble else ''}"
        saved = max(0.0, 1 - self.after / self.before) if self.before else 0.0
        price = "" if self.share is None else f"; they cost some {self.share:.0%} of what they would have untrimmed"
        for currency, (sent, untrimmed) in self.costs.items():
            price += f"; {sent:,.2f} {currency} for them, and an estimated {untrimmed:,.2f} untrimmed"
        yield f"saved     {saved:.0%} of the prompts' tokens: {self.before:,} untrimmed, {self.after:,} sent{price}"
        if self.condensed:
            yield f"condensed {self.condensed:,} tokens, taken out of results when they were first seen (an estimate)"
        if self.untrimmed:
            reasons = ", ".join(f"{number:,} {reason}" for reason, number in self.untrimmed.items())
            look = "; docs/untrimmed.md says what to do" if self.untrimmed.keys() & set(MISSED) else ""
            yield f"untrimmed {sum(self.untrimmed.values()):,} requests: {reasons}{look}"
        yield f"recalled  {self.originals:,} originals by id, {self.searches:,} searches"
        finds = ", ".join(f"{number:,} {action}" for action, number in self.finds.items())
        yield f"guard     {finds or 'found nothing'}"


def summarised(shown: MetricFamilies) -> WrapSummary:
    """Return the summary of the figures in `/metrics`."""
    http = shown.by(catalog.HTTP_REQUESTS, "outcome")
    passed = shown.total(catalog.HTTP_REQUESTS, route=_PASSED)
    tokens = shown.by(catalog.PROMPT_TOKENS, "state")
    actions = shown.by(catalog.FINDINGS, "action")
    handled = shown.by(catalog.HANDLED, "outcome")
    return WrapSummary(
        requests=sum(http.values()),
        prompts=sum(http.values()) - int(passed) - http[_SENT_TO_HTTP],
        troubled={outcome: number for outcome, number in http.items() if number and outcome not in _USUAL},
        before=tokens["before"],
        after=tokens["after"],
        share=_share(shown),
        costs={
            currency: (cost, shown.total(catalog.COST_COMPARED, prompts="untrimmed", currency=currency))
            for currency in sorted(shown.by(catalog.COST_COMPARED, "currency"))
            if (cost := shown.total(catalog.COST_COMPARED, prompts="returned", currency=currency))
        },
        untrimmed={
            reason.value: handled[reason]
            for reason in Untrimmed
            if handled[reason] and reason is not Untrimmed.NO_PROMPT
        },
        condensed=int(shown.total(catalog.CONDENSED_TOKENS)),
        originals=shown.by(catalog.RETRIEVALS, "outcome")[Outcome.HIT],
        searches=sum(shown.by(catalog.SEARCHES, "outcome").values()),
        finds={action.value: actions[action] for action in FindingAction if actions[action]},
    )


def _share(shown: MetricFamilies) -> float | None:
    """Return the cost compared with never trimming, using reported usage in place of estimates."""
    prices = RelativePrices()
    costs: dict[str, float] = {}
    for side in ("returned", "untrimmed"):
        kept, new = (
            shown.total(catalog.COMPARED_TOKENS, prompts=side, state=state)
            - shown.total(catalog.RECOUNTED_TOKENS, prompts=side, state=state, by="estimate")
            + shown.total(catalog.RECOUNTED_TOKENS, prompts=side, state=state, by="report")
            for state in ("kept", "new")
        )
        costs[side] = prices.of(kept, new)
    return costs["returned"] / costs["untrimmed"] if costs["untrimmed"] > 0 else None
