"""What ceilings in tokens save and hide, on made runs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.conformance.conversations import ANTHROPIC
from tests.lab.evidence import ceilings
from tests.lab.evidence.contenders import NEVER, Contender
from tests.lab.evidence.making import Step, filler, made
from tests.lab.evidence.measuring import Material, cell_of
from tests.lab.evidence.recordings import CHAT

formats = pytest.mark.parametrize("format", [ANTHROPIC, CHAT])


def _material(format: str, head: int) -> Material:
    steps = [Step(says="Look.", result="the needle_name stands in a line"), *(filler(n, 200) for n in range(40))]
    return Material(ceilings.with_head(made(format, [*steps, Step(says="Use needle_name.")]), head))


@formats
def test_a_head_counts_and_is_no_evidence(format: str) -> None:
    """It makes each prompt so much larger; what turns use is the same as without it."""
    plain, with_head = _material(format, 0), _material(format, 3_000)
    added = {with_head.ruler.size(turn) - plain.ruler.size(turn) for turn in range(len(plain.needs))}
    assert 1 == len(added)
    assert 2_950 < added.pop() < 3_050
    assert [len(needs) for needs in plain.needs] == [len(needs) for needs in with_head.needs]


@formats
def test_a_ceiling_is_measured_as_a_limit_of_that_size(format: str) -> None:
    """The window is larger, and the prompts are the same."""
    material = _material(format, 0)
    share = 0.5
    limit = round(material.ruler.final * share)
    ceiling = Contender("ceiling", "cache_first", {"ceiling_tokens": limit})
    by_ceiling = cell_of(material, ceiling, share, asked=0, window=ceilings.WINDOW)
    by_limit = cell_of(material, Contender("cache_first", "cache_first"), share, asked=0, window=limit)
    assert (by_limit.cost, by_limit.sums.visible) == (by_ceiling.cost, by_ceiling.sums.visible)
    never = cell_of(material, Contender(NEVER), 1.0, asked=0)
    assert by_ceiling.tokens < never.tokens
    assert never.kept < never.tokens


def test_a_row_of_the_table_is_the_mean_over_runs() -> None:
    """Bills are shares of never trimming; a run without turns above the ceiling says nothing of what is visible."""
    rows = [
        ceilings.Row("one", 0, 200, kept=1_000, tokens=2_000),
        ceilings.Row("one", 100, 200, kept=500, tokens=1_000, visible=0.9, source=0.8),
        ceilings.Row("two", 0, 90, kept=1_000, tokens=2_000),
        ceilings.Row("two", 100, 90, kept=1_000, tokens=2_000),
    ]
    assert 0.5 == rows[1].bill(0.1) / rows[0].bill(0.1)
    cells = [list(column.cells) for column in ceilings.ceiling_table(rows).columns]
    assert [["100"], ["2"], ["75.0"], ["75.0"], ["90.0"], ["80.0"]] == cells[:6]
    assert 3 == len(list(ceilings.run_table(rows).columns[0].cells)) + 1


def test_condensing_below_a_ceiling() -> None:
    """Bills are shares of the same run's at the same ceiling without it, the levels in their order."""
    rows = [
        ceilings.Row("one", 100, 200, kept=1_000, tokens=1_000, visible=0.9, condense="off"),
        ceilings.Row("one", 100, 200, kept=500, tokens=500, visible=0.8, condense="full"),
        ceilings.Row("two", 100, 200, kept=0, tokens=1_000, condense="off"),
        ceilings.Row("two", 100, 200, kept=0, tokens=1_000, condense="full"),
    ]
    cells = [list(column.cells) for column in ceilings.condensing_table(rows).columns]
    assert [["100", "100"], ["off", "full"], ["2", "2"], ["1.000", "0.750"], ["1.000", "1.000"]] == cells[:5]
    assert ["90.0", "80.0"] == cells[5]


@pytest.mark.parametrize("level", ["off", "exact"])
def test_the_level_is_the_policys(level: str) -> None:
    """Results full of colours cost less below a ceiling where they are condensed."""
    colours = "".join(f"\x1b[31mcase_{number}\x1b[0m is {number}\n" for number in range(200))
    steps = [*(Step(says="Look.", result=colours) for _ in range(8)), Step(says="Done.")]
    run = made(CHAT, steps)
    messages = json.loads(json.dumps(run.messages).replace('"read"', '"bash"'))  # what was read stays
    material = Material(replace(run, messages=messages))
    policy = {"ceiling_tokens": 2 * material.ruler.final, "condense": level}
    cell = cell_of(material, Contender("ceiling", "cache_first", policy), 2.0, asked=0, window=ceilings.WINDOW)
    plain = cell_of(material, Contender(NEVER), 1.0, asked=0)
    assert (level == "off") == (cell.tokens >= plain.tokens)
