"""Names in hidden text: what a model can still ask for once the text with the name is gone.

The registry lists the largest items, few of all that is hidden. A model mostly names what it needs again by a path, an
identifier or a number that it has used before. So such names are listed below the registry, as many of the last used as
there is room for, without those that the prompt still shows.

    message recorded ──► names that the model used in it (`names_used`)             once for each message
    batch point      ──► those that no shown text holds any more (`hidden_names`)   where the registry is rewritten

A model repeats what tools write, so a tool's words could get into our own text this way. So only what forms no sentence
is accepted: a name is a run of letters, digits and `_./-`, 4 to 40 of them, with a digit or one of these signs; it is
no address and no mask, and has few words of prose; and the list is in alphabetical order, which no tool chooses.
Results of tools are never a source: names from them are more, and worse.

The choice is part of the fold: it reads the history and what is decided, so that every process makes the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from sys import intern
from typing import Final, Protocol

from prompt_sidecar.errors import InvalidJson, TooLarge
from prompt_sidecar.prompt.items import ItemKind, Message, Role
from prompt_sidecar.prompt.jsontext import load
from prompt_sidecar.trim import elide
from prompt_sidecar.trim.entries import Action, Entry, ListedNames
from prompt_sidecar.trim.ledger import Ledger

NAMES_OF_MESSAGE: Final = 64
"""Names that are kept of one message, those in short arguments first. In recorded runs 99 of 100 messages have fewer;
they take about as much memory as the rest of the message's record."""
SCANNED_CHARACTERS: Final = 16_384
"""Characters of one message that are searched for names: half a millisecond. Longer ones usually hold a file, and begin
with what it is about."""
NAMES_LISTED: Final = 256
"""Names in a list; they take about 1,100 tokens, which is more than the largest registry may."""
NAMES_CONSIDERED: Final = 16_384
"""Names that are looked at for a list, newest first, so that a long history costs no more than a prompt does."""
SHOWN_CHARACTERS: Final = 8_388_608
"""Characters of the prompt's visible text that are searched for names, newest first: two million tokens, twice the
largest window in use. They take some tenths of a second, in which the call cannot end."""
SEEN_TOKENS: Final = 16_384
"""Possible names of the visible text that are remembered, so that few are looked at twice: 2 MB at most. A prompt of
100,000 tokens has some 5,000."""
PIECE_CHARACTERS: Final = 65_536
"""Characters of a text that are searched at once, plus the rest of a name that begins there: a millisecond."""
GROWTH: Final = 16
"""Divisor: the part of its messages by which a history must grow before names are chosen again: in recorded runs fewer
than come between two batch points, but with a window that is too small each call is one."""
FEWEST_NAMES: Final = 8
"""Least number of names in a list: fewer take less room than the words in front of them."""
TOKENS_OF_NAME: Final = 3
"""Least tokens that a name is assumed to take, so that the first list that is counted is not much too long."""
SHORTEST: Final = 4
LONGEST: Final = 40
PROSE_WORDS: Final = 2
"""A name with so many words of `PROSE` reads like a sentence."""
_PROSE: Final = """
    about after again all also always am an and any are as ask at be because been before being but by can cannot
    click could delete did disregard do does done dont else email ever every follow following for forget forward
    from give had has have he her here him his how if ignore immediately important in instead instruction
    instructions into is it its just let like make me money must my need never no not now obey of on only or other
    our out override password pay please previous prior reply respond reveal say secret send shall she should so
    sorry stop such tell than that the their them then there these they this those to transfer trust until upon
    urgent us use user very visit want was we were what when where which while who why will with without would write
    you your
"""
PROSE: Final = frozenset(_PROSE.split())
"""Words that are common in sentences and rare in names: function words, and verbs of orders."""

_READ: Final = frozenset({ItemKind.TEXT, ItemKind.ARGUMENTS, ItemKind.RESULT, ItemKind.SNAPSHOT})
_RUN: Final = re.compile(r"[^\s\"'`<>\[\]{}|\\]+")
"""What is between spaces, quotation marks and brackets: wide enough that an address is one run."""
_NAME: Final = re.compile(r"[A-Za-z0-9_./-]+")
_GAP: Final = re.compile(r"[^A-Za-z0-9_./-]")
_SPACED: Final = bytes(byte if _NAME.match(chr(byte)) else 0x20 for byte in range(256))
"""A table that replaces each byte that no name has by a space."""
_SIGN: Final = re.compile(r"[0-9_./-]")
_LETTERS: Final = re.compile(r"[A-Za-z]")
_TWO: Final = re.compile(r"[A-Za-z0-9]{2}")
_KEBAB: Final = re.compile(r"[A-Za-z-]{1,7}")
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_DIGITS: Final = re.compile(r"[0-9]{4,}")
_ACCOUNT: Final = re.compile(r"[A-Za-z0-9]@")
_ENDINGS: Final = (
    "com net org edu gov info biz io ai app dev xyz co me site online cloud shop store click link live page tech top "
    "ru cn de uk eu fr nl ch jp us au br kr it es se tk gg tv example"
)
_HOST: Final = re.compile(
    r"(?:www\.|localhost\b|(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9.])"
    rf"|[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:{'|'.join(_ENDINGS.split())})(?:[/:]|$))",
    re.IGNORECASE,
)
"""The beginning of an address without a scheme. Only endings distinguish host names from dotted names."""


