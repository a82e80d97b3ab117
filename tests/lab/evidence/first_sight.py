"""What is saved at first sight, with no limit near: results as the sidecar returns them, beside what they hide.

A run is sent through the core in chat completions' form, and each result is taken as the last prompt has it: a result
that was condensed when it was first seen stays as it is. What that hides of what the run's actions used, and which
edits it harms, is told by string (`tests.lab.condensing.measuring`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, median

import orjson
from rich.table import Table

from tests.lab.condensing.measuring import Figures, Material
from tests.lab.evidence.core import Trimmer
from tests.lab.evidence.recordings import CHAT, MODELS, Recording, texts_of
from tests.lab.harness.tables import TITLED, table

LEVELS = ("exact", "safe", "full")
FETCH_TOOLS = ("WebFetch", "web_fetch")
PLENTY = 1_000_000
"""Tokens of a limit that no run comes near."""
PRESET = "cache_first"


def first_sight(runs: Sequence[Recording]) -> Mapping[str, Sequence[Figures]]:
    """What each level saves and hides of each run."""
    materials = [Material(run) for run in runs]
    return {level: [material.judge(condensed(material, level)) for material in materials] for level in LEVELS}


def condensed(material: Material, level: str) -> dict[int, str]:
    """The results that a level changes, as they are returned, by the places of their messages."""
    run = material.run
    policy: dict[str, object] = {"condense": level, "condense_fetch_tools": FETCH_TOOLS, "cap_text_bytes": 8_388_608}
    policy |= {"fit_stage": "off", "age_stage": "off", "own_text_max_tokens": 0, "note_max_tokens": 0}
    engine = Trimmer(CHAT, MODELS[CHAT], PLENTY, PRESET, policy)
    _, returned = run.split(engine.trim(run.body(run.slices)))
    texts = ("\n".join(text for _, text in texts_of(CHAT, orjson.loads(raw))) for raw in returned)
    shown = dict(enumerate(texts, len(run.messages) - len(returned)))
    return {result.place: shown[result.place] for result in material.results if shown[result.place] != result.text}


def first_sight_table(found: Mapping[str, Sequence[Figures]]) -> Table:
    """The levels side by side."""
    headings = ("condense", "results changed", "saved: mean", "median", "greatest", "bill", "hidden", "edits harmed")
    rows = []
    for level, runs in found.items():
        shares = [one.share for one in runs]
        rows.append(
            (
                level,
                f"{sum(one.changed for one in runs)} of {sum(one.results for one in runs)}",
                *(f"{value:.1%}" for value in (mean(shares), median(shares), max(shares))),
                f"{mean(one.bill for one in runs):.3f}",
                f"{mean(one.hidden for one in runs):.2%}",
                f"{sum(one.harmed for one in runs)} of {sum(one.edits for one in runs)}",
            )
        )
    return table("Saved at first sight, of the tokens of results", headings, rows, **TITLED)
