r"""What a terminal would show: text without colours, and only the last state of an overwritten line.

    \x1b[31mFAIL\x1b[0m x               FAIL x
    10%\rerror: disk full\r100%         error: disk full
                                        100%

Overwritten text is gone from the screen; where it speaks of trouble, a reader needs it nevertheless.
"""

from __future__ import annotations

import re
from typing import Final

from prompt_sidecar.trim.condense.output import Output
from prompt_sidecar.trim.condense.trouble import in_trouble

_CODE: Final = re.compile(
    r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]"  # colours and movements of the cursor: ECMA-48, 5.4
    r"|\](?!8;)[^\x07\x1b\r\n]*+(?:\x07|\x1b\\)"  # titles; not links (8), whose address nothing else shows
    r"|[()][0-9A-Z]|[=>78cDEHMNOZ])"
)


def without_codes(output: Output) -> str | None:
    """Remove colour and cursor codes. Returns None if there are none, or if what is left would form further codes."""
    if "\x1b" not in output.text:
        return None
    plain = _CODE.sub("", output.text)
    return None if "\x1b" in plain and _CODE.search(plain) else plain


def without_overwritten(output: Output) -> str | None:
    """Remove what a carriage return overwrote; overwritten text that speaks of trouble stays, on lines before."""
    if "\r" not in output.text:
        return None
    pieces = {
        place: bare.split("\r")
        for place, line in enumerate(output.lines)
        if "\r" in line and "\r" in (bare := line.rstrip("\r"))
    }
    overwritten = [(place, piece.rstrip()) for place, line in pieces.items() for piece in line[:-1]]
    stays: dict[int, list[str]] = {}
    for number in in_trouble([piece for _, piece in overwritten]):
        place, piece = overwritten[number]
        stays.setdefault(place, []).append(piece)
    shown, done = list[str](), 0
    for place, line in pieces.items():
        shown += [*output.lines[done:place], *stays.get(place, ()), line[-1].rstrip()]
        done = place + 1
    return "\n".join([*shown, *output.lines[done:]]) if pieces else None
