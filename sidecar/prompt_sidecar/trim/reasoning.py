"""Removing reasoning in one evaluation, by the provider's rule (`ReasoningRule`); see `prompt_sidecar.trim.stages`."""

from __future__ import annotations

from collections.abc import Callable

from prompt_sidecar.prompt.format import ReasoningRule
from prompt_sidecar.prompt.items import Role
from prompt_sidecar.trim import elide
from prompt_sidecar.trim.entries import Entry
from prompt_sidecar.trim.inputs import Inputs, used
from prompt_sidecar.trim.ledger import Ledger


class Reasoning:
    """The reasoning in one evaluation, and whether any was removed."""

    def __init__(self, ledger: Ledger, inputs: Inputs, count: Callable[[str], int]) -> None:
        """Start an evaluation; `count` counts a text's tokens."""
        self._ledger = ledger
        self._inputs = inputs
        self._count = count
        self.changed = False
        """Whether reasoning of finished turns was removed since the caller last reset this."""

    def remove_invalid(self, new: range) -> None:
        """Remove bound reasoning that is not valid under this prompt, whatever else is trimmed.

        That is the reasoning of a model call whose prompt the sidecar did not return, or of an assistant block that was
        edited before it was complete; where a rewind moved our own text, all reasoning.
        """
        ledger = self._ledger
        if ledger.thinking.take_moved():
            self.remove_from(0)
        invalid = (
            index
            for index in new
            if ledger.records[index].foreign
            or (
                ledger.records[index].role is Role.ASSISTANT
                and ledger.records[index].group == ledger.thinking.mid_block
            )
        )
        self.remove_from(next(invalid, len(ledger)))

    def own_places(self) -> tuple[int, int, int]:
        """Positions of registry and placeholder in the history, and the placeholder's count; -1: no number."""
        ledger = self._ledger
        batch_group, counted = ledger.registry.batch_group, ledger.drops.by_placeholder
        registry = self._start(batch_group) if batch_group >= 0 else len(ledger)
        counted = -1 if counted and ledger.registry.unfit_since else counted
        return registry, self._start(ledger.own_from), counted

    def _start(self, group: int) -> int:
        groups = self._ledger.groups
        return groups[group].start if group < len(groups) else len(self._ledger)

    def unbind(self, before: tuple[int, int, int], *, listing: bool) -> None:
        """Remove all reasoning after the first change, including changes of our own text.

        `before`: the positions of our own text before the evaluation. `listing`: whether our own text is rewritten.
        """
        ledger = self._ledger
        now = self.own_places()
        changed_from = ledger.decisions.changed_from
        first = min(changed_from, before[0], now[0]) if listing else changed_from
        if before[1:] != now[1:] and (before[2] or now[2]):
            first = min(first, before[1], now[1])
        if listing and not self._inputs.own_in_history and (not ledger.registry.listed or before[2] != now[2]):
            first = 0  # our own text precedes the history, and changes
        self.remove_from(first)
        ledger.thinking.end_with(ledger.records[-1])

    def remove_closed(self, target: float, first: int = 0) -> None:
        """Remove the reasoning of finished turns, oldest first, until the target is met.

        Reasoning before message `first` is kept until its iteration is dropped: removing it would rewrite everything
        after it in the cache, most of which the cut leaves unchanged.
        """
        ledger, inputs = self._ledger, self._inputs
        if inputs.reasoning is not ReasoningRule.CLOSED_TURNS or (
            inputs.reasoning_messages and ledger.messages.identified
        ):
            return
        thinking = ledger.thinking
        while thinking.left and thinking.left[0].message < thinking.closed and used(ledger, inputs) > target:
            for entry in thinking.take_oldest():
                record = ledger.records[entry.message]
                if not (record.dropped or record.pinned or entry.fixed) and entry.holdable and entry.message >= first:
                    self._remove(entry)
                    self.changed = True

    def restore_open(self, has: Callable[[Entry], bool]) -> None:
        """Restore the reasoning of a turn that a rewind has reopened: the provider requires that of an unfinished turn.

        An agent that continues from trimmed prompts does not have it any more; `has` shows what the current prompt
        holds. Nothing is restored where reasoning is bound to its prompt: it was removed because it was no longer
        valid.
        """
        self._ledger.thinking.restore_open(
            has if self._inputs.reasoning is ReasoningRule.CLOSED_TURNS else lambda _: False
        )

    def remove_from(self, first: int) -> bool:
        """Remove all reasoning from message `first` on; return whether there was any.

        This includes reasoning that the stash cannot store: the provider would reject a prompt with it.
        """
        ledger = self._ledger
        ledger.thinking.alter(first)
        removed = ledger.thinking.take_from(first)
        for entry in removed:
            self._remove(entry)
        return bool(removed)

    def _remove(self, entry: Entry) -> None:
        record = self._ledger.records[entry.message]
        drop = self._inputs.reasoning_messages and record.only_reasoning
        labelled = record.only_reasoning and not drop and entry is record.entries[0]
        label = elide.placeholder(entry.kind, "", entry.size) if labelled else None
        self._ledger.decisions.remove_reasoning(entry, self._count(label) if label else 0, drop=drop)
