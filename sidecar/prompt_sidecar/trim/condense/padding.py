"""Line numbers without the spaces before them."""

from __future__ import annotations

import re
from typing import Final

from prompt_sidecar.trim.condense.kinds import is_numbered
from prompt_sidecar.trim.condense.output import Output

_PADDING: Final = re.compile(r"\n +(?=\d+[→\t])")
"""Includes the end of the line before: Python's engine quickly finds what begins with a certain character."""


def without_padding(output: Output) -> str | None:
    """Return a file's lines with their numbers unpadded, or None if they have no numbers."""
    if not (output.text.startswith(" ") or "\n " in output.text) or not is_numbered(output.text):
        return None
    return _PADDING.sub("\n", f"\n{output.text}")[1:]
