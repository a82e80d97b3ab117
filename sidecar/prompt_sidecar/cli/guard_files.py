"""`prompt-sidecar guard`: what the guard's rules find in a user's own files. Prints line and rule, never the value.

A file is read in pieces that end with a line. Each piece is searched unchanged. If the file looks like JSON, each
string with an escape is also searched decoded, as an escape may divide a key. A finding is reported with the line of
the file in which it begins.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, Final, TextIO

from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.guard.rules import RuleGroup, RuleSet, default_rules

PIECE_BYTES: Final = 8_388_608
"""Bytes of a file that are read at once; as many more may be read for the rest of a line."""
_GZIP: Final = b"\x1f\x8b"
_STRING: Final = re.compile(r'"((?:[^"\\\n]|\\.)*\\(?:[^"\\\n]|\\.)*)"')
"""A string in JSON that contains an escape."""
_PROGRESS_SECONDS: Final = 0.2


class GuardError(Exception):
    """A file cannot be read, or a name is not a rule's; the message says which."""


@dataclass(frozen=True, slots=True)
class LineFindings:
    """The findings of one rule in one line of a file."""

    file: str
    line: int
    rule: str
    kind: str
    group: str
    action: str
    count: int


def chosen(options: GuardOptions, only: Sequence[str]) -> RuleSet:
    """Return the rules of the settings, with the actions they have if `guard.mode` is `enforce`.

    Args:
        options: the settings.
        only: names of rules and groups; empty for all.

    Raises:
        GuardError: a name is neither a rule's nor a group's.
    """
    rules = default_rules(replace(options, mode=ENFORCE)).rules
    known = {rule.name for rule in rules} | set(RuleGroup)
    for name in only:
        if name not in known:
            raise GuardError(f"--only {name} is neither a rule that is on nor a group; --rules lists them")
    return RuleSet(rule for rule in rules if not only or rule.name in only or rule.group in only)


def list_rules(rules: RuleSet, *, as_json: bool, out: TextIO) -> None:
    """Write the rules: a table, or a JSON object per line, which also has pattern and check."""
    if as_json:
        for rule in rules.rules:
            shown = {name: value for name, value in asdict(rule).items() if name not in {"near", "in_ascii"}}
            out.write(json.dumps(shown, ensure_ascii=False) + "\n")
        return
    rows = [("rule", "group", "action", "mask")]
    rows += [
        (rule.name, rule.group, rule.action, "" if rule.group is RuleGroup.LOOKALIKES else f"⟦{rule.kind}:…⟧")
        for rule in rules.rules
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    padded = ([cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)] for row in rows)
    out.writelines("  ".join(cells).rstrip() + "\n" for cells in padded)


def look(rules: RuleSet, files: Sequence[str], *, as_json: bool, out: TextIO, progress: TextIO) -> int:
    """Write findings in files, line by line as they are found, then a summary; return their number.

    Raises:
        GuardError: a file cannot be read.
    """
    began = time.monotonic()
    counts: Counter[str] = Counter()
    actions = {rule.name: rule.action for rule in rules.rules}
    size = 0
    for file in files:
        with _opened(file) as (source, total):
            meter = _Meter(progress if progress.isatty() else None, file, total)
            for line, taken in _lines(rules, file, source):
                size += taken
                meter.passed(taken)
                if line is not None:
                    counts[line.rule] += line.count
                    meter.clear()
                    text = json.dumps(asdict(line)) if as_json else _shown(line)
                    out.write(text + "\n")
            meter.clear()
    seconds = time.monotonic() - began
    if as_json:
        summary = {"files": len(files), "bytes": size, "finds": counts.total(), "rules": counts}
        out.write(json.dumps({"summary": summary}) + "\n")
    else:
        read = f"{len(files):,} file{'' if len(files) == 1 else 's'}, {size / 1e6:,.1f} MB in {seconds:.1f} s"
        out.write(f"{read}: {_found(counts.total())}\n")
        out.writelines(f"  {count:>7,}  {rule} ({actions[rule]})\n" for rule, count in counts.most_common())
    out.flush()
    return counts.total()


def _found(count: int) -> str:
    return "nothing found" if not count else f"{count:,} find{'' if count == 1 else 's'}"


