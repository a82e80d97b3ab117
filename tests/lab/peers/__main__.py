"""`python -m tests.lab.peers`: what trimming the recorded runs costs, by strategy."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from tests.lab.harness.environments import cache_folder
from tests.lab.harness.tables import console, options, sorry, write_facts
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
        return sorry("bench-peers", "no recorded runs found; PROMPT_SIDECAR_DATA names the folder that holds them")
    materials = [Material(recorded(path)) for path in found]
    if asked.quick:
        materials = [material for material in materials if len(material.lengths) <= QUICK_PROMPTS]
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
    _show(console(WIDTH), cells, lines)
    if asked.json:
        grids = [{"run": line.run, "mean": line.mean, "ratios": _named(line)} for line in lines]
        write_facts(asked.json, {"cells": [cell.facts() for cell in cells], "grid": grids})
    return 0


def _named(line: Line) -> dict[str, float]:
    return {f"{share:.2f}": ratio for share, ratio in line.ratios.items()}


def _show(to: Console, cells: Sequence[Cell], lines: Sequence[Line]) -> None:
    for cell in cells:
        to.print(cell_table(cell))
        for text in failures(cell):
            to.print(f"  {text}", style="dim")
    if cells:
        remarks = dict.fromkeys(remark for cell in cells for row in cell.rows for remark in row.remarks)
        to.print(LEGEND, style="dim")
        to.print(f"Peers: {', '.join(remarks) or 'none'}.\n", style="dim")
    if lines:
        to.print(grid_table(lines))
    for demand in demands(cells, lines):
        to.print(f"{'DOES NOT HOLD' if demand.broken else 'holds'}: {demand.text}")
        for text in demand.broken:
            to.print(f"  {text}")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = options("python -m tests.lab.peers", __doc__, facts=True)
    add = parser.add_argument
    add("--only", nargs="+", choices=PARTS, default=PARTS, help="some of: table, grid")
    add("--peers", nargs="*", choices=KEYS, default=KEYS, metavar="PEER", help=f"some of: {', '.join(KEYS)}; or none")
    add("--runs", nargs="+", metavar="RUN", help="names of recorded runs (default: all)")
    add("--quick", action="store_true", help=f"only runs of up to {QUICK_PROMPTS} prompts")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
