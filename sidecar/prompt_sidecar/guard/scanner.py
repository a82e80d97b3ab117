"""The scanner: the finds of a set of rules in texts, in linear time.

Theory. Nearly all text holds nothing. So all rules together are one expression, the gate, for one pass of RE2's
automaton over the UTF-8 of all texts, which takes as long for a hundred rules as for one. Texts are joined by a
separator. Only a text that a match of the gate touches is scanned again: one pass shows which rules match it at all,
and each of these rules makes a pass of its own. A match is a find if it passes the rule's check.

Each pass is linear, as RE2 does not backtrack, and there are at most as many as there are rules. Finds are defined rule
by rule: the matches that do not overlap, from left to right, that pass the check. Among overlapping values the leftmost
takes precedence, of these the longest; masked values take precedence over observed ones.

Offsets are turned from bytes into characters only where something was found in a text that is not ASCII. Of a text in
ASCII, RE2 reads bytes instead of UTF-8: the automata are half as large, and fewer steps miss the processor's cache.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any, Final, NamedTuple

import re2

from prompt_sidecar.guard.checks import CHECKS, CONTEXT, DECODED, EXAMINED, decoded, entropy
from prompt_sidecar.guard.reading import CONTINUED, HIDDEN, JOINTS, UNSEEN, Cells, Joined, cells, joined, read, written
from prompt_sidecar.guard.rule import BEGIN, BY_NAME, VALUE, Find, Rule, RuleAction, RuleGroup
from prompt_sidecar.prompt.utf8 import utf8

_SEPARATOR: Final = "\n\0\n"
"""Between texts. No rule of the sidecar's own matches NUL; if a user's rule does, both texts are scanned. The line
feeds let `^` and `$` match at the ends of each text."""
BATCH_CHARACTERS: Final = 1_048_576
"""Texts are joined up to this size: the copies then stay in the processor's cache."""
_MASK: Final = re.compile("⟦[a-z0-9_]{1,64}:[a-z0-9]{10}⟧")
_CONTINUATION: Final = bytes(range(0x80, 0xC0))
"""UTF-8 bytes that do not begin a character."""
MEMORY: Final = 67_108_864
"""Bytes that the automaton of all rules may take. It is built as texts need it."""
_DIVIDED: Final = (
    r"[A-Za-z0-9_-](?:=\r?\n|\\\n[+-]?[ \t]*|"
    r"\\*[\"'][ \t]*[+.]?[ \t]*(?:\\*(?:\n|\\n)[+-]?[ \t]*(?:[+.][ \t]*)?[bfru]{0,2}|[ +.])\\*[\"'])[A-Za-z0-9_-]{3}"
)
"""Where a value may continue after a joint (see `reading`): a soft break of quoted-printable (RFC 2045, 6.7), a line
that goes on, strings side by side."""
_BEGIN_IN_CODES: Final = r"(?:\b|_|\\[nrt]|%[0-9A-Fa-f][0-9A-Fa-f]|\[[0-9;]*m)"
BEFORE: Final = 256
"""Characters of the line before a match of the gate that rules scan."""
LONGEST: Final = 16_384
"""Characters of a value after a match of the gate that rules scan."""
AFTER: Final = 256
"""Characters after the value: a name may follow it, or the next line may continue it."""
GROUP: Final = re.compile(
    r"(\\.|\[\^?\]?(?:\\.|\[:\^?[a-z]+:\]|[^\]\\])*\])|\((?:\?P?<[A-Za-z_][A-Za-z0-9_]*>|(?!\?))", re.DOTALL
)
"""The beginning of a group that captures, or what only looks like one: an escape, a class of characters."""
_VALUE_GROUP: Final = re.compile(rf"\(\?P?<{VALUE}>")
_UNDERSCORE: Final = ord("_")
_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_NOT_FOR_ASCII: Final = re.compile(r"\\[pPQ]|\\x\{|-[^\x00-\x7f]|[\u017f\u212a]")
"""Properties, quotes, numbers and ranges of characters that may include ASCII; and the two characters that are, when
case does not matter, a letter of ASCII."""
_TOKEN: Final = re.compile(
    r"\\.|(\[\^?\]?(?:\\.|[^\]\\])*\]|\\d|\\w)(?:\{([0-9]+)(?:,[0-9]*)?\})?|\(\?P<value>|.", re.DOTALL
)
"""A part of a pattern: an escape, a class of characters with the least number of them, the group of the value."""
_LEAST_LITERALS: Final = 2
"""Letters and signs before a class of characters without which its beginning would match too much text."""
_SHARED: Final = 5
"""Rules with the same `near` that have an automaton of their own: each automaton reads all text."""
_LONG: Final = 16
"""Characters of a run that the gate searches for, of those that a pattern requires: fewer make a smaller automaton."""
BEGUN: Final = 10
"""How many times `guard.scan_seconds` a rule may go on that has begun. A text of nothing but passwords takes a rule
some three seconds a megabyte; without a bound, a hostile one of 30 MB would hold up its process for minutes."""
VALUE_END: Final = re.compile(r"[\s\"'\\]")
"""One character that ends a value."""
_KEY_END: Final = "-----END"
"""What follows the lines of a private key, whose beginning may be cut off."""
_SOURCE_MAP: Final = "sourceMappingURL="
"""What precedes a whole program's source in base64, which includes the examples of its documentation."""
MOST_INSTRUCTIONS: Final = 5_000
"""Size of a pattern of a user or a file, compiled: ten times that of the sidecar's own ordinary ones. All rules
together are one automaton, which a single pattern must not fill."""
RULE_MEMORY: Final = 8_388_608
"""Bytes for the automaton of one rule: RE2's own default."""
EXCLUSIONS: Final = 256
"""Compiled exclusions that are kept. Most rules of a file share the same two."""


