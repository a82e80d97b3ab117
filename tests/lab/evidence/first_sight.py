"""What is saved at first sight, with no limit near: results as the sidecar returns them, beside what they hide.

A run is sent through the core in chat completions' form, and each result is taken as the last prompt has it: a result
that was condensed when it was first seen stays as it is. What that hides of what the run's actions used, and which
edits it harms, is told by string (`tests.lab.condensing.measuring`).

Rivals are measured by the same ruler: libraries that make single results smaller, each in an environment of its own and
with its defaults, on the same chat. A rival is given each result once, when it is new, with its call and the user's
last message; what it makes of it stays, so that nothing that was sent is rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from statistics import mean, median

import orjson
from rich.table import Table

from tests.lab.condensing.measuring import Figures, Material
from tests.lab.evidence.core import Trimmer
from tests.lab.evidence.recordings import CHAT, MODELS, Recording, texts_of
from tests.lab.harness.environments import Environment, Unavailable, prepared
from tests.lab.harness.tables import TITLED, table
from tests.lab.peers.peers import Peer, run_peer
from tests.oracle.runs import Run

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


@dataclass(slots=True)
class _Single:
    """A run's results as a peer gets them, one a prompt, and what comes back."""

    material: Material
    run: Run = field(init=False)
    lengths: Sequence[int] = field(init=False)
    texts: dict[bytes, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        own = self.material.run
        texts = {result.place: result.text for result in self.material.results}
        messages = [
            {**message, "content": texts[place]} if place in texts else message
            for place, message in enumerate(own.messages)
        ]
        self.run = Run(own.name, own.format, messages)
        self.lengths = [place + 1 for place in texts]

    def piece(self, raw: bytes, *, system: bool = False) -> bytes:
        """Take in a result that the peer returned, and return its digest."""
        digest = sha256(raw).digest()
        if not system:
            self.texts[digest] = json.loads(raw)["content"]
        return digest


def rivals_first_sight(
    runs: Sequence[Recording], rivals: Sequence[Peer], cache: Path
) -> tuple[Mapping[str, Sequence[Figures]], Sequence[str]]:
    """What each rival saves and hides of each run, by name and version; and why one could not be measured."""
    homes = prepared(dict.fromkeys(rival.key for rival in rivals), cache)
    materials = [Material(run) for run in runs]
    found: dict[str, list[Figures]] = {}
    failures: list[str] = []
    for rival in rivals:
        try:
            figures = [rival_figures(rival, homes[rival.key], material) for material in materials]
        except Unavailable as error:
            failures.append(f"{rival.name}: {error}")
            continue
        (version,) = {version for version, _ in figures}
        found[f"{rival.name} ({version})"] = [one for _, one in figures]
    return found, failures


def rival_figures(rival: Peer, home: Environment | Unavailable, material: Material) -> tuple[str, Figures]:
    """The version of a rival, and what it saves and hides of a run.

    Raises:
        Unavailable: it cannot be measured here.
    """
    single = _Single(material)
    outcome = run_peer(rival, home, single, PLENTY)
    if outcome.failure:
        raise Unavailable(outcome.failure)
    shown = [single.texts[digest] for (digest,) in outcome.turns]
    changed = {result.place: text for result, text in zip(material.results, shown, strict=True) if text != result.text}
    return outcome.remarks[0], material.judge(changed)


def first_sight_table(found: Mapping[str, Sequence[Figures]]) -> Table:
    """The levels, and the rivals, by the same measure."""
    headings = ("", "results changed", "saved: mean", "median", "greatest", "bill", "hidden", "edits harmed")
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
