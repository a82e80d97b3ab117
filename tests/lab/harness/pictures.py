"""Pictures for docs/images and the cache: photographs of pages, made small."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Final

from PIL import Image

from tests.doors.admin.browser import CHROMIUM
from tests.lab.harness.components import ROOT

__all__ = ["CHROMIUM", "IMAGES", "NO_BROWSER", "save"]
IMAGES: Final = ROOT / "docs" / "images"
"""Those that the documents show."""
NO_BROWSER: Final = "no pictures: no Chromium on the PATH"


def save(
    shot: bytes, path: Path, *colours: int, height: int = 0, dither: bool = False, most_bytes: int = 1 << 30
) -> None:
    """Save a photograph with a palette, which takes a third of the bytes: of several the first that is small enough.

    Args:
        shot: the photograph, as PNG.
        path: where it goes.
        colours: of the palette.
        height: pixels that are kept, from above; 0: all.
        dither: whether the palette is dithered.
        most_bytes: bytes of a file that is small enough.
    """
    with Image.open(io.BytesIO(shot)) as taken:
        whole = taken.convert("RGB").crop((0, 0, taken.width, height or taken.height))
    for number in colours:
        method = Image.Dither.FLOYDSTEINBERG if dither else Image.Dither.NONE
        whole.quantize(number, dither=method).save(path, optimize=True)
        if path.stat().st_size <= most_bytes:
            return
