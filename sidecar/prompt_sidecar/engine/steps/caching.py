"""Marks that make the provider cache a prompt, and the cache key of a run, if the policy asks for them.

Marks are placed last, on the returned prompt: no count, comparison or decision depends on them. A provider finds a
cache entry again only at a mark, or a few blocks before one, so marks are placed where a later prompt has the same
bytes:

    system ── oldest that stays ── edited … ── previous prompt's end ── newest ── our note
           1                    2                                    3         4

1 outlives every cut. 2 is at the first edit of the last cut: the part before it was cached earlier, and is read again
at the next cut. 3 is where the previous prompt had its 4, however many blocks a turn adds. All four follow from the
prompt and the decisions, so they move only as the prompt grows or is cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

import orjson

from prompt_sidecar.engine.steps.frame import FramedPrompt, replace_members
from prompt_sidecar.engine.steps.opening import OpenedPrompt
from prompt_sidecar.errors import InvalidJson, TooLarge
from prompt_sidecar.facts.trim_calls import OwnTextPlace
from prompt_sidecar.prompt.body import Split
from prompt_sidecar.prompt.cache_marks import MOST_MARKS, CacheMarks

_NULL: Final = (None, b"null")
_STEPS: Final = 16
"""Messages that are tried for one mark: a turn of the model with parallel calls seldom has more."""
_KEY_CHARACTERS: Final = 32
"""Characters of a key, of 64 that it may have; 128 bits."""


def with_caching(opened: OpenedPrompt, framed: FramedPrompt, run_key: bytes) -> FramedPrompt | None:
    """Return a prompt with marks and key if the policy asks for them; None: it stays unchanged."""
    call, split, policy = opened.call, opened.body, opened.policy
    if call.edits or call.as_run or not split.is_object or split.is_text:
        return None
    members, parts = dict(framed.members), framed.parts
    key = opened.format.cache_key
    keyed = policy.cache_key and key and split.field(key) in _NULL and opened.format.takes_cache_key(opened.model.name)
    if keyed:
        members[key] = orjson.dumps(cache_key(run_key))
    marks = opened.format.cache_marks
    if policy.cache_marks and marks is not None and marks.takes(opened.model.name) and not _has_marks(split, marks):
        parts = _Marking(opened, framed, marks).parts(members)
    if parts is framed.parts and members == framed.members:
        return None
    head, tail = replace_members(split, members)
    return replace(framed, head=head, parts=parts, tail=tail, members=members)


def cache_key(run_key: bytes) -> str:
    """Return the cache key of a run, from which neither its id nor anything about its caller can be derived."""
    return sha256(b"prompt cache\0" + run_key).hexdigest()[:_KEY_CHARACTERS]


def _has_marks(split: Split, marks: CacheMarks) -> bool:
    """Whether the agent has placed cache marks itself."""
    if any(split.field(name) not in _NULL for name in marks.places_itself):
        return True
    if b'"%s"' % marks.name.encode() not in split.raw:
        return False
    fields = (split.field(name) or b"" for name in split.fields)
    return any(map(marks.holds, fields)) or any(marks.holds(split.message(index)) for index in range(len(split)))


@dataclass(frozen=True, slots=True)
class _Marking:
    """One prompt while marks are placed."""

    opened: OpenedPrompt
    framed: FramedPrompt
    marks: CacheMarks

    def parts(self, members: dict[str, bytes]) -> list[bytes]:
        """Return the messages with marks; a marked system prompt is added to `members`."""
        parts = list(self.framed.parts)
        ours = {own.message_index for own in self.framed.own if own.message_index >= 0}
        agents = [index for index in range(len(parts)) if index not in ours]
        left = MOST_MARKS
        if self.marks.leads:
            left -= self._mark(parts, agents, self._beginning(agents)) >= 0
        else:
            left -= self._mark_system(members)
        changed = self._first_changed()
        if changed is not None:
            left -= self._mark(parts, agents, self.framed.leading + changed - 1) >= 0
        if self.marks.at_newest and left:
            newest = self._mark(parts, agents, len(agents) - 1)
            before = self._before(agents, newest)
            if before >= 0 and left > 1:
                self._mark(parts, agents, before)
        return parts

    def _mark_system(self, members: dict[str, bytes]) -> bool:
        """Mark the agent's part of a system prompt in a member of the body. Returns whether it was marked."""
        name, value = self.opened.format.member(self.opened.body)
        value = members.get(name, value)
        if value is None:
            return False
        ours = sum(own.place is OwnTextPlace.SYSTEM and own.message_index < 0 for own in self.framed.own)
        try:
            marked = self.marks.blocks(value, leave=ours)
        except (InvalidJson, TooLarge):
            return False
        if marked is None:
            return False
        members[name] = marked
        return True

    def _beginning(self, agents: list[int]) -> int:
        """Return the index, among the agent's messages, of the last system message, else of the first of all."""
        at = 0
        for place, index in enumerate(agents[:_STEPS]):
            if self.marks.role(self.framed.parts[index]) not in self.marks.leads:
                break
            at = place
        return at

    def _first_changed(self) -> int | None:
        """Return the first record that a cut has changed, or None."""
        records = self.opened.memory.ledger.records
        cut = (
            index for index, each in enumerate(records) if each.dropped or (each.touched and not each.only_condensed)
        )
        return next(cut, None)

    def _mark(self, parts: list[bytes], agents: list[int], place: int) -> int:
        """Mark the message at an index, or the nearest before it that can be marked. Returns its index, or -1."""
        for at in range(place, max(place - _STEPS, -1), -1):
            index = agents[at]
            if parts[index] is not self.framed.parts[index]:  # already marked
                return -1
            marked = self.marks.message(parts[index])
            if marked is not None:
                parts[index] = marked
                return at
        return -1

    def _before(self, agents: list[int], newest: int) -> int:
        """Return where the previous prompt ended: before the model's newest message before a place."""
        answered = False
        for at in range(newest - 1, max(newest - 1 - _STEPS, -1), -1):
            role = self.marks.role(self.framed.parts[agents[at]])
            if role in self.marks.roles and answered:
                return at
            answered = answered or role not in self.marks.roles
        return -1
