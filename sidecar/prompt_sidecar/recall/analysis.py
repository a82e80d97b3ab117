"""Text analysis for search: from a text to its index terms, in order and with repeats.

Theory. A model searches for what it remembers: a name it saw, part of a name, an error code, a word of prose. So a word
is indexed whole and in its parts: `DiffExecutor` gives `diffexecutor`, `diff`, `executor`; `src/run_loop.py` gives
itself, `run_loop`, `src`, `run`, `loop`, `py`. The whole is rare and so has the highest weight; the parts match other
forms of the query. Function words are dropped, English words stemmed (Snowball, by PyStemmer).
Measured on code retrieval, each of these pays: docs/search-quality.md has the figures.

How it stays fast. The UTF-8 of the text is split by one table (`bytes.translate`, then `split`), and each piece is
looked up in a memo from words to terms: recorded runs repeat nine words of ten. Only an unseen word is taken apart. A
hostile text of unseen words costs more for each byte the shorter its words are, but stays linear in its length; steps
that could be slower (Unicode normalisation sorts combining marks) get bounded slices only.

Scripts without spaces (Han, kana, Hangul, Thai and the like) are indexed as overlapping pairs of characters, a
character that stands alone as itself. Accents of Latin, Greek and Cyrillic are dropped, so that "cafe" finds "café".
"""

from __future__ import annotations

import re
import threading
import unicodedata
from typing import Final

import re2
import Stemmer

MAX_TERM: Final = 64
"""Most characters of a term: the longest name in queries is a SHA-256 in hex. Longer ones are cut."""
MAX_SPLIT: Final = 256
"""Longest word that is split into parts; longer ones are not names but base64 lines or minified code."""
CRUMBS: Final = 4
"""Number of pieces from which a name is checked for random characters: `x86_64` and `0x1f` have three and four."""
CRUMB: Final = 3
"""Least average length of the pieces of such a name for which they are indexed."""
MEMO_WORDS: Final = 32_768
"""Most words in the memo before it is cleared, which costs as much as 100 KB of unseen text. A long coding run has
about 20,000 different words."""
MEMO_BYTES: Final = 16_777_216
"""Most bytes of the memo, estimated."""

# The closed classes of English, as any grammar lists them (articles, pronouns, prepositions, conjunctions, auxiliaries,
# question words), and what an apostrophe leaves behind. Words that name things in code are left in: "all", "any",
# "new", "no", "not", "off", "up".
_FUNCTION_WORDS: Final = """
a an the this that these those i me my we us our you your he him his she her it its they them their who whom whose which
what when where why how at by for from in into of on onto to with within about as than via and or but nor if then so
because while although though am is are was were be been being do does did doing have has had having can could may might
must shall should will would there here also too very just only such s t d ll re ve don doesn didn isn aren wasn weren
won wouldn shouldn couldn
"""
STOPWORDS: Final = frozenset(_FUNCTION_WORDS.split())
"""Function words, which are not indexed."""

_JOINERS: Final = b"._-/@"
_KEPT: Final = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" + _JOINERS)
_TABLE: Final = bytes(byte if byte in _KEPT or byte >= 0x80 else 0x20 for byte in range(256))
_ENDS: Final = ".-/@"

_NAME = re.compile(r"[A-Za-z0-9_]+")
_PIECE = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")

_ACCENT = re.compile("[\u0300-\u036f]+")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]+")
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
_LETTERED = re2.compile(r"[\p{L}\p{N}\p{M}_]+")

_ESCAPED = re.compile(rb"(?:\\u[0-9a-fA-F]{4})+")
_ESCAPES: Final = (
    # Two backslashes first, so that the second does not begin an escape; restored last. UTF-8 has no byte FF.
    (b"\\\\", b"\xff"),
    (b"\\n", b"\n"),
    (b"\\t", b"\t"),
    (b"\\r", b"\r"),
    (b'\\"', b'"'),
    (b"\\/", b"/"),
    (b"\\b", b" "),
    (b"\\f", b" "),
)


class _Stemmers(threading.local):
    """One stemmer for each thread, as they are not thread-safe."""

    def __init__(self) -> None:
        self.english = Stemmer.Stemmer("english", 0)  # no cache of its own: the memo is the cache


