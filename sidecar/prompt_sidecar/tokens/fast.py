"""A faster counter, where the extra `fast` is installed: toktok-rs, ten to forty times as fast as tiktoken.

It is a young project, so it is verified before use: when an encoding is loaded, it counts a set of probes, and is used
only if all counts equal tiktoken's. These are stored here, so that the check needs no second vocabulary; a test
compares them with the installed tiktoken. Both count slices of the same cuts, so counts do not depend on which of the
two is used.

Its public function for counting one text is `truncate`, which returns the number of tokens of the whole text, whatever
it cuts: 0.4 us and 1.6 ns a character. `batch_count` takes 11 us a call more, for threads that slices do not need.

Memory: 48 MB for o200k_base, and 1 MB of counted words for each thread that counts, of 32 MB for all. A thread that has
no such table takes a third longer. toktok gives 16.5 MB each to the first two threads and none to the others; but
threads of one batch share the whole, and leave their tables to threads that count later. So each thread has a tiny
batch counted before its first text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Lock, Thread, local
from types import MappingProxyType
from typing import Final, Protocol

from prompt_sidecar import slots
from prompt_sidecar.tokens.vocabulary import EncodingName

CountSlice = Callable[[str], int]
"""Returns the number of tokens of one slice of a text."""

PROBES: Final = (
    "The quick brown fox jumps over the lazy dog; it's 12:34:56, they'll say, and 1,234,567 lines later…\n\n",
    "def f(x: int) -> dict[str, list[float]]:\r\n\treturn {'a': [1, 2.5]}  # naïve\n" * 20,
    '{"path": "src/main.py", "lines": [1, 2, 3], "text": "\\u00e9 \\n \\"quoted\\" \\\\"}',
    "2026-01-02T03:04:05.678Z ERROR [worker-7] 0xdeadbeef /var/log/app.log: No such file or directory\n" * 8,
    "漢字とかな交じり文。한국어 문장입니다. Ελληνικά, русский, עברית, العربية, हिन्दी, ไทย",
    "🙂👩‍👩‍👧🏳️‍🌈 e\u0301\u0300 \u200b\u00a0\ufeff \u202eabc ſK İıß ﬁ ½ ² Ⅷ",
    "<|endoftext|><|im_start|>system<|im_end|><|endofprompt|>",
    "a" * 3_000,
    " " * 3_000,
    "\n" * 500 + "\t \t" * 300 + "\r\n" * 200,
    "!?.,;:-_=+*/\\|@#$%^&~`'\"()[]{}<>" * 40,
    # By the tables of Unicode 3.2, which every Python version includes, so that the text is the same in each.
    "".join(chr(point) for point in range(0x20, 0x2_000) if unicodedata.ucd_3_2_0.category(chr(point)) != "Cn"),
    "U2FtcGxlIG9mIGJhc2U2NCB0ZXh0LCB3aGljaCBsb25nIHdvcmRzIGxvb2sgbGlrZQ" * 30,
    "HTTPServerError camelCaseName snake_case_name SCREAMING_CASE kebab-case x1y2z3 iPhone's DON'T we've",
)
"""Texts of the kinds that agents send and of the kinds on which two tokenizers differ."""

EXPECTED: Final[Mapping[EncodingName, tuple[int, ...]]] = MappingProxyType(
    {
        "o200k_base": (31, 640, 36, 312, 28, 38, 25, 375, 24, 382, 800, 10004, 1351, 27),
        "cl100k_base": (33, 620, 36, 312, 58, 48, 25, 375, 24, 367, 800, 12055, 1351, 27),
    }
)
"""tiktoken's count of each probe."""

_ALL: Final = 1 << 60
"""More tokens than any text has, so that `truncate` cuts nothing."""


_BATCH_THREADS: Final = 17
"""Threads of the batch that leaves tables for later threads: the fewest for which each table has its least size, 1 MB.
It takes about a millisecond."""
_BATCH_TEXT: Final = "a"


class _BatchCount(Protocol):
    """toktok's `batch_count`: the tokens of each text, counted in this many threads of its own."""

    def __call__(self, texts: Sequence[str], encoding: str = ..., threads: int = ...) -> Sequence[int]: ...


