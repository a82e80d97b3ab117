"""Compare the sidecar with the control, reference by reference: `python -m tests.lab.evidence.misses`.

`python -m tests.lab.evidence` prints what each strategy shows. This tells where the two differ: references that
only one of them shows, by run, by age and by who wrote the newest evidence, and whether costs differ by the size of
prompts or by what was written again. It does not search.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from rich.console import Console
from rich.table import Table

from tests.lab.evidence.contenders import CONTROL, Contender, prompts_of
from tests.lab.evidence.measuring import BAND_NAMES, Material, band
from tests.lab.evidence.recordings import Kind, lines_of, paths, recorded, texts_of
from tests.lab.evidence.ruler import Sight
from tests.lab.harness.tables import options, sorry, table
from tests.oracle.baselines import CACHE_READ, CACHE_WRITE

SHARES = (0.3, 0.6)
PARTIES = ("control only", "ours only", "neither")
SHOWN = [f"{measure}: {party}" for measure in ("visible", "source") for party in PARTIES]
KINDS = (Kind.RESULT, Kind.USER, Kind.ARGUMENTS, Kind.TEXT)

Shown = Mapping[tuple[int, int], tuple[bool, bool]]
"""For a turn and the place of a reference: whether it is visible, and whether its source is."""


@dataclass(slots=True)
class Difference:
    """How the two differ on a run at a limit: shares of all references, and of the control's cost."""

    limit: int
    size: float = 0.0
    """Cost of larger prompts, were all of their prefix cached."""
    rewritten: float = 0.0
    """Cost of what more was written to the cache."""
    visible: dict[tuple[str, str], float] = field(default_factory=dict)
    """By party, and by age, by who wrote the newest evidence, or `all`."""
    source: dict[tuple[str, str], float] = field(default_factory=dict)


def difference(material: Material, ours: Contender, share: float) -> Difference:
    """Compare on one run at a share of its size."""
    limit = int(material.ruler.final * share)
    control_shows, control_tokens, control_written = _watched(material, Contender(CONTROL), limit)
    our_shows, tokens, written = _watched(material, ours, limit)
    cost = CACHE_READ * control_tokens + (CACHE_WRITE - CACHE_READ) * control_written
    found = Difference(
        limit,
        size=CACHE_READ * (tokens - control_tokens) / cost,
        rewritten=(CACHE_WRITE - CACHE_READ) * (written - control_written) / cost,
    )
    kinds = _kinds(material)
    all_visible = all_sourced = 0.0
    for (turn, place), (control_line, control_source) in control_shows.items():
        need = material.needs[turn][place]
        our_line, our_source = our_shows[turn, place]
        all_visible += need.weight
        for name in ("all", band(need.age), _writer(need.lines, kinds, material.run.starts[turn])):
            _add(found.visible, control_line, our_line, name, need.weight)
        if need.source:
            all_sourced += need.weight
            for name in ("all", band(need.source_age), _writer(need.source, kinds, material.run.starts[turn])):
                _add(found.source, control_source, our_source, name, need.weight)
    for sums, total in ((found.visible, all_visible), (found.source, all_sourced)):
        for key in sums:
            sums[key] /= total
    return found


def _watched(material: Material, contender: Contender, limit: int) -> tuple[Shown, int, int]:
    """Return what a strategy shows at each turn that counts, the tokens of its prompts, and those not cached."""
    ruler, shown = material.ruler, dict[tuple[int, int], tuple[bool, bool]]()
    sight = Sight(ruler.pieces)
    tokens = written = 0
    for turn, (prompt, _) in enumerate(prompts_of(contender, ruler, limit)):
        kept = sight.move(prompt)
        size = ruler.tokens(prompt)
        tokens += size
        written += size - sum(ruler.pieces[number].tokens for number in prompt[:kept])
        if ruler.least(turn) <= limit < ruler.size(turn):
            for place, need in enumerate(material.needs[turn]):
                shown[turn, place] = sight.shows(need.lines), sight.shows_source(need.source)
    return shown, tokens, written


def _add(sums: dict[tuple[str, str], float], control: bool, ours: bool, name: str, weight: float) -> None:
    if not (control and ours):
        party = PARTIES[0] if control else PARTIES[1] if ours else PARTIES[2]
        sums[party, name] = sums.get((party, name), 0.0) + weight


def _kinds(material: Material) -> list[dict[int, Kind]]:
    """For each message its lines, and who wrote them."""
    run, ids = material.run, material.history.ids
    return [
        {ids[line]: kind for kind, text in texts_of(run.format, message) for line in lines_of(text) if line in ids}
        for message in run.messages
    ]


def _writer(lines: frozenset[int], kinds: Sequence[Mapping[int, Kind]], start: int) -> str:
    """Who wrote the newest of some lines before a message."""
    return next(kinds[place][line] for place in range(start - 1, -1, -1) for line in lines if line in kinds[place])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables: by run, and the mean over runs by age and by writer."""
    parser = options("python -m tests.lab.evidence.misses", __doc__)
    parser.add_argument("--preset", default="cache_first")
    parser.add_argument("--least-limit", type=int, default=0, metavar="TOKENS", help="leave out smaller limits")
    asked = parser.parse_args(arguments)
    found: dict[str, list[Difference]] = {}
    for name, path in paths().items():
        material = Material(recorded(path))
        differences = [difference(material, Contender("ours", asked.preset), share) for share in SHARES]
        wide = [one for one in differences if one.limit >= asked.least_limit]
        if wide:
            found[name] = wide
    if not found:
        return sorry("misses", "no recorded runs found; PROMPT_SIDECAR_DATA names the folder that holds them")
    Console(width=180).print(
        _by_run(found), _by("age of the evidence", BAND_NAMES, found), _by("who wrote it", KINDS, found)
    )
    return 0


def _by_run(found: Mapping[str, Sequence[Difference]]) -> Table:
    title = "per cent of references; parts of the difference in cost, in points of the control's"
    rows = []
    for name, differences in found.items():
        parts = [fmean(one.size for one in differences), fmean(one.rewritten for one in differences)]
        rows.append((name, *_shares("all", [differences]), *(f"{100 * part:+.1f}" for part in parts)))
    return table(title, ("run", *SHOWN, "size", "written again"), rows, title_justify="left")


def _by(title: str, names: Sequence[str], found: Mapping[str, Sequence[Difference]]) -> Table:
    rows = [(name, *_shares(name, list(found.values()))) for name in names]
    return table(f"the mean over runs, by {title}", ("", *SHOWN), rows, title_justify="left")


def _shares(name: str, runs: Sequence[Sequence[Difference]]) -> Iterator[str]:
    for measure in ("visible", "source"):
        for party in PARTIES:
            values = (fmean(getattr(one, measure).get((party, name), 0.0) for one in run) for run in runs)
            yield f"{100 * fmean(values):.1f}"


if __name__ == "__main__":
    sys.exit(main())
