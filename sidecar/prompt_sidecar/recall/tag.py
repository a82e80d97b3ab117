"""The first line of the answers of our model-facing tools: an inert label with a keyed tag over the rest.

    [recalled id=ab3dq7ghjk: bytes 0-16,000 of 48,210, lines 1-400 of 1,200; more follows at offset 16000; tag=...]

A tool's answer is sent back in the next prompt as a tool result. It must not be stashed or indexed again, or recall
would feed on itself; and no other text may be exempt. So the first line carries a keyed hash over kind, id, headline
and everything after it, under the run's own key: an answer of another run, an edited one or a forged one is ordinary
text. The tag grants no authority and is not secret: a copy of a whole answer only repeats stored text.

Agents trim and pad the end of a result and change its line ends. The hash ignores both; every other change makes the
answer ordinary text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from prompt_sidecar.trim.ids import ID_CHARACTERS

TAG_CHARACTERS: Final = 16
"""80 bits: to guess one takes 2^79 prompts on average."""
HEADLINE_CHARACTERS: Final = 500
"""Characters of a headline; the longest of ours has about 250. Limited so that recognising scans no long line."""

_ALPHABET: Final = b"abcdefghjkmnpqrstvwxyz0123456789"
"""The alphabet of stash ids, without characters that are easily misread."""
_CHARACTERS: Final = _ALPHABET * (256 // len(_ALPHABET))
_SET: Final = f"[{_ALPHABET.decode()}]"
_ID: Final = re.compile(f"{_SET}{{{ID_CHARACTERS}}}")


class AnswerKind(StrEnum):
    """Kind of a tool's answer. A notice is a sentence, such as that an id was not found or an argument is wrong."""

    RECALLED = "recalled"
    FOUND = "found"
    TASKS = "tasks"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class RecognisedAnswer:
    """An answer of ours that was sent back; `stash_id` is empty except for RECALLED."""

    kind: AnswerKind
    stash_id: str
    tag: str = field(default="", compare=False)
    """Distinguishes it from other answers, even with the same content."""


_OPENINGS: Final = tuple(f"[{kind}" for kind in AnswerKind)
_FIRST_LINE: Final = re.compile(
    rf"(?P<signed>\[(?P<kind>{'|'.join(AnswerKind)})(?: id=(?P<id>{_SET}{{{ID_CHARACTERS}}}))?: .*)"
    rf"; tag=(?P<tag>{_SET}{{{TAG_CHARACTERS}}})\]"
)
_LONGEST_LINE: Final = HEADLINE_CHARACTERS + 100
"""Characters within which a first line ends: kind, id and tag take about fifty."""


def tagged(key: bytes, kind: AnswerKind, stash_id: str, headline: str, body: str) -> str:
    """Put the tagged line before the body of an answer.

    Args:
        key: the run's key, as `run_key` makes it.
        kind: what the answer is.
        stash_id: for RECALLED the id of the quoted original; else empty.
        headline: facts in one line, with no text of a prompt: range, whole size, where more follows. What is not
            printable becomes a space; past `HEADLINE_CHARACTERS` it is cut.
        body: the envelope, the lines or nothing.

    Raises:
        ValueError: this kind cannot have the id.
    """
    if (kind is AnswerKind.RECALLED) != bool(stash_id) or (stash_id and not _ID.fullmatch(stash_id)):
        raise ValueError(f"an answer of kind {kind} has an id of ours if it is recalled, and else none")
    label = f"{kind} id={stash_id}" if stash_id else str(kind)
    signed = f"[{label}: {one_line(headline[:HEADLINE_CHARACTERS])}"
    rest = f"\n{body}" if body else ""
    return f"{signed}; tag={_tag(key, signed, rest)}]{rest}"


def recognise(key: bytes, text: str, other_keys: Sequence[bytes] = ()) -> RecognisedAnswer | None:
    """Recognise a tool's result as an unchanged answer of ours in this run. Returns None if it is not. Linear time.

    `key` is the run's; the answer may also be made with one of `other_keys`.

    Use it only for results of calls of our own tools: the tag proves the author of a text, not its position.
    """
    if not text.startswith(_OPENINGS):
        return None
    found = _FIRST_LINE.match(text, 0, _LONGEST_LINE)
    if found is None:
        return None
    kind, stash_id = AnswerKind(found["kind"]), found["id"] or ""
    if (kind is AnswerKind.RECALLED) != bool(stash_id):
        return None
    signed, rest = found["signed"], text[found.end() :]
    if not any(compare_digest(_tag(key, signed, rest), found["tag"]) for key in (key, *other_keys)):
        return None
    return RecognisedAnswer(kind, stash_id, found["tag"])


def tag_of(answer: str) -> str:
    """Return the tag of an answer that was made here."""
    found = _FIRST_LINE.match(answer, 0, _LONGEST_LINE)
    return found["tag"] if found is not None else ""


def one_line(text: str) -> str:
    """Return a text with a space for each character that is not printable, including line ends of every kind."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def _tag(key: bytes, signed: str, rest: str) -> str:
    """Return the tag over the signed part of a first line, and over everything from its line end on."""
    # A zero byte between them, which no headline has: otherwise a word could move from one to the other.
    covered = f"{signed}\0{_settled(rest)}".encode("utf-8", "surrogatepass")
    hashed = blake2b(covered, key=key, digest_size=TAG_CHARACTERS, person=b"recall").digest()
    return hashed.translate(_CHARACTERS).decode()


def _settled(rest: str) -> str:
    r"""Return a text without what agents change: the form of line ends, and white space at the very end.

    All carriage returns before a line feed are removed: an agent that makes `\r\n` of each line feed makes `\r\r\n`
    where a quoted text has `\r\n` already.
    """
    if "\r" in rest:
        rest = "\n".join(line.rstrip("\r") for line in rest.split("\n"))
    return rest.rstrip()
