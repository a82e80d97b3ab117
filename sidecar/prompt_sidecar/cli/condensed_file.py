"""`prompt-sidecar condense`: shows a tool result as it would be sent, and which reductions cannot be reversed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TextIO

from prompt_sidecar.trim.condense.calls import SourceCall
from prompt_sidecar.trim.condense.condensing import LEAST_BYTES, LEAST_TOKENS, REDUCTIONS, Level, condensed

_READ_BACK: Final = {reduction.name: reduction.can_be_read_back for reduction in REDUCTIONS}
_UNCHANGED: Final = (
    f"it has less than {LEAST_BYTES:,} bytes, is a file or a diff, or less than {LEAST_TOKENS} tokens could be saved"
)


def show(
    text: str,
    call: SourceCall | None,
    level: str,
    count: Callable[[str], int],
    *,
    fetch_tools: Collection[str],
    out: TextIO,
    progress: TextIO,
) -> None:
    """Write the result as it would be sent, without its id's label, to `out`; a report of savings to `progress`."""
    made = condensed(text, call, Level[level.upper()], count, fetch_tools=fetch_tools)
    out.write(text if made is None else made.text)
    out.flush()
    if made is None:
        progress.write(f"unchanged: {_UNCHANGED}\n")
        return
    whole = count(text)
    progress.write(f"{whole:,} tokens, {made.tokens_saved:,} of them saved ({made.tokens_saved / whole:.0%})\n")
    for saving in made.savings:
        back = "can be read back" if _READ_BACK[saving.reduction] else "cannot be read back: only from the original"
        progress.write(f"  {saving.reduction:<16} {saving.characters:>10,} characters  {back}\n")
