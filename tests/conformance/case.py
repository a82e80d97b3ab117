"""What conformance and the rules of a prompt need of a format: its validator, and a maker of valid histories."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]

INVENTED = "invented_block"
"""What is named so in a history is a block that no reader knows: `"type"`, or the name of a member that holds it."""


def _nothing(_sent: Body, _got: Body) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class Case:
    """One format as its provider takes it."""

    format: str
    defects: Callable[[Body], list[str]]
    """What the provider would refuse a request body for, by its documentation; empty if nothing."""
    history: Callable[[random.Random, int], Body]
    """A valid request body with a history of so many iterations: every kind of block that the format has, results of
    some hundred to some thousand characters, calls in parallel, reasoning, an image, and blocks named `INVENTED`."""
    worsened: Callable[[Body, Body], list[str]] = _nothing
    """What of a returned body is worse than what was sent, though the provider takes it; empty if nothing."""
    traffic: str = ""
    """The format's name in the recorded traffic; empty if none is recorded."""
    structural: Sequence[str] = ()
    """Words of the recorded refusals that concern the structure of messages."""
    heads: Sequence[Mapping[str, Any]] = ({},)
    """Other members that a body may have which change where our own text stands."""
