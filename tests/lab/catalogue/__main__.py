"""`make catalogue`: build `sidecar/prompt_sidecar/providers/catalogue.tsv`, and report where its sources differ."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import prompt_sidecar.providers
from tests.lab.catalogue.merging import Differences, rows
from tests.lab.catalogue.sources import genai, litellm, own, today, versions

FILE = Path(prompt_sidecar.providers.__file__).with_name("catalogue.tsv")
HEAD = """\
# {day}, {versions} (both MIT) and our own rows. Written by make catalogue: change tests/lab/catalogue/own.toml instead.
# name, window, most input, most output (tokens); input, cached, written, output (US dollars for a million tokens);
# tiers (above so many input tokens: the same four); s: system entries may stand in mid-run. Sorted by bytes.
"""


def main() -> int:
    """Build the catalogue."""
    parser = argparse.ArgumentParser(prog="make catalogue", description=__doc__)
    parser.add_argument("--differences", action="store_true", help="print each difference, not the numbers alone")
    asked = parser.parse_args()
    differences, day = Differences(), today()
    made = rows([*own(), *litellm(), *genai(day)], differences)
    head = HEAD.format(day=day.date().isoformat(), versions=versions())
    FILE.write_text(head + "".join(row.line() + "\n" for row in made), encoding="utf-8")
    print(f"{len(made)} models, {FILE.stat().st_size / 1024:.0f} KiB, written to {FILE.name}")
    for kind, found in differences.found.items():
        print(f"{len(found)} models whose sources differ in the {kind}")
        for line in found if asked.differences else ():
            print(f"  {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
