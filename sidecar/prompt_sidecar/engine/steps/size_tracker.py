"""The size of a run's history: estimated tokens and items, in total and by kind, as sent and as returned.

Two sums are kept for each kind: the tokens of its items when they were first sent, and their present tokens. A record
adds to both when it is appended; when a decision changes it, its last contribution to the second sum is replaced by its
present one; when a rewind forgets it, both are subtracted. So the cost of a call is proportional to what is new,
changed or forgotten, and the sums equal those of a recount of the whole ledger:

    returned by all kinds  =  overhead + ledger.decisions.total + own text  =  the prompt's tokens after trimming
    sent by all kinds      =  overhead + the untrimmed history

An agent that goes on from trimmed prompts sends less than the second line: the size is that of the run's history.

The ledger need not announce a rewind. Records are objects that live as long as their place in the history does, so
those at the end that are no longer the ledger's own are the forgotten ones.

What surrounds a message's items (role, separators, tool names, the framing of calls and results) goes to the one
kind that the message is mostly there for; with blocks that no reader knows to OTHER. Encrypted text outside the items,
as the signature of a call, is REASONING.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, sub
from typing import Final

from prompt_sidecar.engine.steps.frame import FramedPrompt
from prompt_sidecar.engine.steps.recording import is_own_tool
from prompt_sidecar.facts.history_size import HistorySize, KindSize, SizeKind
from prompt_sidecar.prompt.body import Split
from prompt_sidecar.prompt.format import Format
from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.tokens.weigh import PRIMING
from prompt_sidecar.trim.entries import Record
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.ledger.decisions import weighed

_PLACE: Final = {kind: place for place, kind in enumerate(SizeKind)}
_BY_ROLE: Final = {
    Role.SYSTEM: SizeKind.SYSTEM,
    Role.USER: SizeKind.USER,
    Role.ASSISTANT: SizeKind.ASSISTANT_TEXT,
    Role.TOOL: SizeKind.RESULTS,
    Role.OTHER: SizeKind.OTHER,
}
_BY_ITEM: Final = {
    ItemKind.ARGUMENTS: SizeKind.CALLS,
    ItemKind.RESULT: SizeKind.RESULTS,
    ItemKind.IMAGE: SizeKind.MEDIA,
    ItemKind.OPAQUE: SizeKind.OTHER,
    ItemKind.REASONING: SizeKind.REASONING,
}
"""Items of other kinds are text, which counts for its speaker."""
_PLACE_BY_ROLE: Final = {role: _PLACE[kind] for role, kind in _BY_ROLE.items()}
_PLACE_BY_ITEM: Final = {kind: _PLACE[_BY_ITEM[kind]] for kind in _BY_ITEM}

_CALLS, _RESULTS, _OTHER = _PLACE[SizeKind.CALLS], _PLACE[SizeKind.RESULTS], _PLACE[SizeKind.OTHER]
_REASONING = _PLACE[SizeKind.REASONING]

Sums = tuple[int, ...]
"""A number for each kind, in the order of `SizeKind`."""
_NOTHING: Final[Sums] = (0,) * len(SizeKind)


@dataclass(frozen=True, slots=True)
class Around:
    """What a prompt has in addition to its history."""

    overhead: int
    """Tokens of system prompt, tool schemas and what opens the answer."""
    tool_schemas: int
    """Those of them that are tool schemas."""
    schema_members: int
    """Number of the body's members with these."""
    system_texts: int
    """Number of leading system messages, or of the body's system member."""
    system_messages: int
    own_tokens: int
    own_texts: int
    messages_returned: int


def around_of(
    format_: Format,
    split: Split,
    framed: FramedPrompt,
    members: Mapping[str, tuple[bytes, int]],
    *,
    overhead: int,
    system_messages: int,
    own_tokens: int,
) -> Around:
    """Measure the part of a prompt around its history.

    Args:
        format_: the prompt's format.
        split: the body that was sent.
        framed: the prompt that is returned.
        members: the body's members that take tokens, as last seen, with their tokens.
        overhead: tokens of system prompt, tool schemas and what opens the answer.
        system_messages: leading system messages, without ours.
        own_tokens: tokens of our own text.
    """
    schemas = [name for name in format_.tool_fields if _stands(split, name)]
    in_body = format_.member(split)[1] not in {None, b"null"}
    return Around(
        overhead=overhead,
        tool_schemas=sum(members[name][1] for name in schemas if name in members),
        schema_members=len(schemas),
        system_texts=system_messages + in_body,
        system_messages=system_messages,
        own_tokens=own_tokens,
        own_texts=len(framed.own),
        messages_returned=len(framed.parts),
    )


