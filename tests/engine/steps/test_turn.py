"""A turn: once its prompt is answered, nothing of the call is left."""

from __future__ import annotations

import gc
import weakref

import pytest

from prompt_sidecar.facts.trim_calls import TrimCall
from prompt_sidecar.prompt.body import Split
from tests.engine.runs.making import FORMATS, LIMIT, Engine, body, history


class Check:
    """Tells whether somebody waits for the call. The server's refers to the call itself."""

    def __call__(self) -> None:
        """Somebody does."""


@pytest.mark.parametrize("format", FORMATS)
def test_a_call_that_was_answered_is_freed_at_once(format: str) -> None:
    """Without waiting for the collector, which seldom comes: until then the call would hold a place of a connection."""
    engine = Engine(limit=LIMIT)
    for iterations in (3, 12, 14):
        check = Check()
        alive = weakref.ref(check)
        gc.collect()
        gc.disable()
        try:
            raw = body(format, history(format, iterations))
            call = TrimCall("caller", "run", format, raw, context_window=LIMIT, output_reserve=0)
            engine.runs.trim(call, check)
            del check
            assert alive() is None
        finally:
            gc.enable()


@pytest.mark.parametrize("format", FORMATS)
def test_the_body_of_a_prompt_is_freed_with_the_next(format: str) -> None:
    """A run keeps its last body only; in a cycle each would stay until the collector comes."""
    engine = Engine(limit=LIMIT)
    gc.collect()
    before = bodies()
    gc.disable()
    try:
        for iterations in range(3, 15):
            engine.trim(format, body(format, history(format, iterations)))
        assert bodies() - before <= 1
    finally:
        gc.enable()


def bodies() -> int:
    """Number of bodies that are alive."""
    return sum(type(each) is Split for each in gc.get_objects())