class _Truncate(Protocol):
    """toktok's `truncate`: the text cut to a number of tokens, and the tokens of the whole text."""

    def __call__(self, text: str, max_tokens: int, encoding: str = ...) -> tuple[str, int]: ...


def begin_loading(name: EncodingName) -> None:
    """Have toktok load an encoding in a thread of its own.

    It takes 0.33 s, during which version 0.3.0 does not release the interpreter lock; versions that release it load it
    during the imports. `load_fast` waits for it. Errors are ignored here, as `load_fast` gets the same ones.
    """

    def load() -> None:
        with suppress(BaseException):
            import toktok  # an extra, which may be missing

            _leave_tables(toktok.batch_count, name)

    Thread(target=load, name="vocabulary", daemon=True).start()


def load_fast(name: EncodingName, slow: Callable[[], CountSlice]) -> tuple[CountSlice | None, str]:
    """Load and verify the faster counter of an encoding.

    Args:
        name: the encoding.
        slow: loads tiktoken's counter of it, for texts on which the faster one fails.

    Returns:
        The counter, or None if it is not installed or its counts differ; and a sentence on the result for the log.
    """
    try:
        import toktok  # an extra, which may be missing
    except ImportError:
        return None, f"{name}: tiktoken counts; the extra `fast` is not installed"
    version = getattr(toktok, "__version__", "of an unknown version")
    counter = _Fast(toktok.truncate, toktok.batch_count, name, slow)
    try:
        found = tuple(map(counter.alone, PROBES))
    except Exception:  # noqa: BLE001  # whatever the error is, tiktoken is used instead
        found = ()
    if found != EXPECTED[name]:
        return None, f"{name}: tiktoken counts; toktok {version} counts some of its probes otherwise"
    return counter, f"{name}: toktok {version} counts; on all {len(PROBES)} probes it counts as tiktoken does"


class _Fast:
    """Counts with toktok, and with tiktoken those texts on which toktok fails."""

    __slots__ = ("_batch", "_lock", "_name", "_slow", "_slow_counter", "_threads", "_truncate")

    def __init__(self, truncate: _Truncate, batch: _BatchCount, name: str, slow: Callable[[], CountSlice]) -> None:
        self._truncate = truncate
        self._batch = batch
        self._name = name
        self._slow = slow
        self._slow_counter: CountSlice | None = None
        self._lock = Lock()
        self._threads = local()
        """Has the attribute `counts` in threads that have counted."""

    def alone(self, text: str) -> int:
        """Return the tokens of a text, counted by toktok only."""
        self._take_table()
        return self._truncate(text, _ALL, self._name)[1]

    def __call__(self, text: str) -> int:
        try:
            self._threads.counts  # noqa: B018  # whether it is there costs less than to ask for it in any other way
        except AttributeError:
            self._take_table()
        try:
            return self._truncate(text, _ALL, self._name)[1]
        except MemoryError:
            raise
        except UnicodeEncodeError:  # a lone surrogate, treated by tiktoken's rule
            return self._truncate(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), _ALL, self._name)[
                1
            ]
        except BaseException as error:
            if not _is_failure(error):
                raise
        with slots.holding(self._lock):  # here, as loading takes up to a second
            if self._slow_counter is None:
                self._slow_counter = self._slow()
        return self._slow_counter(text)

    def _take_table(self) -> None:
        """Make the calling thread take a small table of words before it would create a large one."""
        if hasattr(self._threads, "counts"):
            return
        self._threads.counts = True
        with slots.holding(_TABLES):
            try:
                _leave_tables(self._batch, self._name)
                self._truncate(_BATCH_TEXT, _ALL, self._name)
            except BaseException as error:
                if not _is_failure(error):  # such as no more threads: then it counts without, or with a large one
                    raise


_TABLES: Final = Lock()
"""Held while a thread takes a table, so that no other thread takes the table left by its batch."""


def _leave_tables(batch: _BatchCount, name: str) -> None:
    """Count a batch, which leaves small tables for threads that count later."""
    batch([_BATCH_TEXT] * _BATCH_THREADS, name, threads=_BATCH_THREADS)


def _is_failure(error: BaseException) -> bool:
    """Whether toktok failed: a panic of Rust code is not an Exception, and its class cannot be imported."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
