"""Aligning a prompt with the run's history: which message is which, and where they part.

The agent may send its untrimmed history, the trimmed prompt that it got, or a mix. A sent message is the next one of
the history if it decodes to that message as it first came, or to a form in which the sidecar returned it; messages
that were dropped may be absent. Nothing is recognised by looking for markers in text. Where neither holds, the agent
has rewritten or branched its history: what follows is forgotten and taken anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sidecar.prompt.items import Role
from sidecar.run.received import OWN, SYSTEM, Read, Received
from sidecar.trim.ledger import Ledger


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
    same = received.split.same if before is not None else 0
    if before is not None and same:
        received.places = before.places[:same]
        received.nexts = before.nexts[:same]
        received.tokens = before.tokens[:same]
        received.whole = before.whole[:same]
    leading = leading_system and all(place in (OWN, SYSTEM) for place in received.places)
    expected = received.nexts[-1] if same else 0
    tokens = received.tokens[-1] if same else 0
    whole = received.whole[-1] if same else 0
    for index in range(same, len(received.reads)):
        read = received.reads[index]
        if read.role is Role.SYSTEM and is_own(read):
            place = OWN
        elif leading and read.role is Role.SYSTEM:
            place = SYSTEM
        else:
            leading = False
            found = _find(read.identity, expected, ledger, forms)
            if found < 0:
                return Aligned(expected, index)
            place = found
            expected = found + 1
            tokens += read.tokens
            whole += ledger.records[found].identity == read.identity
        received.places.append(place)
        received.nexts.append(expected)
        received.tokens.append(tokens)
        received.whole.append(whole)
    return Aligned(expected, len(received.reads))


def _find(identity: bytes, expected: int, ledger: Ledger, forms: Callable[[int], set[bytes]]) -> int:
    """The next record that a message can be: the expected one, or the first after those that were dropped."""
    records = ledger.records
    while expected < len(records):
        record = records[expected]
        if record.identity == identity or (record.touched and identity in forms(expected)):
            return expected
        if not record.dropped:
            break
        expected += 1
    return -1
