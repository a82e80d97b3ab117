"""A message that is new becomes a record of the ledger, and its items part of the run's history, before any stage.

Recorded in full are tool results, tool calls' arguments, the text of users and the model, and the text of system
messages that are dropped with their iteration (`Message.tied`) or that a framework put in later (`prompt.injected`).
Not recorded are other system text, our own text, and answers of our own tools, which are recognised by their keyed
tags. Of reasoning the readable text is recorded, but not the provider's signed or encrypted form. A recalled page keeps
the id of its original; it is elided and clipped like any result, and the id leads back to the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from prompt_sidecar.facts.tool_calls import TOOL_NAMES
from prompt_sidecar.facts.trim_calls import Annotation
from prompt_sidecar.prompt.injected import injected
from prompt_sidecar.prompt.items import Item, ItemKind, Message, Role
from prompt_sidecar.prompt.jsontext import digest
from prompt_sidecar.prompt.utf8 import utf8_size
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.recall.tag import AnswerKind, RecognisedAnswer, recognise
from prompt_sidecar.tokens.weigh import Weight
from prompt_sidecar.trim import own_text
from prompt_sidecar.trim.condense.calls import SourceCall, UnreadCall
from prompt_sidecar.trim.entries import Entry, Feedback, Record
from prompt_sidecar.trim.first_sight import is_long_enough
from prompt_sidecar.trim.ids import mint, sealed
from prompt_sidecar.trim.names import names_used
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.repeated_calls import RepeatedCalls

CALL_ID_CHARACTERS: Final = 256
"""Characters of a call id by which search finds an item; providers' ids have up to 64."""
_FIRST: Final = b"chain"
_RECORDED: Final = frozenset(
    {ItemKind.TEXT, ItemKind.SNAPSHOT, ItemKind.ARGUMENTS, ItemKind.RESULT, ItemKind.REASONING}
)
_SPEAKERS: Final = frozenset({Role.USER, Role.ASSISTANT, Role.TOOL})
_FEEDBACK: Final = {
    Annotation.VALIDATION_FEEDBACK: Feedback.VALIDATION,
    Annotation.STEP_ERROR: Feedback.ERROR,
    Annotation.REPETITION_WARNING: Feedback.REPETITION,
}
_PINNING: Final = frozenset({Role.USER, Role.SYSTEM})
"""Roles of the messages that an agent writes itself."""
_SEPARATORS: Final = "_.-/:"
"""What separates a prefix from a tool's name if an agent serves several sources of tools."""


@dataclass(frozen=True, slots=True)
class MessageAnnotations:
    """Annotations of one message by agent and policy."""

    policy: Policy
    pinned: bool = False
    annotation: Annotation | None = None

    def keeps(self, tool: str) -> bool:
        """Whether the policy never trims a tool's results."""
        return tool in self.policy.never_trim_tools

    def pins(self, message: Message) -> bool:
        """Whether a message pins itself by one of the policy's tags; results and the model's messages cannot."""
        if not self.policy.pin_tags or message.role not in _PINNING:
            return False
        return any(self.policy.pins(item.text) for item in message.items if item.kind is ItemKind.TEXT)

    def feedback(self, text: str) -> Feedback | None:
        """Return which feedback a user's text is: by the agent's annotation, else by how it begins."""
        if self.annotation is not None:
            return _FEEDBACK.get(self.annotation)
        return self.policy.feedback(text)


class IncomingMessage(NamedTuple):
    """A new message. A tuple, as `SentMessage`."""

    message: Message
    weight: Weight
    size: int
    """Its size in bytes."""
    place: int
    """Its index in the history."""
    iteration: int
    """The iteration that it belongs to."""
    unmasked: bytes = b""
    """Its identity as it was sent, if its ids were made before it was masked."""
    settled: bool = False
    """See `Record.settled`."""
    unseen: bool = False
    """See `Record.unseen`; its weight is then zero."""
    format: str = ""
    """The name of the prompt's format."""
    opening: bool = True
    """Whether it precedes the first message of the model."""


