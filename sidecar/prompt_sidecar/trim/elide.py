"""Elision: head and tail of a text kept, the middle replaced by a marker; and the placeholders of clipped content.

An elision is two numbers, the bytes of head and of tail that are kept. A later, tighter one is made from what the
earlier one kept: the cut looks for a line end only inside that, and the elided text holds it just as the original does.
So a tighter elision needs no original, and a process that replays the steps from the untrimmed history reaches the same
bytes.

Markers and placeholders are inert labels. They state the number of bytes removed and an id that means nothing without
the registry; they hold no instruction and name no tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from prompt_sidecar.prompt.items import SNAPSHOT_CLOSING, SNAPSHOT_OPENING, ItemKind

_CLIPPED: Final = {
    ItemKind.IMAGE: "screenshot clipped for brevity",
    ItemKind.SNAPSHOT: "page clipped for brevity",
    ItemKind.REASONING: "reasoning removed",
}
LEAF_CHARACTERS: Final = 120
"""Strings of up to so many characters stay in old arguments: paths and commands are shorter, the text of a file is not.
"""
ARGUMENTS_CHARACTERS: Final = 1_024
"""Characters that clipped arguments may take; longer ones, such as a list of a thousand short names, become empty."""
_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?', re.DOTALL)
"""A string in JSON; with the group it is an object's key."""
_NEAR: Final = 8
"""Divisor: a line end is near if it is within an eighth of the bytes kept on that side, so at most 12 % of a side is
lost."""


@dataclass(frozen=True, slots=True)
class KeptBytes:
    """Bytes of an original's UTF-8 that an elision keeps."""

    head: int
    tail: int


def marker(stash_id: str, removed: int) -> str:
    """The label that replaces an elided middle. `stash_id` is empty if the model has no recall tools."""
    label = f"id={stash_id}, " if stash_id else ""
    return f"[content elided to fit context window — {label}{removed:,} bytes]"


def placeholder(kind: ItemKind, stash_id: str, size: int) -> str | None:
    """The label that replaces clipped content; None for arguments, which become empty arguments."""
    if kind is ItemKind.ARGUMENTS:
        return None
    label = f"id={stash_id}, " if stash_id else ""
    return f"[{_CLIPPED.get(kind, 'content clipped')} — {label}{size:,} bytes]"


def clipped_arguments(text: str, stash_id: str, *, free_text: bool) -> str | None:
    """Replace each long string in a call's arguments by a label. Returns None if they become empty arguments.

    Short strings stay: the paths, names and commands by which a model knows what it has done. The result is JSON of the
    same shape, in which keys, numbers and spaces are unchanged, and clipping it again changes nothing. Arguments that
    are not JSON, or still longer than `ARGUMENTS_CHARACTERS`, become empty. Linear in the text.

    Args:
        text: the arguments: JSON, or a custom tool's free text.
        stash_id: the id that the labels show; empty: none.
        free_text: whether they are free text, which is one string.
    """
    if free_text:
        return _leaf(text, stash_id)
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None

    def shown(found: re.Match[str]) -> str:
        token = found[0]
        if found[1] is not None or len(token) <= LEAF_CHARACTERS:  # a key, or short
            return token
        leaf = json.loads(token)
        return token if len(leaf) <= LEAF_CHARACTERS else f'"{_leaf(leaf, stash_id)}"'

    shaped = _STRING.sub(shown, text)
    return shaped if len(shaped) <= ARGUMENTS_CHARACTERS else None


def _refuse(name: str) -> None:
    """Refuse NaN and Infinity, which Python's parser accepts and JSON does not have."""
    raise ValueError(name)


def _leaf(text: str, stash_id: str) -> str:
    if len(text) <= LEAF_CHARACTERS:
        return text
    return placeholder(ItemKind.TEXT, stash_id, len(text.encode(errors="surrogatepass"))) or ""


def carrier(label: str, dropped: int) -> str:
    """Return a clipped item's label, extended by the number of other iterations that were dropped.

    A negative number is the least that were: -10 is written `10+`.
    """
    if not dropped or not label.endswith("]"):
        return label
    number = f"{dropped:,}" if dropped > 0 else f"{-dropped:,}+"
    return f"{label[:-1]}; {number} other iteration{'' if dropped == 1 else 's'} dropped]"


def naming(label: str, names: Sequence[str]) -> str:
    """Return a clipped item's label, extended by a list of names in alphabetical order; see `trim.names`."""
    if not names or not label.endswith("]"):
        return label
    return f"{label[:-1]}; names in what is clipped so far: {' '.join(sorted(names))}]"


def at_least(number: int) -> int:
    """Return the greatest power of ten up to a positive number, negative as `carrier` takes it.

    A number in a prompt that changes makes the provider process everything behind it again, so it changes seldom.
    """
    return -int("1" + "0" * (len(str(number)) - 1))


