"""A message that is new becomes a record of the ledger, and its items part of the run's history, before any stage.

Recorded are tool results, tool calls' arguments, and the text of users and the model, in full. Not recorded are system
text, our own text, and what our own tools answered, which is known by its keyed tag; nor reasoning as the provider
signed or encrypted it, but the text in it that can be read is. A recalled page keeps the id of
the original that it was cut from; it is elided and clipped like any result, and leads back to the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from prompt_sidecar.facts.tool_calls import TOOL_NAMES
from prompt_sidecar.facts.trim_calls import Annotation
from prompt_sidecar.prompt.items import Item, ItemKind, Message, Role
from prompt_sidecar.prompt.jsontext import digest
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.recall.tag import AnswerKind, Recognised, recognise
from prompt_sidecar.tokens.weigh import Weight
from prompt_sidecar.trim import own_text
from prompt_sidecar.trim.entries import Entry, Feedback, Record
from prompt_sidecar.trim.ids import mint
from prompt_sidecar.trim.names import names_used
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.repeated_calls import RepeatedCalls

CALL_ID_CHARACTERS: Final = 256
"""Characters of a call id that search finds an item by; providers' ids have up to 64."""
_RECORDED: Final = frozenset(
    {ItemKind.TEXT, ItemKind.SNAPSHOT, ItemKind.ARGUMENTS, ItemKind.RESULT, ItemKind.REASONING}
)
_SPEAKERS: Final = frozenset({Role.USER, Role.ASSISTANT, Role.TOOL})
_FEEDBACK: Final = {
    Annotation.VALIDATION_FEEDBACK: Feedback.VALIDATION,
    Annotation.STEP_ERROR: Feedback.ERROR,
    Annotation.REPETITION_WARNING: Feedback.REPETITION,
}
_SEPARATORS: Final = "_.-/:"
"""What separates a prefix from a tool's name where an agent serves several sources of tools."""


@dataclass(frozen=True, slots=True)
class Said:
    """What agent and policy say about one message."""

    policy: Policy
    pinned: bool = False
    annotation: Annotation | None = None

    def feedback(self, text: str) -> Feedback | None:
        """What a user's text is as feedback: by the agent's word, else by how it begins."""
        if self.annotation is not None:
            return _FEEDBACK.get(self.annotation)
        return self.policy.feedback(text)


class Came(NamedTuple):
    """A message that is new. A tuple, as `Read`."""

    message: Message
    weight: Weight
    bytes: int
    place: int
    """In the history."""
    iteration: int
    """The one that it belongs to."""


@dataclass(slots=True)
class Recorder:
    """Makes records of one run's messages, and remembers its calls."""

    of_run: bytes
    """The run's key: mints its ids and signs what its tools answer."""
    hold_bytes: int
    """Bytes of the largest original that the stash can hold."""
    calls: dict[str, tuple[str, str]] = field(default_factory=dict)
    """For each call id the tool's name and the start of its arguments, of the newest call: for results that answer no
    open one."""
    repeated: RepeatedCalls = field(default_factory=lambda: RepeatedCalls(is_own_tool))

    def record(self, came: Came, before: bytes, said: Said) -> tuple[Record, list[tuple[HistoryItem, Item]]]:
        """Make the record of a message that `repeated` has observed, and the history items that it brings.

        `before` is the chain digest of the history before it.
        """
        message, weight = came.message, came.weight
        role, identity = message.role, message.identity
        entries: list[Entry] = []
        items: list[tuple[HistoryItem, Item]] = []
        for number, item in enumerate(message.items):
            entry, ours = self._entry(came, item, number)
            if role is Role.USER and item.kind is ItemKind.TEXT and not item.fixed:
                entry.feedback = said.feedback(item.text)
                entry.annotated = said.annotation is not None
                if said.annotation is Annotation.SNAPSHOT:
                    entry.kind = ItemKind.SNAPSHOT
            entries.append(entry)
            blocks = item.kind is ItemKind.REASONING and item.raw_json  # its texts are items of their own
            if ours is None and entry.holdable and item.kind in _RECORDED and not blocks and role in _SPEAKERS:
                speaker = Role.TOOL if item.kind is ItemKind.RESULT else role
                items.append((_history_item(entry, item, speaker, came.iteration), item))
        made = Record(
            role=role,
            identity=identity,
            chain=digest(before + identity),
            entries=tuple(entries),
            full_tokens=weight.total,
            tokens=weight.total,
            group=-1,
            pinned=said.pinned or message.untouchable,
            calls=message.calls,
            answers=message.answers,
            media=message.media,
            opaque=weight.opaque,
            full_opaque=weight.opaque,
            identified=message.identified,
            names=names_used(message, is_own_tool),
        )
        return made, items

    def _entry(self, came: Came, item: Item, number: int) -> tuple[Entry, Recognised | None]:
        index, tokens, whole = came.place, came.weight.items[number], came.bytes
        call = item.call_id
        ours = None
        if item.kind is ItemKind.ARGUMENTS:
            tool, arguments = item.tool, item.text[: own_text.ARGUMENTS_CHARACTERS]
            tool = tool[: own_text.NAME_CHARACTERS + 1]
            self.calls[call] = (tool, arguments)
        elif item.result >= 0:
            tool, arguments = self.repeated.answered(item.result) or self.calls.get(
                call, (item.tool[: own_text.NAME_CHARACTERS + 1], "")
            )
            if item.kind is ItemKind.RESULT and is_own_tool(tool):
                ours = recognise(self.of_run, item.text)
        else:
            tool = arguments = ""
        size = len(item.text) if item.text.isascii() else len(item.text.encode())
        if item.kind is ItemKind.OPAQUE:
            size = whole
        recalled = ours is not None and ours.kind is AnswerKind.RECALLED
        entry = Entry(
            index,
            number,
            item.kind,
            size,
            tokens,
            tokens,
            ours.stash_id if recalled and ours is not None else mint(self.of_run, index, number, came.message.identity),
            tool=tool,
            arguments=arguments,
            result=item.result,
            # An original that is raw JSON is as long as it is spelled: at most as the message that it stands in.
            holdable=(whole if item.raw_json else size) <= self.hold_bytes,
            recalled=recalled,
            fixed=item.fixed,
            advertised=item.kind is not ItemKind.REASONING,
            opaque=item.opaque,
        )
        return entry, ours


def is_own_tool(name: str) -> bool:
    """Whether a tool is one of ours, perhaps under a prefix that distinguishes an agent's sources of tools."""
    if not name.endswith(TOOL_NAMES):
        return False
    return name in TOOL_NAMES or any(name.endswith(own) and name[-len(own) - 1] in _SEPARATORS for own in TOOL_NAMES)


def _history_item(entry: Entry, item: Item, role: Role, iteration: int) -> HistoryItem:
    return HistoryItem(
        entry.stash_id,
        role,
        item.kind,
        entry.tool,
        item.call_id[:CALL_ID_CHARACTERS],
        iteration,
        entry.message,
        entry.size,
        item.content_type,
    )
