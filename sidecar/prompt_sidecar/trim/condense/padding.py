"""Line numbers without the spaces before them."""

from __future__ import annotations

import re
from typing import Final

from prompt_sidecar.trim.condense.kinds import is_numbered
from prompt_sidecar.trim.condense.output import Output

_PADDING: Final = re.compile(r"\n +(?=\d+[→\t])")
"""With the end of the line before it: Python's engine finds what begins with a certain character fast."""


def without_padding(output: Output) -> str | None:
    """A file's lines with their numbers, unpadded; None: they have none."""
    if not (output.text.startswith(" ") or "\n " in output.text) or not is_numbered(output.text):
        return None
    return _PADDING.sub("\n", f"\n{output.text}")[1:]