class PromptView(Protocol):
    """The text that the prompt shows of an item."""

    def shown(self, entry: Entry) -> str:
        """Return its text as it is decided now; empty if nothing is left."""
        ...


def names_used(message: Message, is_own_tool: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the names in what the model wrote, those in short arguments first; at most `NAMES_OF_MESSAGE`.

    Calls of our own tools are left out: they repeat ids, and names that the model asked for.
    """
    if message.role is not Role.ASSISTANT:
        return ()
    arguments: list[str] = []
    for item in message.items:
        if item.kind is ItemKind.ARGUMENTS and not is_own_tool(item.tool):
            arguments += leaves(item.text)
    arguments.sort(key=lambda leaf: (len(leaf), leaf))  # agents write an object's members in any order
    found: dict[str, None] = {}
    left = SCANNED_CHARACTERS
    texts = [item.text for item in message.items if item.kind is ItemKind.TEXT]
    for text in (*arguments, *texts):
        for name in names_in(text[:left]):
            found[intern(name)] = None  # the same names occur again and again
            if len(found) == NAMES_OF_MESSAGE:
                return tuple(found)
        left -= len(text)
        if left <= 0:
            break
    return tuple(found)


def leaves(arguments: str) -> list[str]:
    """Return the strings and whole numbers in a call's arguments; the text itself if it is not strict JSON."""
    try:
        values = [load(arguments.encode(), "arguments")]
    except (InvalidJson, TooLarge):
        return [arguments]
    found: list[str] = []
    while values:
        value = values.pop()
        if type(value) is dict:
            values += value.values()
        elif type(value) is list:
            values += value
        elif type(value) is str:
            found.append(value)
        elif type(value) in {int, float} and value == value // 1:
            found.append(str(int(value)))  # however it is spelled: 1000, 1e3
    return found


def names_in(text: str) -> Iterator[str]:
    """Yield the names in a text, in their order; a name may occur twice."""
    for run in dict.fromkeys(_RUN.findall(text)):
        if len(run) < SHORTEST or not _SIGN.search(run):
            continue
        if (
            "\u27e6" in run
            or "\u27e7" in run
            or "://" in run
            or "id=" in run
            or _ACCOUNT.search(run)
            or _HOST.match(run)
        ):
            continue  # a mask, an address, a label of ours, an account
        for token in _NAME.findall(run):
            name = _name(token)
            if name:
                yield name


def _name(token: str) -> str:
    """Return the name in a run of a name's characters, of a long path its last two parts; empty if there is none."""
    name = token.rstrip("./-").lstrip("-")
    if len(name) > LONGEST:
        parts = [part for part in name.split("/") if part not in {"", ".", ".."}]
        name = "/".join(parts[-2:]) if len(parts) > 2 else ""
    if not SHORTEST <= len(name) <= LONGEST or not _SIGN.search(name) or not _TWO.search(name):
        return ""
    if not _LETTERS.search(name):
        digits = _DIGITS.search(name)
        return name if digits is not None and (digits.group() != name or not name.endswith("00")) else ""
    if _KEBAB.fullmatch(name) or name.startswith("//") or _HOST.match(name) or _like_prose(name):
        return ""
    return name


def _like_prose(name: str) -> bool:
    """Whether a name reads like a sentence."""
    return sum(word.lower() in PROSE for word in _WORD.findall(name)) >= PROSE_WORDS


def list_names(ledger: Ledger, texts: PromptView) -> None:
    """Choose the names to list again, if the history has grown by `GROWTH` since they were chosen.

    A choice looks at what is shown, so that all choices of a run together cost in proportion to its history.
    """
    named = ledger.registry.named
    if named and len(ledger) - named < len(ledger) // GROWTH:
        return
    ledger.registry.choose_names(hidden_names(ledger, texts))


def label_names(ledger: Ledger, texts: PromptView, count: Callable[[str], int], room: int) -> None:
    """Have the label of the newest result that this cut has clipped list hidden names, if `list_names` would choose.

    Where the registry precedes all messages it is mostly written once, while the messages from a cut's first change on
    are written again anyway. Only names from before that result are listed, so a rewind that keeps it keeps them.

    Args:
        ledger: the decisions, at the end of a cut.
        texts: what the prompt shows.
        count: counts tokens.
        room: tokens that the list may take.
    """
    registry = ledger.registry
    if len(ledger) - registry.named < len(ledger) // GROWTH:
        return
    entry = _newest_clipped(ledger)
    if entry is None:
        return
    registered = {ledger.records[message].names[place] for message, place in registry.names}
    registry.choose_names(registry.names)  # they stay in the registry; the next choice waits for growth
    found = [
        ((message, place), name)
        for message, place in hidden_names(ledger, texts)
        if message <= entry.message and (name := ledger.records[message].names[place]) not in registered
    ]
    label = entry.label or ""
    fit = min(len(found), room // TOKENS_OF_NAME)
    while fit >= FEWEST_NAMES:
        names = tuple(name for _, name in found[:fit])
        tokens = count(elide.naming(label, names)) - entry.tokens
        if tokens <= room:
            ledger.decisions.list_names(entry, ListedNames(tuple(place for place, _ in found[:fit]), names, tokens))
            return
        fit = min(fit - 1, fit * room // tokens)


def _newest_clipped(ledger: Ledger) -> Entry | None:
    """Return the newest result that was clipped in this iteration and whose label has room for names."""
    for index in range(len(ledger.records) - 1, ledger.decisions.changed_from - 1, -1):
        record = ledger.records[index]
        for entry in reversed(() if record.dropped else record.entries):
            clipped = entry.kind is ItemKind.RESULT and entry.action is Action.CLIPPED
            taken = entry.again or entry.counts or entry.listed
            if clipped and entry.decided == ledger.iteration and not taken:
                return entry
    return None


def hidden_names(ledger: Ledger, texts: PromptView) -> list[tuple[int, int]]:
    """Return the names that no visible text has any more, as places, last used first; at most `NAMES_LISTED`.

    A place is a message's index in the history, and the name's among the names of that message.
    """
    used = _used(ledger)
    missing = _missing(ledger, texts, frozenset(name for name, _ in used)) if used else frozenset()
    hidden = (place for name, place in used if name in missing and name not in ledger.messages.by_id)
    return list(islice(hidden, NAMES_LISTED))


def _used(ledger: Ledger) -> list[tuple[str, tuple[int, int]]]:
    """Return the names that the model used and their places, last used first, without those that a later one covers."""
    covered: set[str] = set()
    found: list[tuple[str, tuple[int, int]]] = []
    left = NAMES_CONSIDERED
    for index in range(len(ledger.records) - 1, -1, -1):
        for place, name in enumerate(ledger.records[index].names):
            left -= 1
            if name not in covered:
                covered.update(_covered_by(name))
                found.append((name, (index, place)))
        if left <= 0:
            break
    return found


def _covered_by(name: str) -> Iterator[str]:
    """Yield the name, and the parts of a path that it covers: its last two parts, and the last."""
    yield name
    parts = name.split("/")
    if len(parts) > 1:
        yield parts[-1]
        yield "/".join(parts[-2:])


def _missing(ledger: Ledger, texts: PromptView, names: frozenset[str]) -> frozenset[str]:
    """Return those of some names that the history does not show.

    Only of these is anything kept: all possible names in a text of 50 MB take half a gigabyte.
    """
    missing = set(names)
    seen: set[str] = set()
    left = SHOWN_CHARACTERS
    for record in reversed(ledger.records):
        if record.dropped or record.unseen:
            continue
        for entry in record.entries:
            if entry.kind not in _READ:
                continue
            text = texts.shown(entry)
            whole = len(text) <= left
            for part in leaves(text) if whole and entry.kind is ItemKind.ARGUMENTS else (text[:left],):
                for tokens in _tokens(part):
                    new = set(tokens).difference(seen)  # four of five are repeated
                    if len(seen) + len(new) > SEEN_TOKENS:
                        seen.clear()
                    seen |= new
                    missing -= new
                    for token in _more_than_names(new):
                        missing.difference_update(_covered_by(token.rstrip("./-").lstrip("-")))
            if not (whole and missing):
                return frozenset(missing)
            left -= len(text)
    return frozenset(missing)


def _more_than_names(tokens: Collection[str]) -> set[str]:
    """Return those tokens of which a part is another name: the last parts of a path, or a token without its signs.

    The signs at the end precede the digits in ASCII.
    """
    return {token for token in tokens if "/" in token or token[-1] < "0" or token[0] == "-"}


def _tokens(text: str) -> Iterator[Sequence[str]]:
    """Yield all possible names of a text in pieces, so that none holds the interpreter for long."""
    start = 0
    while start < len(text):
        gap = _GAP.search(text, start + PIECE_CHARACTERS)
        end = gap.start() if gap is not None else len(text)
        plain = text[start:end].encode("ascii", "replace")  # a question mark is in no name
        yield plain.translate(_SPACED).decode("ascii").split()
        start = end