class Watch:
    """The time that rules may take on one text, and the rules that were skipped or ended when it was over.

    Args:
        clock: in seconds, processor time of the scanning thread: one thread scans a text.
        seconds: for all rules on one text.
    """

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._until = math.inf
        self.passed: Counter[str] = Counter()
        """Number of texts that a rule did not scan, or not to the end, as the time was over, by the rule's name."""

    def begin(self) -> None:
        """Begin a text."""
        self._until = self._clock() + self._seconds

    def over(self, times: int = 1) -> bool:
        """Whether so many times the text's time is over."""
        return self._clock() >= self._until + (times - 1) * self._seconds


_Match = tuple[int, int, int]
"""Where the gate matches in a text, in characters, and by which of its expressions."""


class _Gate:
    """Some rules as one expression, which finds the texts that may have finds, and for which rules.

    A `near` that many rules share gets an automaton of its own: together with the others it would have more states
    than fit into its memory.
    """

    def __init__(
        self,
        near: Sequence[tuple[int, str]],
        patterns: Sequence[str],
        keywords: Sequence[tuple[int, str]],
        *,
        ascii_only: bool,
    ) -> None:
        """Take the rules' indices with the pattern to search for in place of each, and the patterns of all rules.

        `keywords`: the indices of rules that are searched for by keywords, with these.
        `ascii_only`: it searches only texts in ASCII.
        """
        self._ascii_only = ascii_only
        count = Counter(each for _, each in near)
        apart = [(index, each) for index, each in near if count[each] < _SHARED]
        shared = dict.fromkeys(each for _, each in near if count[each] >= _SHARED)
        self._of = [apart] if apart else []
        """The rules of each expression, with a function that returns which of them may match a page."""
        self._of += [[(index, patterns[index]) for index, each in near if each == one] for one in shared]
        self._expressions = [*([together([each for _, each in apart])] if apart else []), *shared]
        if keywords:
            self._of.append(list(keywords))
            self._expressions.append("|".join(dict.fromkeys(each for _, each in keywords)))

    @cached_property
    def any(self) -> Sequence[Any]:
        """Return expressions for matching texts; 25 to 50 ms and 1 to 2 MB, so made for the first text or ahead.

        Raises ValueError if the expressions are not RE2's, or too large.
        """
        return [
            _compiled(without_groups(each), MEMORY, capture=False, ascii_only=self._ascii_only)
            for each in self._expressions
        ]

    @cached_property
    def _which(self) -> Sequence[Any]:
        """Return sets that show which rules match a page; 2 MB and 25 ms, so made for the first text with a match."""
        return [_set([each for _, each in rules], ascii_only=self._ascii_only) for rules in self._of]

    def touched(self, batch: Sequence[str]) -> Iterator[tuple[int, Sequence[_Match]]]:
        """Yield the indices of the texts that matches touch, each with the matches in it, in characters."""
        if len(batch) == 1:
            found = self.matches(batch[0])
            if found:
                yield 0, found
        else:
            yield from _divided(self.matches(_SEPARATOR.join(batch)), batch)

    def matches(self, text: str) -> Sequence[_Match]:
        """Return the matches in a text, in characters, by their place. An empty one takes the character after it."""
        data = _encoded(text)
        spans = [(*each.span(), number) for number, one in enumerate(self.any) for each in one.finditer(data)]
        if not spans:
            return ()
        spans.sort()
        if len(data) == len(text):
            return [(start, max(start + 1, end), number) for start, end, number in spans]
        places = _Places(data, len(text))
        found: list[_Match] = []
        for start, end, number in spans:
            first, last = places.character(start), max(start, end - 1)
            # Of a match in ASCII each byte is a character.
            at = first + last - start if data[start:end].isascii() else places.character(last)
            found.append((first, at + 1, number))
        return found

    def rules(self, data: bytes, matches: Sequence[_Match]) -> Sequence[int]:
        """Return the indices of the rules that may find something on a page of a text with these matches."""
        found: list[int] = []
        for number in {number for *_, number in matches}:
            rules = self._of[number]
            which = self._which[number].Match(data)
            # If there is no answer, the automaton lacked memory: then each rule is tried.
            places = range(len(rules)) if which is None else which
            found += [rules[place][0] for place in places if place < len(rules)]
        return sorted(found)


