"""Tool calls without a result in a history that goes on after them.

Agents that run several calls of one turn at once lose results: a tool was cancelled, a crash, the agent's own cuts.
Providers refuse such a history ("tool_call_ids did not have response messages" is OpenAI's answer), or the model
assumes that the call was made. The sidecar adds no such defect and repairs none: it reports each one once, when a
prompt first shows it.
"""

from __future__ import annotations

from collections.abc import Iterator

from prompt_sidecar.facts.guard_calls import UNANSWERED_CALL, Finding, FindingAction
from prompt_sidecar.trim.ledger import Ledger


def unanswered_calls(ledger: Ledger, known: int, since: int = 0) -> Iterator[Finding]:
    """Yield a finding for each assistant block before the newest one some of whose calls have no result.

    Args:
        ledger: the run's, with the prompt in hand.
        known: number of its records that earlier prompts had; blocks followed by other blocks there were reported.
        since: the iteration of the run's last answer, where the run has forgotten its history and reads it again.
    """
    before = min(known, len(ledger))
    newest = max(ledger.records[before - 1].group, 0) if before else 0
    for index in range(max(newest, since - 2), len(ledger.groups) - 1):
        group = ledger.groups[index]
        if group.unanswered > 0:
            yield Finding(UNANSWERED_CALL, FindingAction.OBSERVED, group.start, -1, group.unanswered)