def clipped_snapshot(text: str, stash_id: str, size: int) -> str:
    """Replace the content between EXTERNAL-CONTENT tags in a user's text by a label; the tags and the rest are kept.

    Linear in the text. Clipped content stays as it is. A text without tags, which the agent annotated as a snapshot, is
    replaced by the label as a whole.
    """
    label = placeholder(ItemKind.SNAPSHOT, stash_id, size) or ""
    pieces: list[str] = []
    at = 0
    while (opening := text.find(SNAPSHOT_OPENING, at)) >= 0:
        body = text.find(">", opening) + 1
        closing = text.find(SNAPSHOT_CLOSING, body) if body else -1
        if closing < 0:
            break
        pieces += [text[at:body], f"\n{label}\n", SNAPSHOT_CLOSING]
        at = closing + len(SNAPSHOT_CLOSING)
    return "".join((*pieces, text[at:])) if pieces else label


def collapsed(counts: Sequence[int]) -> str:
    """The label that replaces a stretch of old feedback; `counts` are in the order of `Feedback`."""
    total = sum(counts)
    kinds = ", ".join(_plural(number, kind) for number, kind in zip(counts, FEEDBACK_NAMES, strict=True) if number)
    return f"[{total:,} earlier feedback message{'' if total == 1 else 's'} clipped: {kinds}]"


COLLAPSED: Final = "[feedback clipped]"
"""Replaces a feedback message that its stretch's label counts, where the message cannot be dropped."""
FEEDBACK_NAMES: Final = ("validation rejection", "step error", "repetition warning")


def repeated(stash_id: str, size: int, iteration: int) -> str:
    """The label that replaces a result which a later iteration returned again, unchanged."""
    label = f"id={stash_id}, " if stash_id else ""
    return f"[content clipped, the same again in iteration {iteration} — {label}{size:,} bytes]"


def _plural(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def cut(head: bytes, tail: bytes, size: int, *, budget: int, head_share: float, stash_id: str) -> KeptBytes | None:
    """Choose what to keep of a text so that the elided text has at most `budget` bytes, marker included.

    Args:
        head: the text's first bytes: all of it, or what an earlier elision kept.
        tail: its last bytes, likewise.
        size: bytes of the whole original.
        budget: maximum bytes of the elided text.
        head_share: share of the kept bytes that goes to the head.
        stash_id: the id that the marker will show.

    Returns:
        What to keep, or None if the budget has no room beyond the marker.
    """
    room = budget - len(marker(stash_id, size).encode()) - 2  # two line breaks around the marker
    if room <= 0:
        return None
    want_head = int(room * head_share)
    want_tail = room - want_head
    kept = KeptBytes(_cut_head(head, want_head), _cut_tail(tail, want_tail))
    return kept if kept.head + kept.tail < size else None


def elided(head: bytes, tail: bytes, size: int, kept: KeptBytes, stash_id: str) -> str:
    """Render an elision. `head` and `tail` as for `cut`."""
    first = head[: kept.head].decode(errors="replace")
    last = tail[len(tail) - kept.tail :].decode(errors="replace")
    before = "" if not first or first.endswith("\n") else "\n"
    after = "" if not last or last.startswith("\n") else "\n"
    return f"{first}{before}{marker(stash_id, size - kept.head - kept.tail)}{after}{last}"


def refitted(text: bytes, kept: KeptBytes, opening: bytes, closing: bytes) -> KeptBytes | None:
    """Return what an elision keeps of a text that was masked since; None if the whole text is no longer than that.

    No character and no label, which is between `opening` and `closing`, is cut in two.
    """
    if kept.head + kept.tail >= len(text):
        return None
    head = text[: kept.head].decode(errors="ignore").encode()
    if (at := head.rfind(opening)) > head.rfind(closing):
        head = head[:at]
    tail = text[len(text) - kept.tail :].decode(errors="ignore").encode() if kept.tail else b""
    at, first = tail.find(closing), tail.find(opening)
    if at >= 0 and (first < 0 or at < first):
        tail = tail[at + len(closing) :]
    return KeptBytes(len(head), len(tail))


def water_level(sizes: list[int], budget: int) -> int:
    """The largest cap on each size for which the sum of all sizes fits the budget."""
    left = budget
    for position, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - position)
        if size > share:
            return share
        left -= size
    return budget


def _cut_head(head: bytes, want: int) -> int:
    """Move a cut after `want` bytes back to a near line end, else to the start of a character."""
    if want >= len(head):
        return len(head)
    near = head.rfind(b"\n", want - want // _NEAR, want)
    if near >= 0:
        return near + 1
    while want > 0 and _continues(head[want]):
        want -= 1
    return want


def _cut_tail(tail: bytes, want: int) -> int:
    """Move a cut before the last `want` bytes forward to a near line start, else to the start of a character."""
    if want >= len(tail):
        return len(tail)
    start = len(tail) - want
    near = tail.find(b"\n", start, start + want // _NEAR)
    if near >= 0:
        return len(tail) - near - 1
    while start < len(tail) and _continues(tail[start]):
        start += 1
    return len(tail) - start


def _continues(byte: int) -> bool:
    """Whether a byte is a UTF-8 continuation byte."""
    return byte & 0xC0 == 0x80
