"""Samples: a secret of each kind in several places, drawn from a seed of one of two halves.

`open`: rules are tuned on it. `sealed`: other seeds, and kinds and places that the open half lacks; only its totals are
told, and only once the rules stand.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.lab.secrets.containers import CONTAINERS, Container, Secret
from tests.lab.secrets.drawing import drawn, password
from tests.lab.secrets.kinds import KINDS, Kind

OPEN: Final = "open"
SEALED: Final = "sealed"
_SEEDS: Final = {OPEN: 20_261_127, SEALED: 95_173_311}
_PLAIN: Final = re.compile(r"[\w@%+=:,./!#?*~^-]+")
_EACH: Final = ((False, False, 4), (False, True, 3), (True, False, 2))
"""Of each kind so many samples in places that encode nothing, in those of typed passwords, and in those that encode."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A secret of a kind in a place."""

    kind: Kind
    container: Container
    text: str
    shown: tuple[str, ...]
    """The pieces of the value as they stand in the text."""

    @property
    def held_out(self) -> bool:
        """Whether the open half lacks its kind or its place."""
        return _held_out(self.kind.name) or _held_out(self.container.name)


def samples(half: str) -> Sequence[Sample]:
    """Return the samples of a half, always the same."""
    found = []
    for kind in KINDS:
        if half == OPEN and _held_out(kind.name):
            continue
        for encoded, typed, count in _EACH:
            of_group = [each for each in CONTAINERS if (each.encoded, each.takes == "password") == (encoded, typed)]
            places = [each for each in of_group if _fits(kind, each)]
            if half == OPEN:
                places = [each for each in places if not _held_out(each.name)]
            chance = random.Random(f"{_SEEDS[half]} {kind.name} {encoded} {typed}")
            chance.shuffle(places)
            drawn_here = [_sample(kind, place, chance) for place in places[: count * 3]]
            found += [each for each in drawn_here if each is not None][:count]
    return found


def _held_out(name: str) -> bool:
    return zlib.crc32(name.encode()) % 6 == 0


def _fits(kind: Kind, container: Container) -> bool:
    if container.takes == "pem":
        return "<pem>" in kind.template
    if container.alone and kind.around != "{}":
        return False
    if container.takes == "password":
        return kind.password
    return container.takes == "named" or kind.published


def _sample(kind: Kind, container: Container, chance: random.Random) -> Sample | None:
    for _ in range(20):
        value = drawn(kind.template, chance) if kind.template else password(chance)
        before, after = (drawn(part, chance) for part in kind.around.split("{}"))
        line = before + value + after
        if container.takes != "pem" and container.plain and not _PLAIN.fullmatch(line):
            continue
        placed = container.place(Secret(kind.words, value, line), chance)
        if placed.text and all(piece in placed.text for piece in placed.shown):
            return Sample(kind, container, placed.text, placed.shown)
    return None