@dataclass(slots=True)
class Recorder:
    """Makes records of one run's messages, and remembers its calls."""

    of_run: bytes
    """The run's key: makes its ids and signs answers of its tools."""
    hold_bytes: int
    """Bytes of the largest original that the stash can hold."""
    other_keys: Sequence[bytes] = ()
    """The run's keys derived from the sidecar's other keys; signatures made with them are recognised, too."""
    calls: dict[str, tuple[str, str, SourceCall | UnreadCall | None]] = field(default_factory=dict)
    """For each call id the newest call's tool name, start of arguments, and call for what it indicates about its
    result: for results that answer no open call."""
    ids: dict[tuple[int, int, bytes], str] = field(default_factory=dict)
    """Ids that were made before their message was masked, by place, item and the message's identity."""
    ids_of_revision: dict[tuple[int, int], str] = field(default_factory=dict)
    """The same from a revision, by place and item."""
    repeated: RepeatedCalls = field(default_factory=lambda: RepeatedCalls(is_own_tool))
    supersedes: bool = True
    """Whether texts that frameworks inject in mid-run are recognised; not in a run that began under rules before 8."""

    def record(
        self, incoming: IncomingMessage, before: bytes, annotations: MessageAnnotations
    ) -> tuple[Record, list[tuple[HistoryItem, Item]]]:
        """Make the record of a message that `repeated` has observed, and its history items.

        `before`: the chain digest of the history before it.
        """
        message, weight = incoming.message, incoming.weight
        role, identity = message.role, message.identity
        entries: list[Entry] = []
        items: list[tuple[HistoryItem, Item]] = []
        for number, item in enumerate(message.items):
            entry, ours = self._entry(incoming, item, number, annotations)
            if role is Role.USER and item.kind is ItemKind.TEXT and not item.fixed:
                entry.feedback = annotations.feedback(item.text)
                entry.annotated = annotations.annotation is not None
                if annotations.annotation is Annotation.SNAPSHOT or annotations.policy.is_reminder(item.text):
                    entry.kind = ItemKind.SNAPSHOT
            if self.supersedes and entry.kind is ItemKind.TEXT and not (entry.annotated or entry.feedback):
                entry.injected = injected(incoming.format, role, item.text)
            entries.append(entry)
            blocks = item.kind is ItemKind.REASONING and item.raw_json  # its texts are items of their own
            heard = role in _SPEAKERS or message.tied or (entry.injected is not None and not incoming.opening)
            if ours is None and entry.holdable and item.kind in _RECORDED and not blocks and heard:
                speaker = Role.TOOL if item.kind is ItemKind.RESULT else role
                items.append((_history_item(entry, item, speaker, incoming.iteration), item))
        made = Record(
            role=role,
            identity=identity,
            chain=self.chain(before, identity),
            entries=tuple(entries),
            full_tokens=weight.total,
            tokens=weight.total,
            group=-1,
            pinned=annotations.pinned or message.untouchable or incoming.settled or annotations.pins(message),
            kept=message.in_force or any(entry.result >= 0 and annotations.keeps(entry.tool) for entry in entries),
            tied=message.tied,
            final=message.final,
            compacts=message.compacts and not incoming.settled,
            settled=incoming.settled,
            unseen=incoming.unseen,
            calls=message.calls,
            answers=message.answers,
            media=0 if incoming.unseen else message.media,
            opaque=weight.opaque,
            full_opaque=weight.opaque,
            identified=message.identified,
            names=names_used(message, is_own_tool),
        )
        return made, items

    def chain(self, before: bytes, identity: bytes) -> bytes:
        """Return the digest of a history that ends with a message; `before`: that of the part before it, or empty.

        It begins with a keyed digest, as revisions hold it: without the run's key a short text in the history cannot be
        guessed from it.
        """
        return digest((before or sealed(self.of_run, _FIRST)) + identity)

    def _entry(
        self, incoming: IncomingMessage, item: Item, number: int, annotations: MessageAnnotations
    ) -> tuple[Entry, RecognisedAnswer | None]:
        index, tokens, whole = incoming.place, incoming.weight.items[number], incoming.size
        call = item.call_id
        ours = about = None
        if item.kind is ItemKind.ARGUMENTS:
            tool, arguments = item.tool, item.text[: own_text.ARGUMENTS_CHARACTERS]
            tool = tool[: own_text.NAME_CHARACTERS + 1]
            self.calls[call] = (tool, arguments, self.repeated.about(item.path))
        elif item.result >= 0:
            tool, arguments, about = self.repeated.answered(item.result) or self.calls.get(
                call, (item.tool[: own_text.NAME_CHARACTERS + 1], "", None)
            )
            if item.kind is ItemKind.RESULT and is_own_tool(tool):
                ours = recognise(self.of_run, item.text, self.other_keys)
        else:
            tool = arguments = ""
        size = utf8_size(item.text)
        if item.kind is ItemKind.OPAQUE:
            size = whole
        recalled = ours is not None and ours.kind is AnswerKind.RECALLED
        fixed = item.fixed or (item.result >= 0 and annotations.keeps(tool))
        as_sent = fixed or item.raw_json or item.spelled or item.cited or ours is not None or incoming.settled
        condensable = item.kind is ItemKind.RESULT and is_long_enough(size) and not (as_sent or is_own_tool(tool))
        entry = Entry(
            index,
            number,
            item.kind,
            size,
            tokens,
            tokens,
            ours.stash_id if recalled and ours is not None else self._id(incoming, number),
            tool=tool,
            arguments=arguments,
            result=item.result,
            # An original that is raw JSON is as long as its spelling: at most as long as its message.
            holdable=(whole if item.raw_json or item.spelled else size) <= self.hold_bytes,
            recalled=recalled,
            tag=ours.tag if recalled and ours is not None else "",
            fixed=fixed,
            advertised=item.kind is not ItemKind.REASONING,
            opaque=0 if incoming.unseen else item.opaque,
            condensable=condensable,
            call=_read(about) if condensable else None,
        )
        return entry, ours

    def _id(self, incoming: IncomingMessage, number: int) -> str:
        """Return an item's id: the id in earlier prompts, if its message has been masked only since then."""
        place, identity = incoming.place, incoming.message.identity
        known = self.ids.get((place, number, identity)) or self.ids_of_revision.get((place, number))
        if known is None and incoming.unmasked:
            known = mint(self.of_run, place, number, incoming.unmasked)
        if known is None:
            return mint(self.of_run, place, number, identity)
        self.ids[place, number, identity] = known
        return known


def is_own_tool(name: str) -> bool:
    """Whether a tool is one of ours, perhaps under a prefix that distinguishes an agent's sources of tools."""
    if not name.endswith(TOOL_NAMES):
        return False
    return name in TOOL_NAMES or any(name.endswith(own) and name[-len(own) - 1] in _SEPARATORS for own in TOOL_NAMES)


def _read(call: SourceCall | UnreadCall | None) -> SourceCall | None:
    return call.read() if isinstance(call, UnreadCall) else call


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