def _divided(spans: Sequence[_Match], batch: Sequence[str]) -> Iterator[tuple[int, Sequence[_Match]]]:
    """Yield the indices of the joined texts that matches touch, each with the matches in it."""
    if not spans:
        return
    starts = list(accumulate(map(len(_SEPARATOR).__add__, map(len, batch)), initial=0))
    begun, found = -1, list[_Match]()
    for start, end, number in spans:
        first = last = bisect_right(starts, start) - 1
        if end > starts[first + 1]:
            last = bisect_right(starts, end - 1) - 1
        for place in range(first, min(last + 1, len(batch))):
            if place != begun:
                if found:
                    yield begun, found
                begun, found = place, []
            found.append((max(0, start - starts[place]), min(end - starts[place], len(batch[place])), number))
    if found:
        yield begun, found


def _set(patterns: Sequence[str], *, ascii_only: bool) -> Any:
    """Return a set that shows which patterns match a text.

    The last one matches each text once, at its beginning: without it there is no answer.
    """
    in_ascii = [without_others(each) for each in patterns] if ascii_only else [None]
    latin = None not in in_ascii
    which = re2.Set.SearchSet(_options(MEMORY, capture=False, latin=latin))
    for each in (*(in_ascii if latin else patterns), r"\A"):
        which.Add(f"(?m){each}".encode())
    which.Compile()
    return which


