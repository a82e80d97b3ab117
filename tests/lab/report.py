"""`make report`: replay the recorded runs into a page in dist/, and photograph its top for docs/images/report.png.

The picture holds figures and names of tools and files, and no text of the runs, as the page has none.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from prompt_sidecar.cli.commands import main
from tests.lab.harness.components import ROOT
from tests.lab.harness.pictures import CHROMIUM, IMAGES, NO_BROWSER, save
from tests.lab.harness.tables import sorry
from tests.oracle import data

MADE = ROOT / "dist" / "report"
PICTURE = IMAGES / "report.png"
WIDTH, HEIGHT = 1_120, 3_020
"""Pixels: down to the curve of the first run."""
COLOURS = 64
"""Of the picture's palette."""


def make() -> int:
    """Make both; return the exit code."""
    runs = data.present("runs/*.json.gz")
    if not runs:
        return sorry("report", "the recorded runs are not here; PROMPT_SIDECAR_DATA names their folder", 2)
    MADE.mkdir(parents=True, exist_ok=True)
    page = MADE / "report.html"
    code = main(["replay", *map(str, runs), "--html", str(page), "--json", str(MADE / "report.json")])
    if code or CHROMIUM is None:
        return sorry("report", "no picture: the report failed" if code else NO_BROWSER, code or 1)
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={folder}/profile", "--virtual-time-budget=20000", f"--screenshot={shot}"]
        subprocess.run([*command, f"--window-size={WIDTH},{HEIGHT}", page.as_uri()], check=True, capture_output=True)
        save(shot.read_bytes(), PICTURE, COLOURS, dither=True)
    print(f"wrote {PICTURE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(make())