class Analyser:
    """Splits texts into terms. Thread-safe. Its steps can be turned off, to measure the benefit of each."""

    def __init__(self, *, split: bool = True, stopwords: frozenset[str] = STOPWORDS, stem: bool = True) -> None:
        self._split = split
        self._stopwords = stopwords
        self._stem = stem
        self._stemmers = _Stemmers()
        self._memo: dict[bytes, tuple[str, ...]] = {}
        self._memo_bytes = 0
        self._lock = threading.Lock()

    def terms(self, text: str) -> list[str]:
        """Return the index terms of a text, in order and with repeats; a whole name comes before its parts."""
        known = self._memo.get
        found: list[str] = []
        for word in text.encode("utf-8", "replace").translate(_TABLE).split():
            terms = known(word)
            found += self._unseen(word) if terms is None else terms
        return found

    def forget(self) -> None:
        """Forget the words seen so far, which changes no result."""
        with self._lock:
            self._memo.clear()
            self._memo_bytes = 0

    def _unseen(self, word: bytes) -> tuple[str, ...]:
        text = word.decode("utf-8", "replace")
        terms = tuple(self._ascii(text) if text.isascii() else self._other(text))
        if len(word) <= MAX_TERM:
            self._remember(word, terms)
        return terms

    def _remember(self, word: bytes, terms: tuple[str, ...]) -> None:
        # 33 bytes of the word's header, 40 of the tuple's, about 100 in the dict; 49 and a reference for each term.
        size = 180 + len(word) + sum(57 + len(term) for term in terms)
        with self._lock:
            if len(self._memo) >= MEMO_WORDS or self._memo_bytes + size > MEMO_BYTES:
                self._memo.clear()
                self._memo_bytes = 0
            self._memo[word] = terms
            self._memo_bytes += size

    def _ascii(self, text: str) -> list[str]:
        """Return the terms of a word between blanks and brackets: a name, or several joined by dots, slashes, etc."""
        if not self._split:
            return [name[:MAX_TERM] for name in _NAME.findall(text.lower()) if name not in self._stopwords]
        text = text.strip(_ENDS)
        names = _NAME.findall(text)
        found: list[str] = []
        if len(names) > 1 and len(text) <= MAX_SPLIT:
            found.append(text.lower()[:MAX_TERM])
            file = text.rpartition("/")[2]
            if file != text and file != names[-1]:
                found.append(file.lower()[:MAX_TERM])
        for name in names:
            self._name(name, found)
        return found

    def _name(self, name: str, found: list[str]) -> None:
        """Add the terms of one name: letters, digits and underscores."""
        lower = name.lower()
        if len(name) > MAX_SPLIT or lower.isdigit():
            found.append(lower[:MAX_TERM])
            return
        pieces = _PIECE.findall(name)
        if len(pieces) != 1 or len(pieces[0]) != len(name):
            if lower not in self._stopwords:  # unusual case: "iS", "tHe"
                found.append(self._stemmed(lower)[:MAX_TERM])
            # Hex ids and base64 have short pieces without meaning.
            if len(pieces) >= CRUMBS and len(name) < CRUMB * len(pieces):
                return
        for piece in pieces:
            word = piece.lower()
            if word not in self._stopwords:
                found.append(self._stemmed(word)[:MAX_TERM])

    def _stemmed(self, lower: str) -> str:
        # Snowball leaves words of one or two letters as they are.
        if not self._stem or not 2 < len(lower) <= MAX_TERM or not lower.isalpha():
            return lower
        stem: str = self._stemmers.english.stemWord(lower)
        return stem

    def _other(self, text: str) -> list[str]:
        """Return the terms of a word beyond ASCII, in slices, as sorting combining marks is quadratic."""
        folded = "".join(_folded(text[start : start + MAX_SPLIT]) for start in range(0, len(text), MAX_SPLIT))
        found: list[str] = []
        for index, stretch in enumerate(_UNSPACED.split(folded)):
            if index % 2:
                found += (stretch[at : at + 2] for at in range(max(1, len(stretch) - 1)))
            elif stretch.isascii():
                found += self.terms(stretch)
            else:
                for word in _LETTERED.findall(stretch):
                    bare = word if word.isascii() else word.casefold()
                    if bare.isascii():
                        self._name(bare, found)
                    else:
                        found.append(bare[:MAX_TERM])
        return found


def _folded(text: str) -> str:
    """Return the text without compatibility forms, accents and invisible characters."""
    text = _INVISIBLE.sub("", text)
    decomposed = unicodedata.normalize("NFKD", text)
    if len(decomposed) > 4 * len(text):  # one Arabic ligature decomposes into 18 characters; a text of them is hostile
        decomposed = unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFC", _ACCENT.sub("", decomposed))


_ANALYSER: Final = Analyser()


def terms(text: str) -> list[str]:
    """Return the index terms of a document's text, in order and with repeats."""
    return _ANALYSER.terms(text)


def query_terms(text: str) -> list[str]:
    """Return the terms of a query, in order and with repeats, each of which counts.

    Empty if it has only function words and punctuation.
    """
    return _ANALYSER.terms(text)


def forget_words() -> None:
    """Forget the words of all texts so far. They are analysed again when they occur again: 10 us each."""
    _ANALYSER.forget()


def plain(original: bytes, content_type: str) -> str:
    """Return an original's text for analysis; for `application/json` with the escapes of its strings decoded.

    Accepts slices of an original too: a cut character becomes U+FFFD, and a cut escape is kept.
    """
    if content_type == "application/json" and b"\\" in original:
        for escape, meant in _ESCAPES:
            original = original.replace(escape, meant)
        original = _ESCAPED.sub(_unescaped, original).replace(b"\xff", b"\\")
    return original.decode("utf-8", "replace")


def _unescaped(match: re.Match[bytes]) -> bytes:
    units = bytes.fromhex(match[0].replace(b"\\u", b"").decode("ascii"))
    return units.decode("utf-16-be", "replace").encode("utf-8")
