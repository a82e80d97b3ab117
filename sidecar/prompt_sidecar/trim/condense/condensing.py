"""A tool result made smaller when it is first seen.

Theory. A prompt cache is kept if nothing that was sent changes. So a result is condensed once, before it is sent for
the first time, by a function of nothing but the result and the call that it answers: the same result, in another
process or spelled otherwise, gives the same bytes. The exact original stays within reach.

A reduction takes out what a reader does not miss, and says what, in a line in square brackets, unless a terminal would
not have shown it either. There are three levels, each with those before it:

    exact   what a terminal would show, or what can be read back from the text
    safe    tests that passed, counted
    full    padding, the middle of long outputs, markup of pages

In doubt nothing is done. Files that were read, diffs and source stay byte for byte (`kinds`), and so does a text in
which a line that a reduction writes stands already: it may be a reduced one, which is never reduced again, or could
not be told from one. All is linear in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from prompt_sidecar.trim.condense import grep, html_text, json_rows, long_output, passed_tests, repeats
from prompt_sidecar.trim.condense.calls import SourceCall
from prompt_sidecar.trim.condense.kinds import ResultKind, kind_of
from prompt_sidecar.trim.condense.output import Output
from prompt_sidecar.trim.condense.padding import without_padding
from prompt_sidecar.trim.condense.terminal import without_codes, without_overwritten

VERSION: Final = 1
"""Of what `condensed` makes of a result. A change that makes other bytes of any result has to raise it, together with
`RULES` of revisions, and to keep what was before in `VERSIONS`: a run goes on with what it began with."""
LEAST_BYTES: Final = 2_048
"""Smaller results have 17 % of the tokens of all, and 4 % of what can be saved (27 recorded runs)."""
LEAST_TOKENS: Final = 24
"""Twice what the label of a condensed result takes."""
_LABEL: Final = "[condensed"
_LINE_END: Final = "\n"


class Level(IntEnum):
    """How much may be taken out."""

    EXACT = 1
    SAFE = 2
    FULL = 3


@dataclass(frozen=True, slots=True)
class Reduction:
    """One way in which a result is made smaller."""

    name: str
    """In answers and metrics."""
    level: Level
    reduce: Callable[[Output], str | None]
    """The smaller text; None: there is nothing to do. A text that is no smaller is not taken."""
    can_be_read_back: bool = False
    """Whether the result tells the whole text, but for white space and escapes in JSON."""
    kinds: Collection[ResultKind] = (ResultKind.OTHER, ResultKind.PAGE)
    folds: bool = True
    """Whether lines of the result represent others, so that a text with such lines of its own must be left alone."""
    marker: str = ""
    """In each text that the reduction has made; empty: it writes nothing of its own."""


REDUCTIONS: Final = (
    Reduction("codes", Level.EXACT, without_codes, folds=False),
    Reduction("overwritten", Level.EXACT, without_overwritten, folds=False),
    Reduction("rows", Level.EXACT, json_rows.as_tables, True, marker=json_rows.OPENING),
    Reduction("grep", Level.EXACT, grep.grouped, True),
    Reduction("identical_lines", Level.EXACT, repeats.counted, True, marker=repeats.COUNTED),
    Reduction("passed_tests", Level.SAFE, passed_tests.without_passed, marker=passed_tests.LEFT_OUT),
    Reduction("prefix", Level.EXACT, repeats.with_prefix_once, True, marker=repeats.BEGIN),
    Reduction("padding", Level.FULL, without_padding, kinds=(ResultKind.SOURCE,), folds=False),
    Reduction("page", Level.FULL, html_text.as_text, kinds=(ResultKind.PAGE,), marker=html_text.OPENING),
    Reduction("long_output", Level.FULL, long_output.ends_and_trouble, marker=long_output.LEFT_OUT),
)
"""In the order in which they are tried: what a terminal would not show first, what counts lines behind it."""
READ_BACK: Final = tuple(reduction for reduction in REDUCTIONS if reduction.can_be_read_back)
"""Those whose results tell the whole text."""
VERSIONS: Final[Mapping[int, Sequence[Reduction]]] = {VERSION: REDUCTIONS}
"""The reductions of each version that a revision may name."""


@dataclass(frozen=True, slots=True)
class Saving:
    """What one reduction took out of a result."""

    reduction: str
    characters: int


@dataclass(frozen=True, slots=True)
class Reduced:
    """A text after all reductions."""

    text: str
    savings: tuple[Saving, ...]
    """In the order in which they were made."""
    can_be_read_back: bool
    """Whether the text tells all of the original, but for white space and escapes in JSON."""


@dataclass(frozen=True, slots=True)
class Condensed(Reduced):
    """A result that was made smaller; the text is without the label that names the original."""

    tokens_saved: int


def condensed(
    text: str,
    call: SourceCall | None,
    level: Level,
    count: Callable[[str], int],
    *,
    fetch_tools: Collection[str] = (),
    only_what_can_be_read_back: bool = False,
    reductions: Sequence[Reduction] = REDUCTIONS,
) -> Condensed | None:
    """Make a result smaller; None: it stays as it is.

    Args:
        text: the result, as the guard has left it.
        call: the call that it answers; None: it is not known, and only `exact` reductions are made.
        level: which reductions may be made.
        count: tokens of a text.
        fetch_tools: names of the tools whose results are pages.
        only_what_can_be_read_back: leave out the other reductions, where the model cannot fetch the original.
        reductions: those that may be made, in their order.
    """
    if len(text) < LEAST_BYTES and len(text.encode(errors="surrogatepass")) < LEAST_BYTES:
        return None
    if is_labelled(text):
        return None
    if only_what_can_be_read_back:
        reductions = READ_BACK
    made = reduced(Output(text, call), level, fetch_tools, reductions)
    if made is None:
        return None
    saved = count(text) - count(made.text)
    return Condensed(made.text, made.savings, made.can_be_read_back, saved) if saved >= LEAST_TOKENS else None


def reduced(
    output: Output, level: Level, fetch_tools: Collection[str] = (), reductions: Sequence[Reduction] = REDUCTIONS
) -> Reduced | None:
    """Make all reductions of a text, however small it is and whatever they save; None: there are none to make."""
    most = level if output.call is not None else Level.EXACT
    kind = kind_of(output, fetch_tools)
    savings: list[Saving] = []
    all_can_be_read_back = True
    folds = False
    for reduction in reductions:
        if reduction.level > most or kind not in reduction.kinds:
            continue
        text = reduction.reduce(output)
        if text is None or len(text) >= len(output.text):
            continue
        if reduction.folds and not folds and _is_marked(output.text):
            break
        folds = folds or reduction.folds
        savings.append(Saving(reduction.name, len(output.text) - len(text)))
        all_can_be_read_back = all_can_be_read_back and reduction.can_be_read_back
        output = Output(text, output.call)
    return Reduced(output.text, tuple(savings), all_can_be_read_back) if savings else None


def label(stash_id: str) -> str:
    """The last line of a condensed result. `stash_id` is empty if the model has no recall tools."""
    return f"{_LABEL} — id={stash_id}]" if stash_id else f"{_LABEL}]"


def labelled(text: str, stash_id: str) -> str:
    """A condensed result with its label."""
    return f"{text}{'' if text.endswith(_LINE_END) else _LINE_END}{label(stash_id)}"


def is_labelled(text: str) -> bool:
    """Whether a text ends as condensed results do: it may come back from an agent that keeps what it was returned."""
    return text.endswith("]") and text.startswith(_LABEL, text.rfind("\n") + 1)


def _is_marked(text: str) -> bool:
    """Whether a text has a line as reductions write them."""
    return any(each.marker in text for each in REDUCTIONS if each.marker)
