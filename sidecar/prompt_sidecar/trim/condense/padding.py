"""Line numbers without the spaces before them."""

from __future__ import annotations

import re
from typing import Final

from prompt_sidecar.trim.condense.kinds import is_numbered
from prompt_sidecar.trim.condense.output import Output

_PADDING: Final = re.compile(r"^ +(?=\d+[→\t])", re.MULTILINE)


def without_padding(output: Output) -> str | None:
    """A file's lines with their numbers, unpadded; None: they have none."""
    if not is_numbered(output.text):
        return None
    return _PADDING.sub("", output.text)
