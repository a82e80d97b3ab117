"""`python -m tests.lab.peers`: what trimming the recorded runs costs, by strategy."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson
from rich.console import Console

from tests.lab.harness.environments import cache_folder
from tests.lab.peers.cells import Cell, Line, add_peers, cell_of, grid, progress
from tests.lab.peers.material import Material
from tests.lab.peers.peers import KEYS, rows
from tests.lab.peers.table import LEGEND, cell_table, demands, failures, grid_table
from tests.oracle.runs import recorded, recorded_paths

PARTS = ("table", "grid")
SHARES = (0.30, 0.60)
"""Budgets of the table, as shares of a run's final size."""
GRID = (0.20, 0.25, 0.30, 0.40, 0.50, 0.60)
QUICK_PROMPTS = 100
"""With --quick, runs of more prompts are left out."""
WIDTH = 160


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, the grid and how they compare with what is demanded; the exit code judges no figure."""
    asked = _arguments(arguments)
    found = [path for path in recorded_paths() if not asked.runs or path.name.split(".")[0] in asked.runs]
    if not found:
        print("no recorded runs found; PROMPT_SIDECAR_DATA names the folder that holds them", file=sys.stderr)
        return 1
    materials = [Material(recorded(path)) for path in found]
    if asked.quick:
        materials = [material for material in materials if len(material.lengths) <= QUICK_PROMPTS]
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    cells: list[Cell] = []
    lines: list[Line] = []
    if "table" in asked.only:
        for material in materials:
            cells += [cell_of(material, share) for share in SHARES]
            progress(f"{material.run.name}: the strategies of this process are measured")
    # Before the peers, whose processes would disturb the times.
    if "grid" in asked.only:
        lines += grid(materials, GRID, cells)
    add_peers(cells, list(rows(asked.peers)), cache_folder())
    _show(console, cells, lines)
    if asked.json:
        facts = {
            "cells": [cell.facts() for cell in cells],
            "grid": [{"run": line.run, "mean": line.mean, "ratios": _named(line)} for line in lines],
        }
        asked.json.write_bytes(orjson.dumps(facts, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return 0


def _named(line: Line) -> dict[str, float]:
    return {f"{share:.2f}": ratio for share, ratio in line.ratios.items()}


def _show(console: Console, cells: Sequence[Cell], lines: Sequence[Line]) -> None:
    for cell in cells:
        console.print(cell_table(cell))
        for text in failures(cell):
            console.print(f"  {text}", style="dim", highlight=False)
    if cells:
        told = dict.fromkeys(remark for cell in cells for row in cell.rows for remark in row.remarks)
        console.print(LEGEND, style="dim", highlight=False)
        console.print(f"Peers: {', '.join(told) or 'none'}.\n", style="dim", highlight=False)
    if lines:
        console.print(grid_table(lines))
    for demand in demands(cells, lines):
        console.print(f"{'DOES NOT HOLD' if demand.broken else 'holds'}: {demand.text}", highlight=False)
        for text in demand.broken:
            console.print(f"  {text}", highlight=False)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.peers", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="some of: table, grid")
    parser.add_argument(
        "--peers", nargs="*", choices=KEYS, default=KEYS, metavar="PEER", help=f"some of: {', '.join(KEYS)}; or none"
    )
    parser.add_argument("--runs", nargs="+", metavar="RUN", help="names of recorded runs (default: all)")
    parser.add_argument("--quick", action="store_true", help=f"only runs of up to {QUICK_PROMPTS} prompts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the facts there too")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
