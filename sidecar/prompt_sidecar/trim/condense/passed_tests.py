"""Lines that report a passed test, counted; the first of them stays.

Also kept: tests that failed or were skipped, totals, Go's lines of packages (`ok pkg 0.1s`), headings of a failed
test's output, and tests that the call itself names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from prompt_sidecar.trim.condense.calls import SourceCall
from prompt_sidecar.trim.condense.matching import matching, of_lines
from prompt_sidecar.trim.condense.output import Output

LEFT_OUT: Final = " more lines of passed tests left out]"
LEAST_PASSED: Final = 5
FEW: Final = 5
"""A word of the call that is in at most so many lines names tests, and these stay; for other words one line stays."""
_SIGNS: Final = ("PASS", "(pass)", "✓", "✔", "√", " ... ok", "=== ", "[       OK ]", "\nok 1 ", " [100%]")
_PASSED: Final[Any] = of_lines(
    r"(?:\[[^\]\s]{1,60}\] |[\w@/.-]{1,60}(?: [\w:.-]{1,30})?: )?"  # of a package
    r"(?:=== (?:RUN|PAUSE|CONT|NAME)[ \t]+\S+[ \t\r]*"  # go test -v
    r"| *--- PASS: .*|PASS[ \t\r]*"
    r"| *[✓✔√] .*"  # Jest, Vitest, Mocha, node --test
    r"|\(pass\) .*"  # Bun
    r"|test \S+ \.\.\. ok[ \t\r]*"  # Cargo
    r"|[^\s:]+::\S.* PASSED(?: +\[ *\d+%\])?[ \t\r]*"  # pytest -v
    r"|(?:\[ *\d+%\] )?PASSED \S.*|\S+\.py \.+(?: +\[ *\d+%\])?[ \t\r]*"  # pytest-xdist, -rA; and without -v
    r"|\[ RUN      \] \S+[ \t\r]*|\[       OK \] \S+ .*"  # GoogleTest
    r"| *ok \d+ .*)"  # TAP
)
_SUM: Final[Any] = of_lines(r"(?i).*(?:\b\d+ (?:\w+ )?pass|# (?:skip|todo)|\ball (?:\d+ )?(?:tests|checks)\b).*")
_FAILURES: Final = ("--- FAIL: ", "--- SKIP: ", "[  FAILED  ] ")
"""The beginnings of `_FAILED`, which are found fifty times as fast."""
_FAILED: Final = re.compile(r"--- (?:FAIL|SKIP): (\S+)|\[  FAILED  \] (\w\S*)")
_BEGAN: Final = re.compile(r"(?:=== (?:RUN|CONT|NAME)\s+|\[ RUN      \] )(\S+)")


def without_passed(output: Output) -> str | None:
    """Replace five passed tests and more by the first of them and a count. Returns None if there are fewer."""
    if output.call is None or not output.call.shell or not any(sign in output.text for sign in _SIGNS):
        return None
    lines = output.lines
    passed = matching(_PASSED, output.raw)
    if len(passed) < LEAST_PASSED:
        return None
    sums = matching(_SUM, "\n".join([*(lines[place] for place in passed), ""]).encode(errors="replace"))
    for which in reversed(sums):
        del passed[which]
    stays = _named(lines, passed, output.call) | _began(output.text, lines, passed)
    first = passed[0] if passed else 0
    gone = {place for place in passed[1:] if place not in stays}
    if len(gone) < LEAST_PASSED - 1:
        return None
    shown = [line for place, line in enumerate(lines) if place not in gone]
    shown.insert(first + 1, f"[{len(gone)}{LEFT_OUT}")
    return "\n".join(shown)


def _began(text: str, lines: Sequence[str], passed: Sequence[int]) -> set[int]:
    """Return the indices of lines after which a test that did not pass has written something."""
    if not any(failure in text for failure in _FAILURES):
        return set()
    failed = {found[1] or found[2] for found in _FAILED.finditer(text)}
    among = set(passed)
    return {
        place
        for place in passed
        if failed and place + 1 not in among and (found := _BEGAN.match(lines[place])) and found[1] in failed
    }


def _named(lines: Sequence[str], passed: Sequence[int], call: SourceCall) -> set[int]:
    """Return the indices of the tests that the call names."""
    named: set[int] = set()
    for word in call.words:
        having = [place for place in passed if word in lines[place]]
        named.update(having if len(having) <= FEW else having[:1])
    return named