class _OwnPattern:
    """One rule's own expression, compiled for the first text in which the rule may find something.

    All of the sidecar's rules take 1.8 MB and 0.12 s, and most sidecars use a few of them.
    """

    def __init__(self, rule: Rule, *, ascii_only: bool) -> None:
        self._rule = rule
        self._ascii_only = ascii_only

    @cached_property
    def expression(self) -> Any:
        """The compiled expression. Threads that need it at the same time may each compile it: the results are equal."""
        return _compiled(self._rule.pattern, RULE_MEMORY, ascii_only=self._ascii_only)

    @cached_property
    def value(self) -> int:
        """The number of the group with the value; 0: the whole match."""
        return int(self.expression.groupindex.get(VALUE.encode(), 0))

    @cached_property
    def whole(self) -> Any:
        """The expression without groups, if a value is all of a match but an underscore before it; else None.

        Without groups only the automaton runs: to find groups in a long match takes twenty times as long.
        """
        pattern = self._rule.pattern
        if self._rule.any_group or (_VALUE_GROUP.search(pattern) is not None and not is_all_value(pattern)):
            return None
        return _compiled(without_groups(pattern), RULE_MEMORY, capture=False, ascii_only=self._ascii_only)

    def values(self, data: bytes) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Yield where the values of all matches are, each with the match, in bytes.

        The range of a value is empty if the match has none.
        """
        if self.whole is None:
            for match in self.expression.finditer(data):
                yield self._span(match), match.span()
            return
        for match in self.whole.finditer(data):
            start, end = found = match.span()
            if start < end and data[start] == _UNDERSCORE:
                yield self.expression.match(data, start).span(self.value), found
            else:
                yield found, found

    def _span(self, match: Any) -> tuple[int, int]:
        if self._rule.any_group:
            spans = map(match.span, range(1, self.expression.groups + 1))
            start, end = next((span for span in spans if span[0] < span[1]), match.span())
        else:
            start, end = match.span(self.value)
        return start, end

    def excludes(self, value: str, match: str, line: str) -> bool:
        """Whether the rule's own conditions make a match no find."""
        if self._rule.entropy and entropy(value[:EXAMINED]) <= self._rule.entropy:
            return True
        parts = {"secret": value, "match": match, "line": line}
        encoded = {part: _encoded(text[:LONGEST]) for part, text in parts.items()} if self._rule.exclusions else {}
        return any(
            all(_exclusion(pattern).search(encoded[part]) is not None for part, pattern in pairs)
            for pairs in self._rule.exclusions
        )


@lru_cache(EXCLUSIONS)
def _exclusion(pattern: str) -> Any:
    return _compiled(without_groups(pattern), RULE_MEMORY, capture=False)


def together(patterns: Sequence[str]) -> str:
    """Join patterns into one. Values with a form may also follow a code that `reading` replaces, in raw text.

    Forms are sorted, as RE2 shares the beginnings of alternatives that follow each other: where a word begins, the
    automaton then follows some letters in place of each form.
    """
    forms = sorted((each.removeprefix(BEGIN) for each in patterns if each.startswith(BEGIN)), key=_without_opening)
    others = [f"(?:{each})" for each in patterns if not each.startswith(BEGIN)]
    if forms:
        others += _DIVIDED, HIDDEN
        others.append(_BEGIN_IN_CODES + "(?:" + "|".join(f"(?:{each})" for each in forms) + ")")
    return "|".join(others)


def _without_opening(pattern: str) -> str:
    return pattern.removeprefix("(?P<value>").removeprefix("(?:")


def beginning(pattern: str) -> str:
    """Return the beginning of a value's pattern: up to its first long run of characters, of which `_LONG` are left.

    What the pattern matches begins with what this matches, so it may take the pattern's place in the gate: runs of 64
    characters have four times the states. Alternatives are cut one by one. A pattern is returned unchanged if it has no
    such run outside of groups, or little before it.
    """
    if not pattern.startswith(BEGIN):
        return pattern
    cut = [""]
    depth = literals = 0
    done = shorter = False
    for token in _TOKEN.finditer(pattern, len(BEGIN)):
        part, least = token[0], int(token[2] or 0)
        if part == "(?P<value>" and cut == [""]:
            continue
        if not depth and part == ")":
            break
        if not depth and part == "|":
            cut.append("")
            literals, done = 0, False
            continue
        depth += part.startswith("(") - (part == ")")
        if done:
            continue
        if not depth and least > _LONG:
            if literals < _LEAST_LITERALS:
                return pattern
            part, done, shorter = f"{token[1]}{{{_LONG}}}", True, True
        cut[-1] += part
        literals += not depth and token[1] is None and part not in {"(", ")", "?", "{", "}"}
    return f"{BEGIN}(?:{'|'.join(cut)})" if shorter else pattern


