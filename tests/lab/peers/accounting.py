"""From prompts to figures: what a strategy's prompts cost, what is left in them, and the least that a run can cost.

The floor is what a run costs at least if the newest half budget always stays verbatim.

A run is a head (system prompt and opening user messages, which stay) and groups (an assistant message and what
follows it). H is the head's tokens, g_i those of group i, n_t the groups of prompt t, and
T_t(c) = H + g_c + … + g_{n_t - 1} its tokens when the groups before c are dropped. With n_t = 0 the only cut is 0.

Let s_t be the first cut with T_t(c) <= budget / 2, at most n_t - 1: from there on the prompt must stay as it is. A
strategy may keep more, so a cut c is allowed if c <= s_t and T_t(c) <= budget; c = s_t always is. Prices are r for a
token of a kept prefix and w for one that is written. The least cost V_t(c) of the prompts up to t, the last cut at c:

    V_0(c) = w T_0(c)
    V_t(c) = min( V_{t-1}(c) + r T_{t-1}(c) + w (T_t(c) - T_{t-1}(c)),        the cut stays: what is new is written
                  min over c' of V_{t-1}(c') + r H + w (T_t(c) - H) )         it moves: all behind the head is written

and the floor is the least V_T(c). Since it knows the whole run beforehand, no strategy that must decide as it goes can
be expected to reach it.

That cuts are enough: whatever else a strategy leaves before the newest half budget (an old group here, a placeholder
there) must be paid for again at every call, and saves nothing later, as no later prompt needs it: dropping it at the
last change before, or at the start, costs no more. The tests try all ways to keep old groups on small runs.

The control drops to the same s_t when it passes the budget, so it is one of these strategies and never cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean, median
from typing import Any

from tests.lab.peers.contenders import Outcome
from tests.lab.peers.material import Material, Turn
from tests.oracle.baselines import CACHE_READ, CACHE_WRITE, LOW_WATER, Sized, cost, kept_prefix
from tests.oracle.runs import Run
from tests.oracle.validity import Kind, defects, new_defects, refused


def shape_of(prompts: Sequence[Sequence[Sized]]) -> tuple[int, list[int], list[int]]:
    """Return the head's tokens, those of each group of the last prompt, and how many groups each prompt has."""
    head, groups = 0, list[int]()
    for message in prompts[-1]:
        if message.opens:
            groups.append(0)
        if groups:
            groups[-1] += message.entry[1]
        else:
            head += message.entry[1]
    return head, groups, [sum(message.opens for message in prompt) for prompt in prompts]


def floor(head: int, groups: Sequence[int], counts: Sequence[int], budget: int) -> float:
    """Return the least cost of a run, in prices of one plain token.

    Args:
        head: tokens that always stay.
        groups: tokens of each group.
        counts: groups of each prompt, not decreasing.
        budget: tokens that a prompt may take.
    """
    sums = [0, *accumulate(groups)]
    least: dict[int, float] = {}
    before = 0
    for count in counts:
        total = {cut: head + sums[count] - sums[cut] for cut in allowed(head, sums, count, budget)}
        moved = min(least.values(), default=0.0) + (CACHE_READ if least else CACHE_WRITE) * head
        fresh = {cut: moved + CACHE_WRITE * (tokens - head) for cut, tokens in total.items()}
        for cut in total.keys() & least.keys():
            old = head + sums[before] - sums[cut]
            stays = least[cut] + CACHE_READ * old + CACHE_WRITE * (total[cut] - old)
            fresh[cut] = min(fresh[cut], stays)
        least, before = fresh, count
    return min(least.values(), default=0.0)


def allowed(head: int, sums: Sequence[int], count: int, budget: int) -> list[int]:
    """Return the cuts that a prompt of `count` groups may have; `sums` are running sums of the groups' tokens."""
    half = int(budget * LOW_WATER)
    latest = max(count - 1, 0)
    must = next((cut for cut in range(latest) if head + sums[count] - sums[cut] <= half), latest)
    return [cut for cut in range(must + 1) if cut == must or head + sums[count] - sums[cut] <= budget]


PAIRING = frozenset({Kind.ORPHANED_RESULT, Kind.MISPLACED_RESULT, Kind.DUPLICATE_RESULT, Kind.UNANSWERED_CALL})
"""What a provider refuses a prompt for when calls and results no longer belong together."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One row of the table."""

    sent: int
    """Tokens of all prompts."""
    cost: float
    """In prices of one plain token: 0.1 for each of a kept prefix, 1.25 for each other."""
    kept: float
    """Share of the prompts' tokens that the next prompt begins with."""
    over: int
    """Prompts over the budget."""
    unavoidable: int
    """Of those, the ones whose system prompt, opening and newest turn alone are over it."""
    pairing: int
    """Prompts in which calls and results do not belong together and did in the sent prompt."""
    refused: int
    """Prompts with any new defect for which the format's provider refuses them, pairing among them."""
    verbatim: float
    """Share of the tool results' characters that a prompt shows, averaged over the prompts."""
    recallable: float | None
    """See Outcome."""
    task: bool
    """Whether every prompt has the first user message as it was sent."""
    p50: float | None
    """Seconds of a call; None: there is none."""

    @property
    def sound(self) -> bool:
        """Whether no prompt is over the budget that need not be, and none has a new defect."""
        return self.over <= self.unavoidable and not self.refused


def figures(outcome: Outcome, material: Material, budget: int) -> Figures:
    """Measure an outcome."""
    made = outcome.turns
    entries = [material.entries(turn) for turn in made]
    totals = [material.tokens(turn) for turn in made]
    kept = sum(_tokens(new[: kept_prefix(old, new)]) for old, new in pairwise(entries))
    before = sum(_tokens(turn) for turn in entries[:-1])
    shown = [material.verbatim(turn, length) for turn, length in zip(made, material.lengths, strict=True)]
    over = [place for place, tokens in enumerate(totals) if tokens > budget]
    fresh = [
        fresh_kinds(material.run, length, material.messages(turn))
        for turn, length in zip(made, material.lengths, strict=True)
    ]
    return Figures(
        sent=sum(totals),
        cost=cost(entries),
        kept=kept / before if before else 1.0,
        over=len(over),
        unavoidable=sum(least(material, material.lengths[place]) > budget for place in over),
        pairing=sum(bool(kinds & PAIRING) for kinds in fresh),
        refused=sum(bool(kinds) for kinds in fresh),
        verbatim=fmean(found) if (found := [share for share in shown if share is not None]) else 1.0,
        recallable=outcome.recallable,
        task=all(material.first_user in turn for turn in made),
        p50=median(outcome.seconds) if outcome.seconds else None,
    )


def fresh_kinds(run: Run, length: int, messages: Sequence[Any]) -> set[Kind]:
    """Return the kinds of defects of a prompt that the first `length` messages of the run do not have."""
    shown = {"messages": list(messages)}
    if not refused(defects(run.format, shown)):
        return set()
    fresh = new_defects(run.format, {"messages": list(run.messages[:length])}, shown)
    return {defect.kind for defect in refused(fresh)}


def least(material: Material, length: int) -> int:
    """Return the tokens of the system prompt, the opening and the newest group: what no strategy should touch."""
    digests: Turn = material.sent(length)
    opens = [place for place, message in enumerate(material.sized(length)) if message.opens]
    return material.tokens(digests[: opens[0]] + digests[opens[-1] :] if opens else digests)


def _tokens(entries: Sequence[tuple[bytes, int]]) -> int:
    return sum(tokens for _, tokens in entries)
