"""Which message of a trimmed prompt stands for which sent message, found without being told.

A trimmed prompt may lose messages and shorten items, never reorder or repeat. So its messages, our own text aside, are
a subsequence of the sent ones under the relation "may be a trimmed form of". Walking both from the end and taking the
latest sent message that fits finds such a subsequence whenever there is one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracle.shapes import Message, blocks_of, calls_of, results_of, role_of

_NAMES = r"; names in what is clipped so far: [A-Za-z0-9_./ -]+"
MARKED = re.compile(rf"\[[^\[\]]{{0,40}}\b(?:elided|clipped)\b[^\[\]]{{0,60}}(?:{_NAMES})?[^\[\]]{{0,60}}\]")
"""How a marker reads, by design.md: brackets around a label that says elided or clipped, with names it may be."""


CONDENSED = re.compile(r"\[condensed(?: — id=\w+)?\]\Z")
"""How the last line of a condensed result reads."""
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BRACKETED = re.compile(r"^\[.*\]$", re.MULTILINE)
_WORD = re.compile(r"\w{3,}")


@dataclass(frozen=True, slots=True)
class Alignment:
    """Pairs (index in the trimmed prompt, index in the sent one), and the trimmed messages that stand for none."""

    pairs: tuple[tuple[int, int], ...]
    strangers: tuple[int, ...]


def alignment(
    format: str,
    before: Sequence[Any],
    after: Sequence[Any],
    inserted: Collection[int] = (),
    absent: Collection[int] = (),
) -> Alignment:
    """Match the messages of `after` with those of `before`.

    `inserted` indices of `after` are left out, and `absent` ones of `before`, which are said to be gone: if one of them
    is there all the same, it stands for none.
    """
    pairs: list[tuple[int, int]] = []
    strangers: list[int] = []
    bound = len(before)
    for place in range(len(after) - 1, -1, -1):
        if place in inserted:
            continue
        for candidate in range(bound - 1, -1, -1):
            if candidate not in absent and may_stand_for(format, before[candidate], after[place]):
                pairs.append((place, candidate))
                bound = candidate
                break
        else:
            strangers.append(place)
    return Alignment(tuple(reversed(pairs)), tuple(reversed(strangers)))


def order_kept(format: str, before: Sequence[Any], after: Sequence[Any], inserted: Collection[int] = ()) -> bool:
    """Tell whether the messages kept are in their old order, none of them twice and none made up."""
    return not alignment(format, before, after, inserted).strangers


def may_stand_for(format: str, sent: object, shown: object) -> bool:
    """Tell whether `shown` is `sent`, or what trimming may make of it: same role, same pairing, text only taken out."""
    if sent == shown:
        return True
    if not isinstance(sent, Mapping) or not isinstance(shown, Mapping) or role_of(sent) != role_of(shown):
        return False
    if results_of(format, sent) != results_of(format, shown):
        return False
    old_calls, new_calls = calls_of(format, sent), calls_of(format, shown)
    if [(call.call_id, call.name) for call in old_calls] != [(call.call_id, call.name) for call in new_calls]:
        return False
    return _content_may_stand_for(sent, shown)


def _content_may_stand_for(sent: Message, shown: Message) -> bool:
    old, new = sent.get("content"), shown.get("content")
    if isinstance(old, str) and isinstance(new, str):
        return text_may_stand_for(old, new)
    if old == new:
        return True
    old_blocks, new_blocks = blocks_of(sent), blocks_of(shown)
    if not old_blocks or not new_blocks:
        # A format may write a clipped block list as one string, or the other way round.
        return isinstance(new, str) and bool(MARKED.search(new))
    if len(new_blocks) > len(old_blocks):
        return False
    return _blocks_may_stand_for(old_blocks, new_blocks)


def _blocks_may_stand_for(old: Sequence[Any], new: Sequence[Any]) -> bool:
    place = 0
    for block in new:
        while place < len(old) and not _block_may_stand_for(old[place], block):
            place += 1
        if place == len(old):
            return False
        place += 1
    return True


def _block_may_stand_for(sent: object, shown: object) -> bool:
    if sent == shown:
        return True
    if not isinstance(sent, Mapping) or not isinstance(shown, Mapping):
        return False
    if shown.get("type") == "text" and sent.get("type") != "text":
        return isinstance(shown.get("text"), str) and bool(MARKED.search(shown["text"]))
    if sent.get("type") != shown.get("type") or sent.get("id") != shown.get("id"):
        return False
    if isinstance(sent.get("text"), str) and isinstance(shown.get("text"), str):
        return text_may_stand_for(sent["text"], shown["text"])
    if shown.get("type") == "tool_result":
        return sent.get("tool_use_id") == shown.get("tool_use_id") and _content_may_stand_for(sent, shown)
    return shown.get("type") == "tool_use"


def text_may_stand_for(sent: str, shown: str) -> bool:
    """Tell whether `shown` is `sent`, or its head, a marker and its tail, or either of `sent` as it was condensed."""
    if sent == shown:
        return True
    markers = list(MARKED.finditer(shown))
    for found in markers:
        head, tail = shown[: found.start()].rstrip("\r\n"), shown[found.end() :].lstrip("\r\n")
        if sent.startswith(head) and sent.endswith(tail):
            return True
    cuts = 2 * len(markers)  # words that an elision may have cut in two
    return bool(markers or CONDENSED.search(shown)) and _made_of(sent, shown, cuts)


def _made_of(sent: str, shown: str, cuts: int) -> bool:
    """Whether a condensed text has words of the sent one only, but in lines in brackets, which are ours."""
    plain = _CODES.sub("", sent)
    known = set(_WORD.findall(plain))
    words = [word for word in _WORD.findall(_BRACKETED.sub("", shown)) if word not in known]
    return len(shown) < len(sent) and len(words) <= cuts