def without_others(pattern: str) -> str | None:
    r"""Return a pattern in ASCII that matches the same texts in ASCII; None: there may be none.

    Where all bytes are characters (Latin-1), the automaton has no steps for the bytes of others: it takes half the
    memory, and two thirds of the time to build. A character outside ASCII becomes one that is in no such text, `\xff`.
    """
    return None if _NOT_FOR_ASCII.search(pattern) is not None else _BEYOND_ASCII.sub(r"\\xff", pattern)


def is_all_value(pattern: str) -> bool:
    """Whether a pattern is the beginning of a form, and a value and no more."""
    if not pattern.startswith(f"{BEGIN}(?P<value>"):
        return False
    depth, end = 0, len(pattern)
    for token in _TOKEN.finditer(pattern, len(BEGIN)):
        depth += token[0].startswith("(") - (token[0] == ")")
        if not depth:
            return token.end() == end
    return False


def has_alternatives(pattern: str) -> bool:
    """Whether a pattern has alternatives outside of all groups."""
    depth = 0
    for token in _TOKEN.finditer(pattern):
        depth += token[0].startswith("(") - (token[0] == ")")
        if not depth and token[0] == "|":
            return True
    return False


def without_groups(pattern: str) -> str:
    r"""Return a pattern that matches the same and captures nothing.

    RE2's option for this still counts the groups of a pattern with names, and its Python module makes a result for each
    group at each match and each search: 7 to 20 µs for the 140 groups of all rules. A pattern with `\Q` is returned
    unchanged.
    """
    return pattern if r"\Q" in pattern else GROUP.sub(lambda found: found[1] or "(?:", pattern)


class Scanner:
    """Rules, compiled for the first text, or by `prepare`."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)
        self._alone = [[_OwnPattern(rule, ascii_only=ascii_only) for rule in rules] for ascii_only in (False, True)]
        """The rules' own expressions, for all texts and for those in ASCII."""
        near = [(index, rule.near or beginning(rule.pattern)) for index, rule in enumerate(rules) if not rule.keywords]
        in_ascii = [
            (index, pattern if rules[index].in_ascii == "" else rules[index].in_ascii or "")
            for index, pattern in near
            if rules[index].in_ascii is not None
        ]
        patterns = [rule.pattern for rule in rules]
        keywords = [(index, rule.keywords) for index, rule in enumerate(rules) if rule.keywords]
        self._gates = (
            _Gate(near, patterns, keywords, ascii_only=False),
            _Gate(in_ascii, patterns, keywords, ascii_only=True),
        )

    def prepare(self) -> None:
        """Compile what every text needs, so that the first text need not wait for it.

        Raises ValueError if the rules' patterns together are not an RE2 expression, or are too large; a user's pattern
        is compiled alone when settings are checked (`rules.faults`).
        """
        for gate in self._gates:
            _ = gate.any

    def scan(self, texts: Sequence[str], watch: Watch | None = None) -> Sequence[Sequence[Find]]:
        """Return the finds of each text, by their place."""
        found: list[Sequence[Find]] = [()] * len(texts)
        if not self._rules:
            return found
        if len(texts) == 1:
            gate = self._gates[texts[0].isascii()]
            matches = gate.matches(texts[0])
            return [self._finds(texts[0], matches, gate, watch)] if matches else found
        # Separately, as one non-ASCII letter would widen all characters of a batch.
        is_ascii = list(map(str.isascii, texts))
        for kind in {*is_ascii}:
            gate = self._gates[kind]
            indices: Sequence[int] = range(len(texts))
            if is_ascii.count(kind) < len(texts):
                indices = [index for index, one in enumerate(is_ascii) if one is kind]
            for batch in _batches(indices, texts):
                for place, matches in gate.touched([texts[index] for index in batch]):
                    found[batch[place]] = self._finds(texts[batch[place]], matches, gate, watch)
        return found

    def _finds(self, text: str, matches: Sequence[_Match], gate: _Gate, watch: Watch | None) -> Sequence[Find]:
        if watch is not None:
            watch.begin()
        seen = page(text, matches)
        finds: list[Find] = []
        for index in gate.rules(seen.data, matches):
            if watch is not None and watch.over():
                watch.passed[self._rules[index].name] += 1
                continue
            finds += self._of_rule(index, seen, watch)
        return resolved(_outside_masks(finds, text) if "⟦" in text else finds) if finds else ()

    def _of_rule(self, index: int, page: ScannedText, watch: Watch | None) -> Iterator[Find]:
        rule = self._rules[index]
        alone = self._alone[page.is_ascii][index]
        places = None if page.is_ascii else _Places(page.data, len(page.text))
        for value_range, match_range in alone.values(page.data):
            start, end = value_range if places is None else map(places.character, value_range)
            if start >= end:  # an empty value, or a group that did not match
                continue
            if watch is not None and watch.over(BEGUN):
                watch.passed[rule.name] += 1
                return
            reading = page.reading(start)
            span = page.span(start, end, reading)
            if span is None:
                continue
            value, before, after = page.around(start, end, reading)
            if rule.check == DECODED:
                is_find = _SOURCE_MAP not in before and self._encodes(value)
            else:
                is_find = not rule.check or CHECKS[rule.check](value, before, after)
            if is_find and (rule.entropy or rule.exclusions):
                whole = page.data[slice(*match_range)].decode(errors="replace")
                line = before.rpartition("\n")[2] + value + after.partition("\n")[0]
                is_find = not alone.excludes(value, whole, line)
            if is_find:
                yield Find(*span, rule)

    def _encodes(self, value: str) -> bool:
        """Whether a text in base64 holds a secret. Base64 inside that text is not decoded further."""
        text = decoded(value)
        return text is not None and any(
            find.rule.group is RuleGroup.SECRETS and find.rule.check != DECODED for find in self.scan([text])[0]
        )


