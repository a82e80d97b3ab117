"""The oldest iterations, whose results stay while those after them are clipped: what a cut does not write again.

A cut has everything written again that comes after the first message it changes. Were it always the oldest result that
went first, that would be nearly all of what is left; so some of the oldest stay, and each cut changes what comes next.
docs/when-to-cut.md reckons what this is worth.
"""

from __future__ import annotations

from typing import Final

from prompt_sidecar.trim.entries import HEAVY, LIGHT, QUEUE_OF
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.policy import Policy

BETWEEN: Final = 0.1
"""Share of the limit that a cut leaves at least for what is neither oldest nor newest."""


def hold_oldest(ledger: Ledger, policy: Policy, limit: int, fixed: int) -> None:
    """Choose, at the first batch point, how many of the oldest groups keep their results.

    They get no more than the low mark leaves beside what is never clipped, the newest groups, and some room for what
    lies between: in a small window the newest are worth it all.

    Args:
        ledger: the decisions.
        policy: what is in force.
        limit: tokens.
        fixed: tokens of system prompt, tool schemas and the room for our own text.
    """
    old = len(ledger.groups) - max(policy.keep(kind) for kind in HEAVY)
    if policy.age_hard_cap_iterations or old <= 0 or (ledger.held < 0 and ledger.batches):
        ledger.release()
    if ledger.held >= 0:
        return
    newest = ledger.groups[old].start if old < len(ledger.groups) else len(ledger)
    stays = (*ledger.records[: ledger.groups[0].start], *ledger.records[newest:])
    room = (policy.fit_low - BETWEEN) * limit - fixed - sum(record.tokens for record in stays)
    room = min(room, policy.oldest_share * limit)
    groups = 0
    while groups < old:
        records = (ledger.records[index] for index in ledger.members(groups))
        room -= sum(
            entry.tokens for record in records for entry in record.entries if QUEUE_OF.get(entry.kind) not in LIGHT
        )
        if room < 0:
            break
        groups += 1
    ledger.hold(groups)
