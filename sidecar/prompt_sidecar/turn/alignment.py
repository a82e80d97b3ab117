"""Aligning a prompt with the run's history: which message is which, and where they part.

The agent may send its untrimmed history, the trimmed prompt that it got, or a mix. A sent message is the next one of
the history if it decodes to that message as it first came, or to a form in which the sidecar returned it; messages
that were dropped may be absent. Nothing is recognised by looking for markers in text. Where neither holds, the agent
has rewritten or branched its history: what follows is forgotten and taken anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from prompt_sidecar.prompt.items import Role
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.turn.received import OWN, SYSTEM, Read, Received

LOOK_AHEAD: Final = 64
"""Messages that are looked at to tell whether dropped ones were sent; as many alike in a row are rare in real runs."""


@dataclass(frozen=True, slots=True)
class Aligned:
    """Where a prompt and the history part: records before `kept` stay, messages from `first_new` on are new."""

    kept: int
    first_new: int


def align(
    received: Received,
    before: Received | None,
    ledger: Ledger,
    forms: Callable[[int], set[bytes]],
    is_own: Callable[[Read], bool],
    *,
    leading_system: bool,
) -> Aligned:
    """Find the place of each sent message, up to the first that is new. Fills in what is said of each.

    Args:
        received: the prompt, read.
        before: the last prompt, aligned; messages that are the same bytes as in it keep their places.
        ledger: the history.
        forms: for each record the identities of the forms in which it was returned.
        is_own: whether a message is our own text.
        leading_system: whether leading system messages are the system prompt, and so no part of the history.
    """
    same = received.carried
    if before is not None and same:
        received.places = before.places[:same]
        received.nexts = before.nexts[:same]
        received.tokens = before.tokens[:same]
        received.opaque = before.opaque[:same]
        received.whole = before.whole[:same]
    leading = leading_system and all(place in (OWN, SYSTEM) for place in received.places)
    expected = received.nexts[-1] if same else 0
    records = ledger.records

    def matches(identity: bytes, place: int) -> bool:
        record = records[place]
        return record.identity == identity or (record.touched > 0 and identity in forms(place))

    tokens = received.tokens[-1] if same else 0
    opaque = received.opaque[-1] if same else 0
    whole = received.whole[-1] if same else 0
    for index in range(same, len(received.reads)):
        read = received.reads[index]
        if read.role is Role.SYSTEM and is_own(read):
            place = OWN
        elif leading and read.role is Role.SYSTEM:
            place = SYSTEM
        else:
            leading = False
            found = _find(received.reads, index, expected, matches, ledger)
            if found < 0:
                return Aligned(expected, index)
            place = found
            expected = found + 1
            tokens += read.tokens
            opaque += read.opaque
            whole += ledger.records[found].identity == read.identity
        received.places.append(place)
        received.nexts.append(expected)
        received.tokens.append(tokens)
        received.opaque.append(opaque)
        received.whole.append(whole)
    return Aligned(expected, len(received.reads))


def _find(
    reads: Sequence[Read], index: int, expected: int, matches: Callable[[bytes, int], bool], ledger: Ledger
) -> int:
    """The record that a message is: the expected one, or the first after those that were dropped; -1 if neither."""
    records = ledger.records
    if expected >= len(records):
        return -1
    identity = reads[index].identity
    present = matches(identity, expected)
    if not records[expected].dropped:
        return expected if present else -1
    live = ledger.next_live(expected)
    if live >= len(records) or not matches(identity, live):
        if present:
            return expected
        # An earlier answer dropped less than the last one did, and the agent holds that.
        between = range(expected + 1, min(live, len(records)))
        return next((place for place in between if matches(identity, place)), -1)
    if not present:
        return live
    # Trimmed calls look alike where ids are empty, so the message can be either. What follows tells.
    with_dropped = without = 0
    place = expected
    for read in reads[index : index + LOOK_AHEAD]:
        if place >= len(records) or not matches(read.identity, place):
            break
        with_dropped += 1
        place += 1
    place = live
    for read in reads[index : index + LOOK_AHEAD]:
        if place >= len(records) or not matches(read.identity, place):
            break
        without += 1
        place = ledger.next_live(place + 1)
    if with_dropped == without:
        return expected if len(reads) - index >= len(records) - expected else live
    return expected if with_dropped > without else live
