"""Measure what trimming leaves of the text that the next action used: `python -m tests.lab.evidence`.

Recorded runs are replayed turn by turn at limits that are shares of their size. What an action refers to (paths, URLs,
hashes, error codes, names, numbers, quoted strings, whole lines) is looked for in earlier messages; then it is said
whether the trimmed prompt still shows it, names it, or lets a search find it. docs/evidence.md has the definitions.
Last it is said what condensing saves with no limit near, and what that hides, for the sidecar and for rivals.

Some uses:

  every strategy, all runs, with files to keep
    make evidence EVIDENCE="--json evidence.json --picture evidence.svg"
  two settings against the default, without the peers, visible and cost only
    make evidence EVIDENCE="--policy age_keep_text=10,age_keep_arguments=10 --policy fit_low=0.4 --ask 0"
  what ceilings in tokens save and hide
    make evidence EVIDENCE="--ceilings"
  what condensing saves below a ceiling
    make evidence EVIDENCE="--ceilings 100000 --head 0 --condense off exact safe full"
  what condensing saves and hides, for the sidecar and for rivals, and nothing else
    make evidence EVIDENCE="--first-sight"
  choose from a grid; each run is then reported with what was chosen on the others
    make evidence EVIDENCE="--grid fit_low=0.35,0.45,0.55 --grid age_keep_iterations=3,6 --ask 0"
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path

import orjson

from prompt_sidecar.errors import SidecarError
from tests.lab.evidence import ceilings
from tests.lab.evidence.contenders import CONTROL, NEVER, PEER_NAMES, PLAIN, Contender
from tests.lab.evidence.core import checked_policy, presets
from tests.lab.evidence.first_sight import first_sight, first_sight_table, rivals_first_sight
from tests.lab.evidence.measuring import ASKED, Cell, Task, measured
from tests.lab.evidence.recordings import paths, recorded
from tests.lab.evidence.summary import MOST_COST, Board, left_out
from tests.lab.evidence.table import (
    LEGEND,
    band_table,
    board_table,
    cell_table,
    choice_table,
    gain_table,
    group_table,
    picture,
)
from tests.lab.harness.environments import cache_folder, prepared, vocabularies
from tests.lab.harness.parallel import in_processes
from tests.lab.harness.tables import console, options, sorry, write_facts
from tests.lab.peers.peers import AT_FIRST_SIGHT

SHARES = (15.0, 30.0, 60.0)
"""Limits, in per cent of a run's size."""
RIVALS = tuple(dict.fromkeys(peer.key for peer in AT_FIRST_SIGHT))
QUICK_TURNS = 50
"""With --quick, runs of more turns are left out."""
DEFAULT = "cache_first"
WIDTH = 180


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables and write the files; the exit code judges no figure."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    try:
        contenders = _contenders(asked)
    except (SidecarError, ValueError) as error:
        parser.error(str(error))
    runs = [name for name in paths() if not asked.runs or name in asked.runs]
    if asked.ceilings is not None:
        return _ceilings(asked, ceilings.long_enough(runs))
    if asked.quick:
        runs = [name for name in runs if len(recorded(paths()[name]).starts) <= QUICK_TURNS]
    if not runs:
        return sorry("evidence", "no recorded runs found; PROMPT_SIDECAR_DATA names the folder that holds them")
    if asked.first_sight:
        _first_sight(asked, runs)
        return 0
    known = _known(asked.known)
    there = {(cell.run, cell.share, cell.contender) for cell in known}
    tasks = [
        Task(run, contender, share / 100, asked.ask, not asked.without_reasoning)
        for run in runs
        for share in asked.shares
        for contender in contenders
        if (run, share / 100, contender.name) not in there
    ]
    _prepare(list(dict.fromkeys(task.contender.name for task in tasks if task.contender.in_chat)))
    cells = [*known, *_measured(tasks, asked.jobs, asked.json)]
    board = Board(cell for cell in cells if cell.limit >= asked.least_limit)
    _show(board, asked)
    _first_sight(asked, runs)
    return 0


