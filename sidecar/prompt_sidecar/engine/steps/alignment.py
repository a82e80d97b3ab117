"""Aligning a prompt with the run's history: the place of each message, and the first difference.

The agent may send its untrimmed history, the trimmed prompt that it got, or a mix. A sent message is the next one of
the history if it decodes to that message as first sent, or to a form in which the sidecar returned it; messages that
were dropped may be absent. Nothing is recognised by looking for markers in text. If neither is true, the agent has
rewritten or branched its history: what follows is forgotten and treated as new. The same is assumed if the prompt has
only part of a group that was dropped together, such as a call without its result: the rest is then decided from the
prompt alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from prompt_sidecar.engine.steps.received import FIRST, OWN, SYSTEM, MessageRow, ReceivedPrompt, SentMessage
from prompt_sidecar.prompt.items import Role
from prompt_sidecar.trim.entries import Record
from prompt_sidecar.trim.ledger import Ledger

LOOK_AHEAD: Final = 64
"""Messages that are examined to find out whether dropped ones were sent; so many equal ones in a row are rare."""


def align(
    reads: Sequence[SentMessage],
    carried: Sequence[MessageRow],
    ledger: Ledger,
    forms: Callable[[int], set[bytes]],
    is_own: Callable[[bytes], bool],
    *,
    leading_system: bool,
    unseen: int = 0,
) -> list[MessageRow]:
    """Find the place of each sent message, up to the first that is new.

    Records before the last row's `next` stay; later records are not in the prompt.

    Args:
        reads: the prompt's messages.
        carried: rows of its first messages, whose bytes and places are unchanged since the last prompt.
        ledger: the history.
        forms: for each record the identities of the forms in which it was returned.
        is_own: whether an identity belongs to our own text.
        leading_system: whether leading system messages are the system prompt, and so not part of the history.
        unseen: number of the prompt's first messages that take no tokens.
    """
    rows = list(carried)
    leading = leading_system and all(row.place in (OWN, SYSTEM) for row in rows)
    records = ledger.records

    def matches(identity: bytes, place: int) -> bool:
        record = records[place]
        return record.identity == identity or (record.touched > 0 and identity in forms(place))

    _, expected, tokens, opaque, whole = rows[-1] if rows else FIRST
    dropped = False
    for index in range(len(rows), len(reads)):
        read = reads[index]
        if read.role is Role.SYSTEM and is_own(read.identity):
            place = OWN
        elif leading and read.role is Role.SYSTEM:
            place = SYSTEM
        else:
            leading = False
            found = _find(reads, index, expected, matches, ledger)
            if found < 0:
                break
            place = found
            dropped = dropped or _in_pairs(records[found])
            expected = found + 1
            if index >= unseen:
                tokens += read.tokens
                opaque += read.opaque
            whole += records[found].identity == read.identity
        rows.append(MessageRow(place, expected, tokens, opaque, whole))
    return _without_parts(rows, ledger) if dropped else rows


def carried_rows(
    before: ReceivedPrompt, same: int, reads: Sequence[SentMessage], records: Sequence[Record]
) -> Sequence[MessageRow]:
    """Return rows of the messages with the same bytes as in the last prompt that are also the same messages.

    Trimmed messages can be equal, so after a drop the same bytes may be the next message; but not in a prompt that has
    all of the last one and continues it. The end of the last one may be spelled differently: agents move the provider's
    cache marks to their newest messages at each call.

    Args:
        before: the last prompt.
        same: messages that both begin with, byte for byte.
        reads: the prompt's messages.
        records: the history.
    """
    rest = before.reads[same:]
    again = reads[same : same + len(rest)]
    if len(again) == len(rest) and all(old.identity == new.identity for old, new in zip(rest, again, strict=True)):
        return before.rows[:same]
    dropped = (at for at, row in enumerate(before.rows[:same]) if row.place >= 0 and records[row.place].dropped)
    return before.rows[: next(dropped, same)]


def _in_pairs(record: Record) -> bool:
    """Whether a message was dropped together with the messages that it calls or answers."""
    return record.dropped and bool(record.calls or record.answers)


def _without_parts(rows: list[MessageRow], ledger: Ledger) -> list[MessageRow]:
    """Return the rows before the first incomplete group of dropped messages."""
    records = ledger.records
    sent = {row.place for row in rows}
    length = rows[-1].next
    absent = [index for index in range(length) if index not in sent and _in_pairs(records[index])]
    if not absent:
        return rows
    units = ledger.messages.units()
    torn = {units[records[index].group] for index in absent}
    for number, row in enumerate(rows):
        if row.place >= 0 and _in_pairs(records[row.place]) and units[records[row.place].group] in torn:
            return rows[:number]
    return rows


def _find(
    reads: Sequence[SentMessage], index: int, expected: int, matches: Callable[[bytes, int], bool], ledger: Ledger
) -> int:
    """Return the record of a message: the expected one, or the first after dropped ones; -1 if neither."""
    records = ledger.records
    if expected >= len(records):
        return -1
    identity = reads[index].identity
    present = matches(identity, expected)
    if not records[expected].dropped:
        return expected if present else -1
    live = ledger.decisions.next_live(expected)
    if live >= len(records) or not matches(identity, live):
        if present:
            return expected
        # An earlier answer dropped less than the last one did, and the agent has that answer.
        between = range(expected + 1, min(live, len(records)))
        return next((place for place in between if matches(identity, place)), -1)
    if not present:
        return live

    # Trimmed calls are equal if ids are empty, so the message can be either. The following messages decide.
    def alike(place: int, following: Callable[[int], int]) -> int:
        """Count how many messages match the records from `place` on."""
        for number, read in enumerate(reads[index : index + LOOK_AHEAD]):
            if place >= len(records) or not matches(read.identity, place):
                return number
            place = following(place + 1)
        return min(LOOK_AHEAD, len(reads) - index)

    with_dropped, without = alike(expected, lambda place: place), alike(live, ledger.decisions.next_live)
    if with_dropped == without:
        return expected if len(reads) - index >= len(records) - expected else live
    return expected if with_dropped > without else live
