"""The oldest iterations, whose results are kept while later ones are clipped, so that their prefix stays cached.

A cut makes the provider process everything again after the first message it changes. If cuts always began at the oldest
result, that would be nearly the whole prompt; so some of the oldest results are kept, and cuts change what follows.
docs/when-to-cut.md measures what this saves.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Final

from prompt_sidecar.trim.entries import HEAVY, LIGHT, QUEUE_OF
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.policy import Policy

BETWEEN: Final = 0.1
"""Least share of the limit that is left for what is neither oldest nor newest."""
REMAINDER: Final = 60
"""Tokens, roughly, that clipping leaves of an iteration in addition to arguments and text: a call, and a result's
label."""
FEWEST_NEWEST: Final = 2
"""Newest iterations that are not clipped even where they do not fit below the low-water mark, if the policy keeps as
many: the results that the model has not seen yet, and what it has just done."""


def newest_that_fit(ledger: Ledger, most: int, room: float) -> int:
    """Return how many of the newest groups, at most `most`, take up to `room` tokens as they are now.

    Not fewer than `FEWEST_NEWEST`. If more were kept, a cut could not reach its mark, and the next would follow soon.
    """
    for number in range(1, min(most, len(ledger.groups)) + 1):
        members = ledger.messages.members(len(ledger.groups) - number)
        room -= ledger.decisions.tokens_between(members.start, members.stop)
        if room < 0:
            return min(most, max(number - 1, FEWEST_NEWEST))
    return most


def hold_oldest(ledger: Ledger, policy: Policy, limit: int, fixed: int, *, framing: bool = True) -> None:
    """Choose, at the first batch point, how many of the oldest groups keep their results.

    They get at most what the low-water mark leaves after what is never clipped, the newest groups, and some room for
    the groups in between; in a small window that is nothing.

    Args:
        ledger: the decisions.
        policy: the policy in force.
        limit: the prompt's limit in tokens.
        fixed: tokens of system prompt, tool schemas and the reserve for our own text.
        framing: whether their share includes what surrounds calls and results; in a run that began under rules before
            9 it does not.
    """
    old = len(ledger.groups) - max(policy.keep(kind) for kind in HEAVY)
    if policy.age_hard_cap_iterations or old <= 0 or (ledger.queues.held < 0 and ledger.registry.batches):
        ledger.release()
    if ledger.queues.held >= 0:
        return
    newest = ledger.groups[old].start if old < len(ledger.groups) else len(ledger)
    stays = (*ledger.records[: ledger.groups[0].start], *ledger.records[newest:])
    room = (policy.fit_low - BETWEEN) * limit - fixed - sum(record.tokens for record in stays)
    room = min(room, policy.oldest_share * limit)
    groups = 0
    while groups < old:
        records = [ledger.records[index] for index in ledger.messages.members(groups)]
        entries = [entry for record in records for entry in record.entries]
        light = sum(entry.tokens for entry in entries if QUEUE_OF.get(entry.kind) in LIGHT)
        room -= sum(record.tokens if framing else sum(entry.tokens for entry in record.entries) for record in records)
        room += light
        if room < 0:
            break
        groups += 1
    ledger.hold(groups)


def newest_light(ledger: Ledger, room: float) -> int:
    """Return the first of the newest messages whose arguments and text stay, up to `room` tokens.

    They are what the model did and said. Its next actions refer to them more than to results of the same age, and they
    are small. While they stay their iteration is not dropped, so what else is left of it counts too.
    """
    queues = [ledger.queues.by_age[kind] for kind in LIGHT]
    left = heapq.merge(
        *(itertools.islice(reversed(queue.entries), len(queue.entries) - queue.done) for queue in queues),
        key=lambda entry: entry.message,
        reverse=True,
    )
    first = len(ledger)
    for message, entries in itertools.groupby(left, key=lambda entry: entry.message):
        room -= REMAINDER + sum(entry.tokens for entry in entries)
        if room < 0:
            break
        first = message
    return first
