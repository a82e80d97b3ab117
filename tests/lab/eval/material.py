"""Made-up records of a made-up harbour: what the scripted tools have answered before a task begins.

All of it follows from a seed and nothing is copied from anywhere, so no model has met a fact of it before. A fact is a
random token; no model guesses one. Records hold other subjects' tokens too, under the same attribute, so that the
right answer takes reading and not only finding something that looks like one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

ATTRIBUTES: Final = (
    "calibration seal",
    "batch stamp",
    "survey mark",
    "pallet code",
    "valve tag",
    "berth label",
    "ballast number",
    "mooring sign",
)
_NAMES: Final = (
    "heron", "marten", "basalt", "juniper", "lantern", "otter", "quartz", "saffron", "tundra", "walnut",
    "amber", "bramble", "cobalt", "drift", "ember", "fjord", "garnet", "hazel", "indigo", "kelp",
)  # fmt: skip
_PLACES: Final = ("quay", "crane", "sluice", "pump", "depot", "gantry", "silo", "winch", "beacon", "ramp")
_STATES: Final = ("steady", "idle", "cleared", "loading", "drained", "checked", "waiting", "locked", "warm", "level")
_NOTES: Final = (
    "nothing to report", "crew changed on time", "second reading agrees", "wind from the west", "gauge read twice",
    "next look in an hour", "slight play in the bearing", "log closed by the watch", "pressure within its band",
    "tide table consulted", "no vessel alongside", "lamp replaced",
)  # fmt: skip
_CONSONANTS: Final = "BCDFGHJKLMNPQRSTVWXZ"


@dataclass(frozen=True, slots=True)
class Fact:
    """What a task asks for."""

    attribute: str
    subject: str
    token: str

    @property
    def line(self) -> str:
        """The line of a record that tells it."""
        return f"the {self.attribute} of {self.subject} is {self.token}"


@dataclass(slots=True)
class Material:
    """A source of records that never names the same subject twice."""

    chance: random.Random
    _named: set[str]

    @classmethod
    def of(cls, seed: str) -> Material:
        """From a seed."""
        return cls(random.Random(seed), set())

    def token(self) -> str:
        """A token that nobody guesses: one of 32 thousand million."""
        one, two = (self.chance.choices(_CONSONANTS, k=count) for count in (3, 2))
        return f"{''.join(one)}-{self.chance.randrange(10_000):04}-{''.join(two)}"

    def subject(self) -> str:
        """A subject that was not named before."""
        while True:
            name = f"{self.chance.choice(_NAMES)}-{self.chance.choice(_PLACES)}-{self.chance.randrange(10, 100)}"
            if name not in self._named:
                self._named.add(name)
                return name

    def fact(self, attribute: str | None = None) -> Fact:
        """A fact about a new subject."""
        return Fact(attribute or self.chance.choice(ATTRIBUTES), self.subject(), self.token())

    def record(self, size: int, inside: tuple[str, ...] = (), *, like: str | None = None, at: float = 0.5) -> str:
        """A record of about `size` bytes.

        Args:
            size: bytes, to within a line, `inside` counted.
            inside: lines that it must hold, one after another.
            like: the attribute of the facts about others that it tells too; None: it tells none.
            at: where `inside` stands, as a share of the bytes before it.
        """
        left = size - sum(len(line) + 10 for line in inside)
        lines: list[str] = []
        lengths: list[int] = []
        clock = self.chance.randrange(3_600)
        while sum(lengths) < left:
            clock += self.chance.randrange(1, 40)
            told = like is not None and self.chance.random() < 0.05
            what = self.fact(like).line if told else self._event()
            lines.append(f"{clock // 3_600:02}:{clock // 60 % 60:02}:{clock % 60:02} {what}")
            lengths.append(len(lines[-1]) + 1)
        before, place = 0, 0
        while place < len(lines) and before < at * left:
            before += lengths[place]
            place += 1
        stamp = lines[max(place - 1, 0)][:8] if lines else "00:00:00"
        lines[place:place] = [f"{stamp} {line}" for line in inside]
        return "".join(f"{line}\n" for line in lines)

    def _event(self) -> str:
        pick = self.chance.choice
        name = f"{pick(_NAMES)}-{pick(_PLACES)} {self.chance.randrange(10, 100)}"  # written unlike a subject
        return f"{name} {pick(_STATES)}, {pick(_NOTES)}, {self.chance.randrange(1, 900)} units"