class _Reading(NamedTuple):
    """A stretch of a text as it is read, and its place on the page."""

    at: int
    """Where it begins on the page."""
    end: int
    start: int
    """Where it begins in the text."""
    read: Joined | Cells | None = None
    """Maps it back to the text, if the stretch is not read character by character."""
    seen: int = 0
    """If the stretch is unchanged: the distance to its other reading, behind it."""

    def span(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the range in the text of a range on the page; None if it is found in another reading."""
        start, end = start - self.at, end - self.at
        span = (start, end) if self.read is None else self.read.span(start, end)
        return None if span is None else (self.start + span[0], self.start + span[1])


class ScannedText(NamedTuple):
    """All stretches of a text that rules scan, one after the other, as they are read."""

    text: str
    data: bytes
    """Its UTF-8."""
    readings: Sequence[_Reading]
    begins: Sequence[int]
    """Where each reading begins."""
    is_ascii: bool

    def reading(self, at: int) -> _Reading:
        """Return the reading that a character of the page is in."""
        return self.readings[bisect_right(self.begins, at) - 1]

    def span(self, start: int, end: int, reading: _Reading | None = None) -> tuple[int, int] | None:
        """Return the range in the text of a range on the page; None if no reading, or another one, has it.

        `reading`: the one that the range begins in, if that is known.
        """
        reading = reading or self.reading(start)
        if end > reading.end:
            return None
        if reading.seen and not self._holds_code(start, end, reading.seen):
            return None
        return reading.span(start, end)

    def _holds_code(self, start: int, end: int, seen: int) -> bool:
        """Whether a value holds a code and does not begin with one: other values are found in their other reading."""
        text = self.text
        return text[start] == text[start + seen] and text[start:end] != text[start + seen : end + seen]

    def around(self, start: int, end: int, reading: _Reading | None = None) -> tuple[str, str, str]:
        """Return a value with the text before and after it; `reading` as in `span`."""
        reading = reading or self.reading(start)
        before = self.text[max(reading.at, start - CONTEXT) : start].replace(UNSEEN, "")
        return self.text[start:end], before, self.text[end : min(reading.end, end + CONTEXT)]


def page(text: str, matches: Sequence[_Match]) -> ScannedText:
    """Return what rules scan in a text, from where the gate matches in it."""
    readings: list[_Reading] = []
    pieces: list[str] = []
    at = 0
    for start, end in stretches(text, matches):
        for piece, way, as_it_is in _readings(text[start:end]):
            seen = len(piece) + len(_SEPARATOR) if as_it_is else 0
            readings.append(_Reading(at, at + len(piece), start, way, seen))
            pieces.append(piece)
            at += len(piece) + len(_SEPARATOR)
    joint = _SEPARATOR.join(pieces)
    return ScannedText(joint, _encoded(joint), readings, [reading.at for reading in readings], joint.isascii())


def stretches(text: str, matches: Sequence[_Match]) -> Iterator[tuple[int, int]]:
    """Yield where rules scan: the surroundings of each match of the gate, in separate pieces."""
    begun = done = farthest = clear = 0
    value_end = -1
    size = len(text)
    for start, match_end, _ in matches:
        end = min(size, match_end)
        first = start - BEFORE if start > BEFORE else 0
        first = text.rfind("\n", first, start) + 1 or first
        if text.startswith(_KEY_END, start):
            first = max(0, start - LONGEST)
        if end > farthest:  # an earlier end cannot have its value's end behind this one's
            farthest = end
            if value_end < end:
                # Before `clear` nothing ends the value, so that no character is searched twice.
                value_end, clear = _value_end(text, max(clear, end), end + LONGEST)
        last = (value_end if value_end >= 0 else farthest + LONGEST) + AFTER
        last = min(last, size)
        if first > done and done:
            yield begun, done
        if first > done or not done:
            begun = first
        done = max(done, last)
    if done:
        yield begun, done


def _value_end(text: str, at: int, limit: int) -> tuple[int, int]:
    """Return where a value ends, and 0; or -1 if that is not before a limit, and where to search further.

    Strings that continue the value are part of it. Each character is read a fixed number of times, however many
    strings there are.
    """
    # The end of the string may be part of the match.
    joint = CONTINUED.match(text, at - 2) if at > 1 and text[at - 1 : at] in JOINTS else None
    while True:
        if joint is not None:
            at = joint.end()
        ends = VALUE_END.search(text, at, limit)
        if ends is None:
            return -1, max(at, limit)
        end = ends.start()
        joint = CONTINUED.match(text, end - 1) if end and text[end] in JOINTS else None
        if joint is None:
            return end, 0


def _readings(piece: str) -> Iterator[tuple[str, Joined | Cells | None, bool]]:
    """Yield the readings of a stretch: with codes replaced, without joints, as a table, and unchanged.

    The unchanged reading comes first, and only if the stretch has codes of URLs or HTML: they may be part of a value.
    """
    data = _encoded(piece)
    seen = read(data)
    changed = seen is not data and seen != data
    if changed and (b"%" in data or b"&" in data):
        yield piece, None, True
    as_read = seen.decode() if changed else piece
    yield as_read, None, False
    for way in (written(piece), joined(as_read), cells(as_read) if "--" in as_read else None):
        if way is not None:
            yield way.text, way, False


class _Places:
    """Converts byte offsets in UTF-8, which only increase from call to call, to character offsets, and back."""

    def __init__(self, data: bytes, length: int) -> None:
        self._data = None if len(data) == length else data
        self._byte = self._character = 0

    def character(self, byte: int) -> int:
        """Return the character that begins at a byte, or includes it."""
        if self._data is None:
            return byte
        if byte >= self._byte:
            self._character += _begun(self._data[self._byte : byte])
        else:
            self._character -= _begun(self._data[byte : self._byte])
        self._byte = byte
        return self._character - (byte < len(self._data) and self._data[byte] & 0xC0 == 0x80)

    def byte(self, character: int) -> int:
        """Return the byte at which a character begins."""
        if self._data is None:
            return character
        while self._character < character:
            # As many bytes as characters remain: no more than needed, and each step covers at least a quarter of the
            # rest.
            step = self._data[self._byte : self._byte + character - self._character]
            self._character += _begun(step)
            self._byte += len(step)
        return self._byte


def _begun(data: bytes) -> int:
    """Return the number of characters that begin in a piece of UTF-8."""
    return len(data.translate(None, _CONTINUATION))


def _encoded(text: str) -> bytes:
    """Return a text's UTF-8. A lone surrogate becomes one question mark, so that characters keep their offsets."""
    return utf8(text, "replace")


def _batches(indices: Sequence[int], texts: Sequence[str]) -> Iterator[Sequence[int]]:
    """Yield the indices in order, in batches of about `BATCH_CHARACTERS`."""
    ends = list(accumulate(map(len, map(texts.__getitem__, indices))))
    first = begun = 0
    while first < len(indices):
        last = max(first + 1, bisect_right(ends, begun + BATCH_CHARACTERS))
        yield indices[first:last]
        first, begun = last, ends[last - 1]


def _outside_masks(finds: Sequence[Find], text: str) -> list[Find]:
    """Return the finds without those inside a mask: a user's rule may match a mask's id."""
    masks = [match.span() for match in _MASK.finditer(text)]
    starts = [start for start, _ in masks]

    def inside(find: Find) -> bool:
        at = bisect_right(starts, find.start) - 1
        return at >= 0 and find.end <= masks[at][1]

    return [find for find in finds if find.rule.group is RuleGroup.LOOKALIKES or not inside(find)]


SIGNS: Final = 2
"""Characters after a value with a form that a rule for names takes for a part of it: the last signs of a sentence."""
_FIRST: Final = ({RuleAction.REFUSE}, {RuleAction.MASK}, {*RuleAction} - {RuleAction.REFUSE, RuleAction.MASK})
"""Actions in the order of precedence of their finds."""


def resolved(finds: Iterable[Find]) -> Sequence[Find]:
    """Return finds by place, without secrets and personal data that overlap another: leftmost, longest.

    Finds of rules that refuse take precedence, then those of rules that mask.
    """
    kept = [find for find in finds if find.rule.group is RuleGroup.LOOKALIKES]
    values = [find for find in finds if find.rule.group is not RuleGroup.LOOKALIKES]
    values.sort(key=lambda find: (find.start, -find.end))
    taken: Sequence[Find] = ()
    for group in _FIRST:
        of_group = _apart(_with_forms([find for find in values if find.rule.action in group]), taken)
        taken = sorted((*taken, *of_group), key=lambda find: find.start)
    kept += taken
    return sorted(kept, key=lambda find: (find.start, -find.end, find.rule.name))


def _with_forms(values: Sequence[Find]) -> Sequence[Find]:
    """Return the finds without values by their names that are a value with a form and the signs of a sentence."""
    formed = {(find.start, find.end) for find in values if find.rule.kind not in BY_NAME}
    return [
        find
        for find in values
        if find.rule.kind not in BY_NAME
        or not any((find.start, find.end - signs) in formed for signs in range(1, SIGNS + 1))
    ]


def _apart(values: Sequence[Find], taken: Sequence[Find]) -> Sequence[Find]:
    """Return the values that overlap neither an earlier one nor one of `taken`; both are sorted."""
    kept: list[Find] = []
    end = other = 0
    for find in values:
        while other < len(taken) and taken[other].end <= find.start:
            other += 1
        if find.start >= end and (other == len(taken) or taken[other].start >= find.end):
            kept.append(find)
            end = find.end
    return kept


def size(pattern: str) -> int:
    """Return the number of instructions of a compiled pattern. Raises ValueError if it cannot be compiled."""
    return int(_compiled(pattern, RULE_MEMORY).programsize)


def matches_nothing(pattern: str) -> bool:
    """Whether a pattern matches the empty text, which occurs everywhere."""
    return _compiled(pattern, RULE_MEMORY).search(b"") is not None


def _compiled(pattern: str, memory: int, *, capture: bool = True, ascii_only: bool = False) -> Any:
    in_ascii = without_others(pattern) if ascii_only else None
    options = _options(memory, capture=capture, latin=in_ascii is not None)
    try:
        return re2.compile(f"(?m){pattern if in_ascii is None else in_ascii}".encode(), options)
    except re2.error as error:
        cause = error.args[0] if error.args else b""
        raise ValueError(cause.decode("utf-8", "replace") if isinstance(cause, bytes) else str(cause)) from None
    finally:
        re2.purge()  # the module's cache would keep expressions that are no longer used


def _options(memory: int, *, capture: bool, latin: bool = False) -> Any:
    options = re2.Options()
    if latin:
        options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = memory
    options.log_errors = False
    options.never_capture = not capture
    return options
