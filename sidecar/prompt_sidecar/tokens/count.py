"""Counting tokens: exact on ordinary text, linear and bounded on any text.

A text is a chain of slices of at most `SLICE_CHARS` characters, and `BLOCK_SLICES` slices make a block. Each slice is
encoded by itself and the counts are added. That bounds what one call into the tokenizer can take: its regular
expression overflows its stack on a million spaces, and its merges are worse than linear on one long word. The cuts
depend on the text alone, so that a count is the same in every process. They fall after a newline or before a space
where one is near; the published patterns let no token run across such a place, so ordinary text loses nothing. Where
none is near, a slice may cost one token more than the whole text would.

Blocks are the unit of everything else: a block's count is cached under its SHA-256 (callers send text that attackers
choose, so the hash must resist collisions), and between blocks the caller may stop the work. A count that was stopped
leaves its finished blocks behind, so a retry continues where it ended; a text that grew pays for its last block only.

Text that spells a special token is ordinary text.

A vocabulary takes some 50 MB and a third of a second, and most sidecars count in one: so each is loaded when it is
first needed, once, by the thread that needs it. Other threads that need it wait; threads that need another vocabulary
do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from threading import Lock
from typing import Final

import tiktoken
from cachetools import LRUCache

from prompt_sidecar import slots
from prompt_sidecar.tokens.fast import CountSlice

SLICE_CHARS: Final = 7_936
"""Characters of a slice: the most below 8,000 that is a multiple of 128, the longest run of spaces that is one token,
so that whitespace loses nothing to the cuts. Slices of one repeated character cost three times an ordinary one."""

CUT_WINDOW: Final = 1_024
"""Characters at a slice's end that are searched for a newline or space: twelve ordinary lines, and cheap to scan."""

BLOCK_SLICES: Final = 8
"""Slices of a block, so that `check` is called about every 64 KB of text: some 5 ms of work."""

CACHE_FROM_CHARS: Final = 1_024
"""Shorter texts are not cached: they cost at most 70 µs, and hashing and keeping each would slow a first count by more
than it is worth. In recorded runs a twelfth of the texts is this long, and holds two thirds of the characters."""

DEFAULT_CACHE_ENTRIES: Final = 32_768
"""Blocks remembered for each encoding: thirty runs of a thousand long messages, in about 6 MB."""

OUT_OF_MEMORY: Final = ("PyObject pointer is null", "Python API call failed")
"""Beginnings of PyO3's panic messages when memory for the result is lacking, which is not an error of the text."""
TOGETHER_CHARS: Final = 65_536
"""Characters of short texts after which `check` is called."""

Source = tiktoken.Encoding | Callable[[], CountSlice]
"""The counter of an encoding: the encoding itself, or a function that loads a counter of slices."""

_WARM_TEXT: Final = "Warm up: 12 words, naïve 漢字 🙂\n\n\tdef f(x): return {'a': [1, 2.5]}  # …\r\n"


class Counter:
    """Counts tokens and caches the counts. Thread-safe.

    The cache holds hashes and counts but no text, at most `cache_entries` for each encoding.
    """

    def __init__(self, encodings: Mapping[str, Source], cache_entries: int = DEFAULT_CACHE_ENTRIES) -> None:
        """Set up the encodings.

        Args:
            encodings: the encodings by name, each loaded or with a function that loads it when it is first needed.
            cache_entries: blocks to cache for each, at least one.
        """
        if cache_entries < 1:
            raise ValueError(f"cache_entries is {cache_entries}; it may be 1 or more")
        self._coders = {name: _Coder(source, cache_entries) for name, source in encodings.items()}

    @property
    def encodings(self) -> tuple[str, ...]:
        """Names of the encodings that can be counted in."""
        return tuple(self._coders)

    @property
    def loaded(self) -> tuple[str, ...]:
        """Names of the loaded encodings."""
        return tuple(name for name, coder in self._coders.items() if coder.is_loaded)

    def load(self, encoding: str) -> None:
        """Load an encoding before it is needed; does nothing if it is loaded.

        Raises:
            KeyError: the encoding is unknown.
            VocabularyError: its vocabulary is missing or damaged.
        """
        self._coders[encoding].counter()

    def forget(self) -> None:
        """Forget the counts of all texts so far, which changes no result."""
        for coder in self._coders.values():
            coder.forget()

    def count(self, text: str, encoding: str, check: Callable[[], None] | None = None) -> int:
        """Count the tokens of `text` in an encoding.

        Lone surrogates, which no tokenizer accepts, are counted as the replacement character.

        Args:
            text: any text.
            encoding: a name of `encodings`.
            check: called before each block but the first; what it raises ends the count, whose finished blocks are
                kept.

        Raises:
            KeyError: the encoding is unknown.
            VocabularyError: it had to be loaded, and its vocabulary is missing or damaged.
        """
        coder = self._coders[encoding]
        if len(text) < CACHE_FROM_CHARS:
            return coder.slice(text)
        if len(text) <= SLICE_CHARS:
            return coder.block(text, (len(text),))
        tokens = start = 0
        while True:
            ends = _cuts(text, start)
            stop = ends[-1]
            block = text[start:stop]
            tokens += coder.block(block, [end - start for end in ends])
            if stop == len(text):
                return tokens
            start = stop
            if check is not None:
                check()

    def count_many(self, texts: Sequence[str], encoding: str, check: Callable[[], None] | None = None) -> list[int]:
        """Count the tokens of several texts, as `count` does; `check` is also called between short ones."""
        counts: list[int] = []
        since = 0
        for text in texts:
            if since > TOGETHER_CHARS:
                since = 0
                if check is not None:
                    check()
            counts.append(self.count(text, encoding, check))
            since += len(text)
        return counts


