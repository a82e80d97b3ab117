"""The model's reasoning: what is not removed yet, and where a provider requires it or allows its absence.

Where a provider requires the reasoning of the current turn, turns decide. Where a block is valid only under the prompt
that it was produced under, the returned prompts decide.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

import msgspec

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim.entries import Action, Entry, Record
from prompt_sidecar.trim.ledger.decisions import Decisions
from prompt_sidecar.trim.ledger.messages import Messages


class ThinkingState(msgspec.Struct, frozen=True, array_like=True):
    """The part of a run's reasoning state that does not follow from its history."""

    looked_from: int
    mid_block: int


class Thinking:
    """The reasoning of a run."""

    def __init__(self, messages: Messages, decisions: Decisions) -> None:
        self._messages = messages
        self._decisions = decisions
        self.left: deque[Entry] = deque()
        """Reasoning that has not been removed, oldest first, including that of dropped messages."""
        self.looked_from = 0
        """First message whose reasoning has yet to be considered for removal."""
        self.closings: list[int] = []
        """Indices of user messages that end the turn before them. A user turn that also answers calls continues the
        turn of those calls, so its messages are not listed."""
        self._answering = False
        """Whether the user turn at the end of the history answers calls."""
        self.reopened = False
        """Whether a rewind has made a finished turn the current one."""
        self.moved = False
        """Whether the position or the count of our own text has changed where later thinking does not allow it."""
        self.mid_block = -1
        """The group whose assistant block was incomplete when a message before it was edited; -1 if there is none."""
        self._returned: list[int] = []
        """Lengths of the history at which prompts were returned that would be rendered the same now; ascending."""
        self._altered = False
        """Whether any decision has changed a prompt that was returned, or its reasoning."""
        self._rewound_to = -1
        """The record from which the current prompt differs from the previous one; -1 if it does not, or nothing was
        decided yet. The model's messages from there on answered a prompt like this one only if it was returned."""

    @property
    def closed(self) -> int:
        """Number of messages before the user's last text."""
        return self.closings[-1] if self.closings else 0

    # -- life --------------------------------------------------------------------------------------------------------

    def append(self, record: Record) -> None:
        """Add a new message, the last one of the history."""
        index = len(self._messages) - 1
        if 0 <= self._rewound_to <= index and record.role is Role.ASSISTANT:
            before = self._messages.records[index - 1 : index]
            goes_on = index > self._rewound_to and before[0].role is Role.ASSISTANT
            # None of the remaining lengths is greater than that of the rewind.
            answers_other_prompt = before[0].foreign if goes_on else self._returned[-1:] != [index]
            record.foreign = record.foreign or answers_other_prompt
        self._answering = record.role is Role.USER and (bool(record.answers) or self._answering)
        if record.role is Role.USER and record.entries and not self._answering:
            self.closings.append(index)
        if not record.settled:
            self.left += (entry for entry in record.entries if entry.kind is ItemKind.REASONING)

    def rewind(self, length: int) -> None:
        """Forget the messages from `length` on, after `Messages` did."""
        self.look_from(0)
        while self.closings and self.closings[-1] >= length:
            self.closings.pop()
            self.reopened = True
        self._answering = False
        for record in reversed(self._messages.records):
            if record.role is not Role.USER or self._answering:
                break
            self._answering = bool(record.answers)
        self.mid_block = min(self.mid_block, len(self._messages.groups) - 1)
        self._forget_returned(length)
        decided = self._altered or any(record.dropped or record.touched for record in self._messages.records)
        self._rewound_to = length if decided else -1

    def _forget_returned(self, length: int) -> None:
        while self._returned and self._returned[-1] > length:
            self._returned.pop()

    def save(self) -> ThinkingState:
        """Return the state that does not follow from the history."""
        return ThinkingState(self.looked_from, self.mid_block)

    def load(self, state: ThinkingState) -> None:
        """Load the state from elsewhere."""
        self.look_from(state.looked_from)
        self.mid_block = state.mid_block

    def look_from(self, first: int) -> None:
        """Make `left` hold all reasoning that is not removed, from message `first` on."""
        self.looked_from = first
        self.left = deque(
            entry
            for record in islice(self._messages.records, first, None)
            for entry in record.entries
            if entry.kind is ItemKind.REASONING and entry.action is None and not record.settled
        )

    # -- removing ----------------------------------------------------------------------------------------------------

    def take_oldest(self) -> list[Entry]:
        """Remove from `left` and return all reasoning of the oldest message that has any.

        It is not considered again.
        """
        message = self.left[0].message
        taken: list[Entry] = []
        while self.left and self.left[0].message == message:
            taken.append(self.left.popleft())
        self.looked_from = message + 1
        return taken

    def take_from(self, first: int) -> list[Entry]:
        """Remove from `left` and return all reasoning from message `first` on, newest first."""
        taken: list[Entry] = []
        while self.left and self.left[-1].message >= first:
            taken.append(self.left.pop())
        return taken

    def restore_open(self, has: Callable[[Entry], bool]) -> None:
        """Undo the removal of reasoning after the user's last text, where a rewind has reopened a turn.

        `has`: whether the current prompt holds an item. An item that it does not hold takes no tokens, and stays
        removed.
        """
        self.reopened = False
        restored = [
            entry
            for record in islice(self._messages.records, self.closed, None)
            for entry in record.entries
            if entry.kind is ItemKind.REASONING and entry.action is Action.CLIPPED and has(entry)
        ]
        for entry in restored:
            self._decisions.restore_reasoning(entry)
        if restored:
            self.look_from(0)

    def end_with(self, record: Record) -> None:
        """Record, after a message before the last was edited, whether the last one's block is incomplete."""
        self.mid_block = record.group if record.role is Role.ASSISTANT else -1

    def own_text_moved(self) -> None:
        """Record that thinking is no longer valid, as our own text before it has another place or count."""
        self.moved = True

    def take_moved(self) -> bool:
        """Whether our own text has moved since the last call."""
        moved, self.moved = self.moved, False
        return moved

    # -- returned prompts --------------------------------------------------------------------------------------------

    def note_returned(self) -> None:
        """Record that a prompt that ends here is returned."""
        self._rewound_to = -1
        if self._returned[-1:] != [len(self._messages)]:
            self._returned.append(len(self._messages))

    def alter(self, first: int) -> None:
        """Record that prompts reaching beyond record `first` no longer equal the returned ones."""
        self._altered |= first < len(self._messages)
        self._forget_returned(first)
