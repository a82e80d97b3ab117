"""Recorded runs as many agents at once can send them: one copy of the text for all that play the same run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Final

from tests.lab.harness.prompts import FORMATS, Prompts, prompts_of, recorded
from tests.oracle.runs import recorded_paths, synthetic

MOST_BYTES: Final = 300_000
"""Bytes of the largest prompt that is sent: beyond it one agent weighs as much as ten, and figures tell of that one."""
LEAST_BYTES: Final = 30_000
"""Bytes from which an agent may begin: with less there is nothing to trim yet."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A run's prompts, each the beginning of the next."""

    name: str
    format: int
    text: bytes = field(repr=False)
    """The last body, without its end."""
    ends: Sequence[int]
    """Where each prompt ends in it."""

    def body(self, turn: int) -> bytes:
        """The body of a prompt."""
        return self.text[: self.ends[turn]] + b"]}"

    @property
    def beginnings(self) -> range:
        """Turns at which an agent may begin: so that several prompts are left, and the first is worth trimming."""
        least = next((turn for turn, end in enumerate(self.ends) if end >= LEAST_BYTES), 0)
        return range(min(least, max(len(self.ends) - 2, 0)), max(len(self.ends) - 1, 1))


def recording_of(prompts: Prompts) -> Recording:
    """What agents send of a run."""
    *_, last = prompts.bodies()
    text = last[:-2]
    sizes = list(accumulate(len(part) + 1 for part in prompts.slices))
    head = len(text) - (sizes[prompts.lengths[-1] - 1] - 1)
    ends = [head + sizes[length - 1] - 1 for length in prompts.lengths]
    kept = [end for end in ends if end <= MOST_BYTES] or ends[:1]
    return Recording(prompts.name, FORMATS[prompts.format], text[: kept[-1]], kept)


def recordings(paths: Sequence[Path] = ()) -> list[Recording]:
    """The runs at `paths`, or all that are recorded; synthetic ones where there are none."""
    found = [recording_of(recorded(path)) for path in paths or recorded_paths()]
    if found:
        return found
    runs = (synthetic(seed, format) for seed in range(3) for format in FORMATS)
    return [recording_of(prompts_of(run.name, run.format, run.slices())) for run in runs]