def _first_sight(asked: argparse.Namespace, names: Sequence[str]) -> None:
    """Print what is saved at first sight, by the sidecar and by rivals."""
    runs = [recorded(paths()[name]) for name in names]
    found = first_sight(runs)
    rivals = [peer for peer in AT_FIRST_SIGHT if peer.key in asked.rivals]
    measured_rivals, failures = rivals_first_sight(runs, rivals, cache_folder())
    to = console(WIDTH)
    to.print(first_sight_table({**found, **measured_rivals}))
    for text in failures:
        to.print(f"  not measured: {text}", style="dim")


def _ceilings(asked: argparse.Namespace, runs: Sequence[str]) -> int:
    """Print what ceilings in tokens save and hide."""
    if not runs:
        return sorry("evidence", "no recorded run is long enough; PROMPT_SIDECAR_DATA names the folder of them")
    values = asked.ceilings or ceilings.CEILINGS
    levels = list(dict.fromkeys([ceilings.OFF, *asked.condense])) if asked.condense else [""]
    tasks = [ceilings.Task(run, 0, asked.head) for run in runs if not asked.condense]
    tasks += [ceilings.Task(run, value, asked.head, level) for run in runs for value in values for level in levels]
    rows = []
    for _, row in in_processes(ceilings.measured, tasks, asked.jobs):
        rows.append(row)
        text = f"{len(rows)}/{len(tasks)} {row.run}: {row.ceiling or NEVER} {row.condense}".rstrip()
        print(f"evidence: {text}", file=sys.stderr, flush=True)
    write_facts(asked.json, {"ceilings": [asdict(row) for row in rows]})
    to = console(WIDTH)
    to.print(ceilings.condensing_table(rows) if asked.condense else ceilings.ceiling_table(rows))
    if asked.cells and not asked.condense:
        to.print(ceilings.run_table(rows))
    return 0


def _measured(tasks: Sequence[Task], jobs: int, file: Path | None) -> list[Cell]:
    """Measure the cells in several processes; each that is done is told of, and written to the file so far."""
    found: dict[int, Cell] = {}
    for place, cell in in_processes(measured, tasks, jobs):
        found[place] = cell
        text = f"{len(found)}/{len(tasks)} {cell.run} {cell.share:.0%}: {cell.contender}, {cell.seconds:.1f} s"
        print(f"evidence: {text} {cell.failure}".rstrip(), file=sys.stderr, flush=True)
        if file:
            write_facts(file, {"cells": [cell.facts() for cell in found.values()]})
    return [found[place] for place in range(len(tasks))]


def _known(files: Sequence[Path]) -> list[Cell]:
    """Read the cells of earlier files."""
    return [Cell.of(facts) for file in files for facts in orjson.loads(file.read_bytes())["cells"]]


def _prepare(peers: Sequence[str]) -> None:
    """Make the peers' environments before several processes ask for them."""
    if peers:
        print("evidence: making the peers' environments", file=sys.stderr, flush=True)
        prepared(peers, cache_folder())
        vocabularies(cache_folder())


def _show(board: Board, asked: argparse.Namespace) -> None:
    summaries = [board.summary(name) for name in board.contenders]
    ours = [name for name in board.contenders if name not in (*PLAIN, *PEER_NAMES)]
    choices = left_out(board, ours, asked.most_cost) if len(ours) > 1 and len(board.runs) > 1 else []
    # The files first: who reads the tables through a pager may leave early.
    if asked.json:
        cells = [cell.facts() for cell in board.cells]
        write_facts(asked.json, {"summaries": [one.facts() for one in summaries], "choices": choices, "cells": cells})
    if asked.picture:
        asked.picture.write_text(picture(summaries))
    to = console(WIDTH)
    to.print(board_table(summaries))
    to.print(gain_table([one for one in summaries if one.contender != CONTROL]))
    to.print(band_table(summaries))
    to.print(group_table([group for one in summaries for group in board.groups(one.contender)]))
    if asked.cells:
        to.print(cell_table(board))
    if choices:
        to.print(choice_table(choices))
    for one in summaries:
        for text in one.failures:
            to.print(f"  not measured: {one.contender}, {text}", style="dim")
    to.print(LEGEND, style="dim")


