"""One cell as a task for another process, which cannot import what the program's own `__main__` defines."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tests.lab.evidence.contenders import Contender
from tests.lab.evidence.measuring import Cell, Material, cell_of
from tests.lab.evidence.recordings import paths, recorded
from tests.lab.harness.environments import Unavailable


class Task(NamedTuple):
    """One cell to measure."""

    run: str
    contender: Contender
    share: float
    asked: int
    reasoning: bool


def measured(task: Task) -> Cell:
    """Measure a cell; one that cannot be measured here has a failure."""
    material = _material(task.run, reasoning=task.reasoning)
    try:
        return cell_of(material, task.contender, task.share, asked=task.asked)
    except Unavailable as error:
        return Cell(
            task.run, task.share, int(material.ruler.final * task.share), task.contender.name, failure=str(error)
        )


@lru_cache(maxsize=2)
def _material(run: str, *, reasoning: bool) -> Material:
    return Material(recorded(paths()[run], reasoning=reasoning))
