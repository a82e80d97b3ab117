"""The masked body: what was sent, with masked text in its place.

What is sent again unchanged keeps its masked form, so that only new parts are written, and the masked bodies of two
prompts begin with the same bytes where the prompts do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from prompt_sidecar.prompt.body import Span, Split, equal_slice


@dataclass(frozen=True, slots=True)
class Before:
    """The last prompt, as it was sent and as it was masked; one object if nothing was masked."""

    sent: Split
    masked: Split


def masked_body(
    sent: Split, before: Before | None, members: Mapping[str, bytes], messages: Mapping[int, bytes], *, carry: bool
) -> Split:
    """Return the body with masked parts in place of the sent ones; the same object if nothing was ever masked.

    With `carry`, unchanged parts that are neither in `members` nor in `messages` keep their earlier masked form.
    """
    was = before.masked if before is not None and before.masked is not before.sent else None
    kept = first = shift = 0
    if was is not None and before is not None and carry and _begins_alike(sent, before.sent):
        kept = min(sent.same, len(was))  # the bytes are those of the last prompt, and so are the masked ones
        first = sent.ends[kept - 1]
        shift = was.ends[kept - 1] - first
    replaced = [(sent.starts[index], sent.ends[index], new) for index, new in messages.items()]
    replaced += [(sent.fields[name].start, sent.fields[name].end, new) for name, new in members.items()]
    if was is not None and before is not None and carry:
        replaced += _carried(sent, before, was, kept, {*members}, {*messages})
    if not replaced and was is None:
        return sent
    replaced = sorted(each for each in replaced if each[0] >= first and sent.raw[each[0] : each[1]] != each[2])
    pieces = [was.raw[: first + shift]] if kept and was is not None else []
    at = first
    for start, end, new in replaced:
        pieces += (sent.raw[at:start], new)
        at = end
    starts, ends = _Moved(replaced, shift), _Moved(replaced, shift)
    new_starts = [starts.at(start) for start in sent.starts[kept:]]
    new_ends = [ends.at(end) for end in sent.ends[kept:]]
    fields: dict[str, Span] = {}
    moved = _Moved(replaced, shift)
    for name, span in sorted(sent.fields.items(), key=lambda each: each[1].start):
        if was is not None and span.start < first:
            fields[name] = was.fields[name]
        else:
            start = moved.at(span.start)
            fields[name] = Span(start, moved.at(span.end))
    split = Split(
        b"".join((*pieces, sent.raw[at:])) if replaced or kept else sent.raw,
        was.starts[:kept] + new_starts if kept and was is not None else new_starts,
        was.ends[:kept] + new_ends if kept and was is not None else new_ends,
        {name: fields[name] for name in sent.fields},
        sent.is_object,
        kept,
        sent.is_text,
    )
    split.same = same_at_start(split, before.masked if before is not None else None, kept)
    return split


def same_at_start(split: Split, known: Split | None, same: int = 0) -> int:
    """Return how many first messages equal those of a known body; `same`: at least as many are known to."""
    if known is None or known.is_object != split.is_object or known.is_text != split.is_text:
        return same
    bound = min(len(split), len(known))
    while same < bound and equal_slice(split, known, same):
        same += 1
    return same


def are_same(one: Split, other: Split) -> bool:
    """Whether two bodies are the same; the body of an interrupted call is only known up to some message."""
    return len(one) == len(other) and one.raw == other.raw


def _begins_alike(one: Split, other: Split) -> bool:
    """Whether two bodies are equal up to the last message that they share."""
    if not one.same or len(other) < one.same:
        return False
    return one.raw.startswith(memoryview(other.raw)[: other.ends[one.same - 1]])


def _carried(  # noqa: PLR0917 - what came again, and what did not
    sent: Split, before: Before, was: Split, kept: int, members: AbstractSet[str], messages: AbstractSet[int]
) -> Iterable[tuple[int, int, bytes]]:
    """Yield what was masked in the last prompt and sent again unchanged, after the messages that are kept."""
    for name, span in sent.fields.items():
        raw = sent.field(name)
        if name not in members and before.sent.field(name) == raw and (new := was.field(name)) is not None:
            yield span.start, span.end, new
    for index in range(kept, min(len(sent), len(was))):
        if index in messages or equal_slice(sent, was, index):
            continue
        if index < sent.same or equal_slice(sent, before.sent, index):
            yield sent.starts[index], sent.ends[index], was.message(index)


class _Moved:
    """Where increasing offsets of a body are after some ranges of it were replaced."""

    def __init__(self, replaced: Sequence[tuple[int, int, bytes]], shift: int) -> None:
        self._replaced, self._shift = replaced, shift
        self._next = 0

    def at(self, offset: int) -> int:
        """Return the new offset of one outside these ranges, or at one of their ends."""
        while self._next < len(self._replaced) and self._replaced[self._next][1] <= offset:
            start, end, new = self._replaced[self._next]
            self._shift += len(new) - (end - start)
            self._next += 1
        return offset + self._shift