def _contenders(asked: argparse.Namespace) -> list[Contender]:
    """The strategies asked for, the control first.

    Raises:
        ValueError, SidecarError: a policy cannot be read, or does not exist.
    """
    policies = [_policy(text) for text in asked.policy]
    knobs = [_values(text) for text in asked.grid]
    policies += [(asked.preset, dict(values)) for values in product(*knobs) if values]
    names = asked.contenders
    if names is None:
        names = [DEFAULT] if policies else [*presets(), *PLAIN, *PEER_NAMES]
    found = {CONTROL: Contender(CONTROL)}
    for name in names:
        found[name] = Contender(name, name if name in presets() else "")
    for preset, values in policies:
        checked_policy(preset, values)
        name = ", ".join([preset, *(f"{knob}={value}" for knob, value in values.items())])
        found[name] = Contender(name, preset, values)
    return list(found.values())


def _policy(text: str) -> tuple[str, Mapping[str, object]]:
    """Read `[preset:]knob=value,knob=value`."""
    preset, colon, rest = text.partition(":")
    values = dict(pair for part in (rest if colon else text).split(",") for pair in _values(part))
    return (preset if colon else DEFAULT), values


def _values(text: str) -> list[tuple[str, object]]:
    """Read `knob=value,value`."""
    name, equals, values = text.partition("=")
    if not equals:
        raise ValueError(f"{text} is not of the form knob=value")
    return [(name.strip(), _value(value)) for value in values.split(",")]


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _parser() -> argparse.ArgumentParser:
    names = [*presets(), *PLAIN, *PEER_NAMES]
    parser = options("python -m tests.lab.evidence", __doc__)
    add = parser.add_argument
    add("--runs", nargs="+", metavar="RUN", help="names of recorded runs (default: all)")
    limits = "limits, in per cent of a run's size (default: 15 30 60)"
    add("--shares", nargs="+", type=float, default=SHARES, metavar="PERCENT", help=limits)
    some = (
        f"some of: {', '.join(names)} (default: all; with --policy or --grid: {DEFAULT}); the control is always there"
    )
    add("--contenders", nargs="+", choices=names, metavar="NAME", help=some)
    add("--first-sight", action="store_true", help="only what is saved at first sight, and what that hides")
    beside = f"rivals at first sight, some of: {', '.join(RIVALS)} (default: all); or none"
    add("--rivals", nargs="*", choices=RIVALS, default=RIVALS, metavar="NAME", help=beside)
    more = "one more contender: a preset with some knobs set otherwise; may be given several times"
    add("--policy", action="append", default=[], metavar="[PRESET:]KNOB=VALUE,...", help=more)
    each = "a contender for each value; given several times, for each combination"
    add("--grid", action="append", default=[], metavar="KNOB=VALUE,VALUE", help=each)
    add("--preset", default=DEFAULT, choices=presets(), help="the preset of --grid")
    add("--most-cost", type=float, default=MOST_COST, metavar="SHARE", help="of the control's, for what is chosen")
    drawn = f"hidden references searched for at each turn, drawn by chance (default: {ASKED}; at most 100 are there; "
    add("--ask", type=int, default=ASKED, metavar="N", help=drawn + "0: no search, which is faster)")
    add("--without-reasoning", action="store_true", help="remove the model's reasoning from the runs")
    add("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (default: one a core)")
    add("--cells", action="store_true", help="print each run at each limit too")
    add("--json", type=Path, metavar="FILE", help="write all figures there; the cells so far while it works")
    known = "files of --json: what they hold is shown and not measured again, such as peers, which take longest"
    add("--known", nargs="+", type=Path, default=[], metavar="FILE", help=known)
    add("--picture", type=Path, metavar="FILE", help="draw cost against evidence there, as SVG")
    tokens = "only what ceilings of so many tokens save and hide, on long runs (default: {})"
    standard = " ".join(map(str, ceilings.CEILINGS))
    add("--ceilings", nargs="*", type=int, metavar="TOKENS", help=tokens.format(standard))
    levels = "with --ceilings: the bill with these levels of policy.condense, as a share of that without"
    add("--condense", nargs="+", choices=ceilings.ALL_LEVELS, default=[], metavar="LEVEL", help=levels)
    head = f"with --ceilings: tokens of instructions and tools before a run's messages (default: {ceilings.HEAD})"
    add("--head", type=int, default=ceilings.HEAD, metavar="TOKENS", help=head)
    add("--least-limit", type=int, default=0, metavar="TOKENS", help="leave out cells whose limit is below it")
    add("--quick", action="store_true", help=f"only runs of up to {QUICK_TURNS} turns")
    return parser


if __name__ == "__main__":
    sys.exit(main())
