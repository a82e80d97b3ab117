"""Prose: installed manuals as conversations, asked for by the entries of their own indices.

Recorded runs say little about search in prose, and conversations with a free licence are rare. The manuals that systems
install as Info files (free licences) have all of it: sections of a few words to many screens, and an index, by whose
phrases their authors expect people to look for a section. A conversation is made of them: for each section the user
names its title, and the model answers with its text. An index entry is a question, wanted is the answer with the
section that it points to. Nothing in it was made for a ranking.

What it does not have are messages of a user with content, and small talk. Long sections have more entries than short
ones, which speaks for long answers; so a second mean weighs each section alike, whatever its entries, which speaks
against them.
"""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prompt_sidecar.recall.analysis import query_terms
from tests.lab.retrieval.search import Search

FOLDER: Final = Path("/usr/share/info")
TUNED: Final = ("coreutils", "find", "gnupg", "nettle", "wget")
"""Manuals that constants are chosen on."""
HELD_OUT: Final = ("diffutils", "gettext", "grep", "libffi", "sed")
"""Manuals that nothing is chosen on."""
QUESTIONS: Final = 250
"""Most questions on a manual, drawn by chance from a fixed seed."""
DEPTHS: Final = (5, 10)

_NODE: Final = re.compile(r"^File: [^\n]*?Node: ([^,\n]+)[^\n]*\n+([^\n]+)\n[=*.-]{3,}\n(.*)", re.DOTALL)
_ENTRY: Final = re.compile(r"^\* (?!Menu:)([^\n]+?)(?: <\d+>)?:\s+([^\n]+?)\.\s+\(line\s+\d+\)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Manual:
    """A conversation, the user's messages at even places, and questions: a phrase and the message that is wanted."""

    messages: tuple[str, ...]
    questions: tuple[tuple[str, int], ...]


def present() -> list[str]:
    """The manuals that are installed here."""
    return [name for name in (*TUNED, *HELD_OUT) if list(FOLDER.glob(f"{name}.info*.gz"))]


def manual(name: str) -> Manual:
    """Read an installed manual; its questions have two terms at least."""
    text = "".join(
        gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        for path in sorted(FOLDER.glob(f"{name}.info*.gz"))
    )
    return conversation(text)


def conversation(text: str) -> Manual:
    """Make a conversation of an Info file."""
    messages: list[str] = []
    places: dict[str, int] = {}
    entries: list[tuple[str, str]] = []
    for node in text.split("\x1f\n"):
        found = _ENTRY.findall(node)
        entries += found
        parts = _NODE.match(node)
        if parts is None or found:
            continue
        title, body = parts[2].strip(), parts[3].strip()
        if body and parts[1] not in places:
            places[parts[1]] = len(messages) + 1
            messages += [title, body]
    asked = dict.fromkeys((phrase, places[node]) for phrase, node in entries if node in places)
    questions = [one for one in asked if len(set(query_terms(one[0]))) > 1]
    random.Random(1).shuffle(questions)
    return Manual(tuple(messages), tuple(questions[:QUESTIONS]))


def recall(search: Search, made: Manual) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Per cent of questions whose message is among the first 5 and 10: the mean of questions, and that of messages."""
    found: dict[int, list[tuple[bool, ...]]] = {}
    for phrase, wanted in made.questions:
        first = list(search(phrase))
        found.setdefault(wanted, []).append(tuple(wanted in first[:depth] for depth in DEPTHS))
    rows = [row for rows in found.values() for row in rows]
    return _mean(rows), _mean([_mean(each) for each in found.values()], 1.0)


def _mean(rows: Sequence[Sequence[float]], scale: float = 100.0) -> tuple[float, ...]:
    return tuple(scale * sum(column) / len(rows) for column in zip(*rows, strict=True))
