"""A tool result made smaller when it is first seen.

Theory. A prompt cache is kept if nothing that was sent changes. So a result is condensed once, before it is sent for
the first time, by a function of nothing but the result and the call that it answers: the same result gives the same
bytes, also in another process or with other escapes. The original can be recalled.

A reduction removes what a reader does not miss, and describes it in a line in square brackets, unless a terminal would
not have shown it anyway. There are three levels, each including those before it:

    exact   what a terminal would show; identical lines in a row, counted; and lines in another form, from which they
            can be read back (a path or a common beginning once, rows of JSON as a table), where it takes half as much
    safe    lines in another form wherever it saves something; tests that passed, counted
    full    padding, the middle of long outputs, markup of pages

`exact` asks that much of another form because agents quote lines and search for them as they are: in recorded runs of
Codex, four fifths of what the next actions used of results of grep stood only in lines that had lost their path
(docs/evidence.md). None of the 44 results in eight runs that another form would make smaller becomes half as long.

In doubt nothing is done. Files that were read, diffs and source stay byte for byte (`kinds`), and so does a text that
already has a line such as reductions write: it may have been reduced before, and a reduced text is never reduced again.
All work is linear in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from prompt_sidecar.trim.condense import grep, html_text, json_rows, long_output, passed_tests, repeats
from prompt_sidecar.trim.condense.calls import SourceCall
from prompt_sidecar.trim.condense.kinds import ResultKind, kind_of
from prompt_sidecar.trim.condense.output import Output
from prompt_sidecar.trim.condense.padding import without_padding
from prompt_sidecar.trim.condense.terminal import without_codes, without_overwritten

VERSION: Final = 2
"""The version of the bytes that `condensed` makes. A change that makes other bytes from any result has to raise it,
together with `RULES` of revisions, and to keep the previous reductions in `VERSIONS`: a run keeps the version that it
began with."""
LEAST_BYTES: Final = 2_048
"""Smaller results are not condensed: they have 17 % of all tokens, and 4 % of what can be saved (27 recorded runs)."""
LEAST_TOKENS: Final = 24
"""Least tokens that condensing must save: twice what the label of a condensed result takes."""
_FORM_SHARE: Final = 0.5
"""Share of a text that another form of its lines may take to be used in `exact`, see above."""
_LABEL: Final = "[condensed"
_LINE_END: Final = "\n"


class Level(IntEnum):
    """How much may be removed."""

    EXACT = 1
    SAFE = 2
    FULL = 3


@dataclass(frozen=True, slots=True)
class Reduction:
    """One way in which a result is made smaller."""

    name: str
    """The name in answers and metrics."""
    level: Level
    reduce: Callable[[Output], str | None]
    """Returns the smaller text, or None if there is nothing to do. A text that is no smaller is not used."""
    can_be_read_back: bool = False
    """Whether the whole text can be derived from the result, except for white space and escapes in JSON."""
    kinds: Collection[ResultKind] = (ResultKind.OTHER, ResultKind.PAGE)
    folds: bool = True
    """Whether lines of the result represent others. A text that already has such lines must then be left alone."""
    marker: str = ""
    """Part of each text that the reduction has made; empty if it writes nothing of its own."""
    exact_share: float = 0.0
    """Share of the text that the smaller one may take to be used in `exact`, too; 0: it is not."""

    def largest_share(self, level: Level) -> float:
        """Return the share of the text that the smaller one may take at this level; 0: it is not used there."""
        return 1.0 if self.level <= level else self.exact_share


REDUCTIONS: Final = (
    Reduction("codes", Level.EXACT, without_codes, folds=False),
    Reduction("overwritten", Level.EXACT, without_overwritten, folds=False),
    Reduction("rows", Level.SAFE, json_rows.as_tables, True, marker=json_rows.OPENING, exact_share=_FORM_SHARE),
    Reduction("grep", Level.SAFE, grep.grouped, True, exact_share=_FORM_SHARE),
    Reduction("identical_lines", Level.EXACT, repeats.counted, True, marker=repeats.COUNTED),
    Reduction("passed_tests", Level.SAFE, passed_tests.without_passed, marker=passed_tests.LEFT_OUT),
    Reduction("prefix", Level.SAFE, repeats.with_prefix_once, True, marker=repeats.BEGIN, exact_share=_FORM_SHARE),
    Reduction("padding", Level.FULL, without_padding, kinds=(ResultKind.SOURCE,), folds=False),
    Reduction("page", Level.FULL, html_text.as_text, kinds=(ResultKind.PAGE,), marker=html_text.OPENING),
    Reduction("long_output", Level.FULL, long_output.ends_and_trouble, marker=long_output.LEFT_OUT),
)
"""In the order in which they are tried: first those for what a terminal would not show, then those that count lines."""
VERSIONS: Final[Mapping[int, Sequence[Reduction]]] = {
    1: tuple(replace(each, level=Level.EXACT) if each.exact_share else each for each in REDUCTIONS),
    VERSION: REDUCTIONS,
}
"""The reductions of each version that a revision may name."""


@dataclass(frozen=True, slots=True)
class Saving:
    """What one reduction removed from a result."""

    reduction: str
    characters: int


@dataclass(frozen=True, slots=True)
class Reduced:
    """A text after all reductions."""

    text: str
    savings: tuple[Saving, ...]
    """In the order of the reductions."""
    can_be_read_back: bool
    """Whether the whole original can be derived from the text, except for white space and escapes in JSON."""


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
    """Make a result smaller. Returns None if it stays unchanged.

    Args:
        text: the result after the guard.
        call: the call that it answers; None: unknown, so only those of `exact` are made.
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
        reductions = [reduction for reduction in reductions if reduction.can_be_read_back]
    made = reduced(Output(text, call), level, fetch_tools, reductions)
    if made is None:
        return None
    saved = count(text) - count(made.text)
    return Condensed(made.text, made.savings, made.can_be_read_back, saved) if saved >= LEAST_TOKENS else None


def reduced(
    output: Output, level: Level, fetch_tools: Collection[str] = (), reductions: Sequence[Reduction] = REDUCTIONS
) -> Reduced | None:
    """Apply all reductions to a text, however small it is and whatever they save. Returns None if none applies."""
    most = level if output.call is not None else Level.EXACT
    kind = kind_of(output, fetch_tools)
    savings: list[Saving] = []
    all_can_be_read_back = True
    folds = False
    for reduction in reductions:
        share = reduction.largest_share(most)
        if not share or kind not in reduction.kinds:
            continue
        text = reduction.reduce(output)
        if text is None or len(text) >= len(output.text) or len(text) > share * len(output.text):
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
    """Whether a text ends as condensed results do: an agent may send back what it was returned."""
    return text.endswith("]") and text.startswith(_LABEL, text.rfind("\n") + 1)


def _is_marked(text: str) -> bool:
    """Whether a text has a line such as reductions write."""
    return any(each.marker in text for each in REDUCTIONS if each.marker)
