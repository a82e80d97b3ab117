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
        """Whether reasoning of finished turns was removed since the caller last cleared this."""

    def remove_invalid(self, new: range) -> None:
        """Remove bound reasoning that is not valid under this prompt, whatever else is trimmed.

        This is reasoning of a model call whose prompt the sidecar did not return, and of an assistant block that was
        edited before it was complete; where a rewind moved our own text it is all reasoning.
        """
        ledger = self._ledger
        if ledger.moved:
            ledger.moved = False
            self.remove_from(0)
        invalid = (
            index
            for index in new
            if ledger.records[index].foreign
            or (ledger.records[index].role is Role.ASSISTANT and ledger.records[index].group == ledger.mid_block)
        )
        self.remove_from(next(invalid, len(ledger)))

    def own_places(self) -> tuple[int, int, int]:
        """Positions of registry and placeholder in the history, and the placeholder's count; -1: no number."""
        ledger = self._ledger
        registry = self._start(ledger.batch_group) if ledger.batch_group >= 0 else len(ledger)
        counted = -1 if ledger.counted_by_placeholder and ledger.unfit_since else ledger.counted_by_placeholder
        return registry, self._start(max(ledger.held, 0)), counted

    def _start(self, group: int) -> int:
        groups = self._ledger.groups
        return groups[group].start if group < len(groups) else len(self._ledger)

    def unbind(self, before: tuple[int, int, int], *, listing: bool) -> None:
        """Remove all reasoning after the first change, including changes of our own text.

        `before`: the positions of our own text before the evaluation. `listing`: whether it is rewritten.
        """
        ledger = self._ledger
        now = self.own_places()
        first = min(ledger.changed_from, before[0], now[0]) if listing else ledger.changed_from
        if before[1:] != now[1:] and (before[2] or now[2]):
            first = min(first, before[1], now[1])
        if listing and not self._inputs.own_in_history and (not ledger.listed or before[2] != now[2]):
            first = 0  # our own text precedes the history, and changes
        self.remove_from(first)
        last = ledger.records[-1]
        ledger.mid_block = last.group if last.role is Role.ASSISTANT else -1

    def remove_closed(self, target: float, first: int = 0) -> None:
        """Remove the reasoning of finished turns, oldest first, until the target is met.

        Reasoning before message `first` is kept until its iteration is dropped: removing it would rewrite everything
        after it in the cache, most of which the cut leaves unchanged.
        """
        ledger, inputs = self._ledger, self._inputs
        if inputs.reasoning is not ReasoningRule.CLOSED_TURNS or (inputs.reasoning_messages and ledger.identified):
            return
        while ledger.reasoning and ledger.reasoning[0].message < ledger.closed and used(ledger, inputs) > target:
            message = ledger.reasoning[0].message
            while ledger.reasoning and ledger.reasoning[0].message == message:
                entry = ledger.reasoning.popleft()
                record = ledger.records[message]
                if not (record.dropped or record.pinned or entry.fixed) and entry.holdable and message >= first:
                    self._remove(entry)
                    self.changed = True
            ledger.reasoning_from = message + 1

    def restore_open(self, has: Callable[[Entry], bool]) -> None:
        """Restore the reasoning of a turn that a rewind has reopened: the provider requires that of an unfinished turn.

        An agent that goes on from trimmed prompts does not have it any more; `has` says what the prompt at hand holds.
        Not where reasoning is bound to its prompt: it was removed because it was no longer valid.
        """
        self._ledger.reopened = False
        if self._inputs.reasoning is ReasoningRule.CLOSED_TURNS:
            self._ledger.restore_reasoning(has)

    def remove_from(self, first: int) -> bool:
        """Remove all reasoning from message `first` on; return whether there was any.

        This includes reasoning that the stash cannot store: the provider would reject the prompt with it.
        """
        ledger = self._ledger
        ledger.alter(first)
        any_removed = False
        while ledger.reasoning and ledger.reasoning[-1].message >= first:
            self._remove(ledger.reasoning.pop())
            any_removed = True
        return any_removed

    def _remove(self, entry: Entry) -> None:
        record = self._ledger.records[entry.message]
        drop = self._inputs.reasoning_messages and record.only_reasoning
        labelled = record.only_reasoning and not drop and entry is record.entries[0]
        label = elide.placeholder(entry.kind, "", entry.size) if labelled else None
        self._ledger.remove_reasoning(entry, self._count(label) if label else 0, drop=drop)