def warm(counter: Counter) -> None:
    """Spend the calling thread's first-call cost for the loaded encodings; for the start of each worker thread.

    tiktoken keeps a compiled expression with its own scratch memory for each of 128 slots that threads hash to, and the
    first call on a slot builds that memory: 0.1 to 0.3 ms with tiktoken 0.14 on CPython 3.11.
    """
    for encoding in counter.loaded:
        counter.count(_WARM_TEXT, encoding)


class _Coder:
    """One encoding with its cache: from a block's hash to its count."""

    __slots__ = ("_cache", "_counter", "_load", "_loading", "_lock")

    def __init__(self, source: Source, entries: int) -> None:
        self._counter = None if callable(source) else _counter_of(source)
        self._load = source if callable(source) else None
        self._loading = Lock()
        # An LRUCache is not safe to share; the lock is held for a microsecond, never while text is encoded.
        self._lock = Lock()
        self._cache: LRUCache[bytes, int] = LRUCache(entries)

    @property
    def is_loaded(self) -> bool:
        """Whether the encoding is loaded."""
        return self._counter is not None

    def counter(self) -> CountSlice:
        """The counter of a slice, loaded by the first thread that needs it."""
        if self._counter is None:
            with slots.holding(self._loading):  # for as long as a vocabulary takes to load, up to a second
                if self._counter is None:
                    assert self._load is not None, "a source that is no encoding loads one"
                    self._counter = self._load()
        return self._counter

    def block(self, text: str, ends: Sequence[int]) -> int:
        """Count one block, given where its slices end; cached."""
        key = sha256(text.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            known = self._cache.get(key)
        if known is not None:
            return known
        tokens = self.encode_slices(text, ends)
        with self._lock:
            self._cache[key] = tokens
        return tokens

    def forget(self) -> None:
        """Empty the cache."""
        with self._lock:
            self._cache.clear()

    def encode_slices(self, text: str, ends: Sequence[int]) -> int:
        """Count slice by slice."""
        return sum(self.slice(text[start:end]) for start, end in zip((0, *ends), ends, strict=False))

    def slice(self, text: str) -> int:
        """Count one slice; not cached."""
        count = self._counter or self.counter()
        try:
            return count(text)
        except BaseException as error:  # noqa: BLE001  # a panic is not an Exception; others are raised again
            return _upper_estimate(text, error)


def _counter_of(encoding: tiktoken.Encoding) -> CountSlice:
    encode = encoding.encode_ordinary
    return lambda text: len(encode(text))


def _upper_estimate(text: str, error: BaseException) -> int:
    """Estimate the tokens of a text on which the tokenizer panicked; raise `error` again if it is anything else.

    A panic of the tokenizer's Rust code is not an Exception, and its class cannot be imported. A token covers at least
    one byte, so the estimate is never too low, and a prompt that seems to fit does.
    """
    if type(error).__name__ != "PanicException":
        raise error
    if str(error).startswith(OUT_OF_MEMORY):
        raise MemoryError from None
    return len(text.encode("utf-8", "surrogatepass"))


def _cuts(text: str, start: int) -> list[int]:
    """Return where the slices of the block at `start` end, in characters from the text's beginning."""
    ends: list[int] = []
    for _ in range(BLOCK_SLICES):
        start = _cut(text, start)
        ends.append(start)
        if start == len(text):
            break
    return ends


def _cut(text: str, start: int) -> int:
    """Return where the slice at `start` ends: after `start`, and at most `SLICE_CHARS` after it."""
    end = start + SLICE_CHARS
    if end >= len(text):
        return len(text)
    newline = text.rfind("\n", end - CUT_WINDOW, end)
    if newline != -1:
        return newline + 1
    if text[end] == " ":
        return end  # before a word, or inside a run of spaces, which this length divides without loss
    space = text.rfind(" ", end - CUT_WINDOW, end)
    return space if space != -1 else end