@dataclass(slots=True)
class SizeTracker:
    """The sums of one run's history. A cache of the ledger: copy it together with that, never alone."""

    _records: list[Record] = field(default_factory=list)
    """The records that were counted."""
    _sent: Sums = _NOTHING
    _returned: Sums = _NOTHING
    _items: Sums = _NOTHING
    recalls: int = 0
    """Tokens, in the untrimmed history, of calls of the sidecar's own tools and of their answers."""
    _changed: dict[int, Sums] = field(default_factory=dict)
    """For records that a decision has changed, their last contribution to `_returned`; others contribute their sent
    size."""

    def measure(self, ledger: Ledger, around: Around, limit: int, opaque_factor: float = 1.0) -> HistorySize:
        """Include the changes since the last call, and return the size.

        Call it once for each prompt, after the last decision is written and before `ledger.decisions.dirty` is cleared.
        """
        self._follow(ledger)
        plus = _beside(around)
        sent = _sum(self._sent, plus)
        returned = _plus(_sum(self._returned, plus), SizeKind.OWN_TEXT, around.own_tokens)
        sent = _plus(sent, SizeKind.REASONING, weighed(ledger.messages.full_opaque, opaque_factor))
        returned = _plus(returned, SizeKind.REASONING, weighed(ledger.decisions.opaque, opaque_factor))
        items = _plus(self._items, SizeKind.SYSTEM, around.system_texts)
        items = _plus(items, SizeKind.TOOL_SCHEMAS, around.schema_members)
        items = _plus(items, SizeKind.OWN_TEXT, around.own_texts)
        total = sum(returned)
        return HistorySize(
            by_kind={kind: KindSize(sent[at], returned[at], items[at]) for kind, at in _PLACE.items()},
            messages=len(self._records) + around.system_messages,
            messages_returned=around.messages_returned,
            tokens_sent=sum(sent),
            tokens_returned=total,
            share_of_limit=total / limit if limit > 0 else 0.0,
        )

    def _follow(self, ledger: Ledger) -> None:
        mine, records = self._records, ledger.records
        while mine and (len(mine) > len(records) or mine[-1] is not records[len(mine) - 1]):
            self._forget(len(mine) - 1)
        for index in ledger.decisions.dirty:
            if index < len(mine):
                self._count_again(index)
        if len(mine) < len(records):
            self._count(records[len(mine) :])

    def _count(self, new: Sequence[Record]) -> None:
        """Add records at the end; their sizes as sent are summed at once, as an unseen prompt has thousands."""
        sent, items = list(_NOTHING), list(_NOTHING)
        first = len(self._records)
        for record in new:
            _add(record, sent, items)
            self.recalls += of_recall(record)
        self._records += new
        self._sent = _sum(self._sent, sent)
        self._items = _sum(self._items, items)
        self._returned = _sum(self._returned, sent)
        for index, record in enumerate(new, first):
            if record.touched:
                self._count_again(index)

    def _count_again(self, index: int) -> None:
        record = self._records[index]
        before, now = self._added(index), as_returned(record)
        self._returned = _sum(_difference(self._returned, before), now)
        self._changed[index] = now

    def _forget(self, index: int) -> None:
        self._returned = _difference(self._returned, self._added(index))
        self._changed.pop(index, None)
        record = self._records.pop()
        self.recalls -= of_recall(record)
        sent, items = as_sent(record)
        self._sent = _difference(self._sent, sent)
        self._items = _difference(self._items, items)

    def _added(self, index: int) -> Sums:
        """Return a record's last contribution to `_returned`."""
        changed = self._changed.get(index)
        return as_sent(self._records[index])[0] if changed is None else changed


# -- one record ------------------------------------------------------------------------------------------------------


def as_sent(record: Record) -> tuple[Sums, Sums]:
    """Return a record's tokens by kind as it was first sent, and its items."""
    tokens, items = list(_NOTHING), list(_NOTHING)
    _add(record, tokens, items)
    return tuple(tokens), tuple(items)


def as_returned(record: Record) -> Sums:
    """Return a record's tokens by kind as it is returned now."""
    tokens = list(_NOTHING)
    if not record.dropped:
        _add(record, tokens, list(_NOTHING), now=True)
    return tuple(tokens)


def of_recall(record: Record) -> int:
    """Return the tokens of a record, as first sent, that are due to the sidecar's own tools."""
    own = [entry for entry in record.entries if entry.tool and is_own_tool(entry.tool)]
    if not own:
        return 0
    return record.full_tokens if len(own) == len(record.entries) else sum(entry.full_tokens for entry in own)


def _add(record: Record, tokens: list[int], items: list[int], *, now: bool = False) -> None:
    """Add a record to the sums of tokens and items, as it was sent or, `now`, as it is returned."""
    speaker = home = _PLACE_BY_ROLE[record.role]
    if record.calls:
        home = _CALLS
    elif record.answers:
        home = _RESULTS
    signed = record.full_opaque - sum(entry.opaque for entry in record.entries)
    tokens[_REASONING] += signed
    around = (record.tokens if now else record.full_tokens) - signed
    for entry in record.entries:
        at = _PLACE_BY_ITEM.get(entry.kind, speaker)
        taken = entry.tokens if now else entry.full_tokens
        tokens[at] += taken
        items[at] += 1
        around -= taken
        if entry.kind is ItemKind.OPAQUE:
            home = _OTHER
    tokens[home] += around


# -- sums ------------------------------------------------------------------------------------------------------------


def _beside(around: Around) -> Sums:
    sums = _plus(_NOTHING, SizeKind.SYSTEM, around.overhead - PRIMING - around.tool_schemas)
    return _plus(_plus(sums, SizeKind.TOOL_SCHEMAS, around.tool_schemas), SizeKind.OTHER, PRIMING)


def _stands(split: Split, name: str) -> bool:
    return split.field(name) not in {None, b"null"}


def _sum(one: Sums, other: Sequence[int]) -> Sums:
    return tuple(map(add, one, other))


def _difference(one: Sums, other: Sums) -> Sums:
    return tuple(map(sub, one, other))


def _plus(sums: Sums, kind: SizeKind, number: int) -> Sums:
    at = _PLACE[kind]
    return (*sums[:at], sums[at] + number, *sums[at + 1 :])