def _shown(line: LineFindings) -> str:
    times = f", {line.count:,} times" if line.count > 1 else ""
    return f"{line.file}:{line.line}: {line.rule} ({line.action}{times})"


def _lines(rules: RuleSet, file: str, source: IO[bytes]) -> Iterator[tuple[LineFindings | None, int]]:
    """Yield each line with a finding, and after each piece None with the number of bytes read."""
    by_name = {rule.name: rule for rule in rules.rules}
    first, is_json = 1, None
    for piece in _pieces(source, file):
        text = piece.decode(errors="replace")
        if is_json is None:
            is_json = text.lstrip("\ufeff \t\r\n")[:1] in {"{", "[", '"'}
        found = _in_piece(rules, text, as_json=is_json)
        for (line, name), count in sorted(found.items()):
            rule = by_name[name]
            yield LineFindings(file, first + line, name, rule.kind, rule.group, rule.action, count), 0
        yield None, len(piece)
        first += text.count("\n")


def _in_piece(rules: RuleSet, text: str, *, as_json: bool) -> Counter[tuple[int, str]]:
    """Return how often each rule matches in each line, counted from 0."""
    found = _counted(text, ((find.start, find.rule.name) for find in rules.scan([text])[0]))
    if as_json:
        tokens = [match for match in _STRING.finditer(text) if match[1]]
        decoded = [_decoded(match[0]) for match in tokens]
        finds = rules.scan(decoded)
        places = ((match.start(), find.rule.name) for match, each in zip(tokens, finds, strict=True) for find in each)
        # The same value is mostly found in both forms.
        found |= _counted(text, places)
    return found


def _counted(text: str, places: Iterable[tuple[int, str]]) -> Counter[tuple[int, str]]:
    found: Counter[tuple[int, str]] = Counter()
    line = at = 0
    for place, name in sorted(places):
        line += text.count("\n", at, place)
        at = place
        found[line, name] += 1
    return found


def _decoded(token: str) -> str:
    try:
        return str(json.loads(token, strict=False))
    except ValueError:  # a text between two strings, or one that is not JSON
        return ""


def _pieces(source: IO[bytes], file: str) -> Iterator[bytes]:
    try:
        while piece := source.read(PIECE_BYTES):
            yield piece + (b"" if piece.endswith(b"\n") else source.readline())
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise GuardError(f"{file} is a damaged gzip file") from None
    except OSError as error:
        raise GuardError(f"{file} cannot be read: {error.strerror}") from None


@contextmanager
def _opened(file: str) -> Iterator[tuple[IO[bytes], int]]:
    """Yield a file, decompressed, and its size on disk, 0 if unknown."""
    if file == "-":
        yield sys.stdin.buffer, 0
        return
    with ExitStack() as stack:
        try:
            raw = stack.enter_context(Path(file).open("rb"))
            packed = raw.peek(len(_GZIP))[: len(_GZIP)] == _GZIP  # a pipe can be read only once
            total = 0 if packed else Path(file).stat().st_size
        except OSError as error:
            raise GuardError(f"{file} cannot be read: {error.strerror}") from None
        unpacked: Any = gzip.GzipFile(fileobj=raw) if packed else raw
        yield unpacked, total


class _Meter:
    """Shows progress on a terminal."""

    def __init__(self, terminal: TextIO | None, file: str, total: int) -> None:
        self._terminal = terminal
        self._file = file
        self._total = total
        self._done = 0
        self._next = time.monotonic() + _PROGRESS_SECONDS
        self._shown = False

    def passed(self, size: int) -> None:
        self._done += size
        if self._terminal is None or not size or time.monotonic() < self._next:
            return
        share = f" of {self._total / 1e6:,.0f}" if self._total else ""
        self._terminal.write(f"\r{self._file}: {self._done / 1e6:,.0f}{share} MB")
        self._terminal.flush()
        self._shown = True
        self._next = time.monotonic() + _PROGRESS_SECONDS

    def clear(self) -> None:
        if self._shown and self._terminal is not None:
            self._terminal.write("\r\x1b[K")
            self._terminal.flush()
            self._shown = False
