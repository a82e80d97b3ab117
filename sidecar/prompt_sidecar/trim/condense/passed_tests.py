"""Lines that say that a test passed, counted; the first of them stays.

What stays besides: tests that failed or were skipped, sums, Go's lines of packages (`ok  pkg  0.1s`), what says that
lines are of a test that failed, and tests that the call itself names, by a word that few lines have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from prompt_sidecar.trim.condense.kinds import is_shell
from prompt_sidecar.trim.condense.output import Call, Output

LEFT_OUT: Final = " more lines of passed tests left out]"
LEAST_PASSED: Final = 5
LINE_CHARACTERS: Final = 300
"""A longer line is no name of a test."""
FEW: Final = 5
"""A word of the call names a test if no more of the lines have it: others name a file, or all tests."""
_SIGNS: Final = ("PASS", "(pass)", "✓", "✔", "√", " ... ok", "=== RUN", "[       OK ]", "\nok 1 ", " [100%]")
_PASSED: Final = re.compile(
    r"(?:\[[^\]\s]{1,60}\] |[\w@/.-]{1,60}(?: [\w:.-]{1,30})?: )?"  # of which package
    r"(?:=== (?:RUN|PAUSE|CONT|NAME)\s+\S+\s*"  # go test -v
    r"|\s*--- PASS: .*|PASS\s*"
    r"|\s*[✓✔√] .*"  # Jest, Vitest, Mocha, node --test
    r"|\(pass\) .*"  # Bun
    r"|test \S+ \.\.\. ok\s*"  # Cargo
    r"|[^\s:]+::\S.* PASSED(?:\s+\[ *\d+%\])?\s*|PASSED \S+\s*|\S+\.py \.+(?:\s+\[ *\d+%\])?\s*"  # pytest
    r"|\[ RUN      \] \S+\s*|\[       OK \] \S+ .*"  # GoogleTest
    r"|\s*ok \d+ .*)"  # TAP
)
_SUM: Final = re.compile(r"\b\d+ (?:\w+ )?pass|# (?:skip|todo)|\ball (?:\d+ )?(?:tests|checks)\b", re.IGNORECASE)
_FAILED: Final = re.compile(r"--- (?:FAIL|SKIP): (\S+)|\[  FAILED  \] (\w\S*)")
_BEGAN: Final = re.compile(r"(?:=== (?:RUN|CONT|NAME)\s+|\[ RUN      \] )(\S+)")
_WORD: Final = re.compile(r"\w{4,80}")


def without_passed(output: Output) -> str | None:
    """The text with five passed tests and more as the first of them and a count."""
    if not is_shell(output.call) or not any(sign in output.text for sign in _SIGNS):
        return None
    lines = output.lines
    passed = [place for place, line in enumerate(lines) if _is_passed(line)]
    if len(passed) < LEAST_PASSED:
        return None
    stays = _named(lines, passed, output.call) | _began(lines, passed)
    first, *others = passed
    gone = {place for place in others if place not in stays}
    if len(gone) < LEAST_PASSED - 1:
        return None
    shown = [line for place, line in enumerate(lines) if place not in gone]
    shown.insert(first + 1, f"[{len(gone)}{LEFT_OUT}")
    return "\n".join(shown)


def _is_passed(line: str) -> bool:
    if len(line) > LINE_CHARACTERS or _PASSED.fullmatch(line) is None:
        return False
    return _SUM.search(line) is None


def _began(lines: Sequence[str], passed: Sequence[int]) -> set[int]:
    """Places behind which a test that did not pass wrote something."""
    failed = {found[1] or found[2] for line in lines if (found := _FAILED.search(line[:LINE_CHARACTERS]))}
    among = set(passed)
    return {
        place
        for place in passed
        if failed and place + 1 not in among and (found := _BEGAN.match(lines[place])) and found[1] in failed
    }


def _named(lines: Sequence[str], passed: Sequence[int], call: Call | None) -> set[int]:
    """Places of the tests that the call names."""
    asked = {word for _, text in (call.arguments if call else ()) for word in _WORD.findall(text)}
    words = {place: asked.intersection(_WORD.findall(lines[place])) for place in passed} if asked else {}
    times = Counter(word for found in words.values() for word in found)
    return {place for place, found in words.items() if any(times[word] <= FEW for word in found)}
