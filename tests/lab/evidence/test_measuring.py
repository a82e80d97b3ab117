"""What becomes of evidence: visible, source, lines, askable, found, lost; and what prompts cost."""

from __future__ import annotations

import json
import random

import pytest

from tests.conformance.conversations import ANTHROPIC, GEMINI, RESPONSES
from tests.lab.evidence.contenders import CONTROL, MASKING, NEVER, Contender, mask, prompts_of
from tests.lab.evidence.making import Step, filler, made
from tests.lab.evidence.measuring import Cell, Material, cell_of
from tests.lab.evidence.recordings import CHAT, texts_of
from tests.lab.evidence.ruler import Sight

formats = pytest.mark.parametrize("format", [ANTHROPIC, CHAT, RESPONSES, GEMINI])
OURS = Contender("cache_first", "cache_first")
NEEDLE = "the needle_name stands in a line of its own"


def _material(format: str, *, echo: int = 0, words: int = 200) -> Material:
    """A needle, forty steps without references (but for an echo), and an action that uses the needle."""
    steps = [Step(says="Look.", result=NEEDLE + "\n" + "zebra crossing\n"), *(filler(n, words) for n in range(40))]
    if echo:
        steps[-echo] = Step(says="I read needle_name before.", result="nothing")
    return Material(made(format, [*steps, Step(says="Use needle_name at the zebra crossing.")]))


@formats
def test_all_is_visible_where_nothing_is_trimmed(format: str) -> None:
    """Evidence that was sent is visible, its source too, and nothing is hidden."""
    cell = cell_of(_material(format), Contender(NEVER), 0.5)
    assert (1, 1.0, 1.0, 0.0) == (cell.counted, cell.sums.visible, cell.sums.source, cell.sums.hidden)
    assert 0 == cell.invalid
    assert 0 < cell.over


@formats
def test_what_is_dropped_for_good_is_lost(format: str) -> None:
    """The control drops the oldest and has no search; its prompts fit and are valid."""
    cell = cell_of(_material(format), Contender(CONTROL), 0.5)
    assert (0.0, 0.0, 1.0, 1.0) == (cell.sums.visible, cell.sums.source, cell.sums.hidden, cell.sums.lost)
    assert (0, 0) == (cell.over, cell.invalid)
    assert (1.0, 0.0) == (cell.bands["older"].total, cell.bands["1-3"].total)


@formats
def test_an_echo_is_visible_and_no_source(format: str) -> None:
    """Where only the model's own words are left, evidence is visible, and its source is not."""
    cell = cell_of(_material(format, echo=2), Contender(CONTROL), 0.5)
    # The echo is an action too, whose evidence was dropped.
    assert (2, 1.0, 0.0) == (cell.counted, cell.sums.visible, cell.sums.source)
    assert (1.0, 2.0) == (cell.bands["1-3"].visible, cell.source_bands["older"].sourced)


@formats
def test_what_is_hidden_is_found_by_search(format: str) -> None:
    """The sidecar's own search finds a hidden line by its name, and by the other words of the action."""
    # Limits at which the oldest results do not stay either.
    tight = Contender("tight", "cache_first", {"fit_keep_oldest": 0.0})
    cell = cell_of(_material(format, words=600), tight, 0.3)
    assert (0.0, 1.0) == (cell.sums.visible, cell.sums.hidden)
    assert (1.0, 1.0) == (cell.sums.by_name, cell.sums.by_context)
    assert (0.0, 0.0) == (cell.sums.lost, cell.sums.unfound)
    assert (0, 0) == (cell.over, cell.invalid)


def test_without_search_what_is_lost_is_not_listed() -> None:
    """Asking for nothing leaves what is found and what is lost open."""
    tight = Contender("tight", "cache_first", {"fit_keep_oldest": 0.0})
    cell = cell_of(_material(CHAT, words=600), tight, 0.3, asked=0)
    assert (True, False, 0.0, 0.0) == (cell.searchable, cell.searched, cell.sums.asked, cell.sums.lost)


def test_a_sample_stands_for_all() -> None:
    """Searching for a few of the hidden references of a turn gives sums as large as searching for all."""
    names = [f"needle_{word}" for word in ("one", "two", "three", "four", "five", "six")]
    steps = [*(Step(result=f"the {name} is here") for name in names), *(filler(n, 600) for n in range(30))]
    run = made(CHAT, [*steps, Step(says=" or ".join(names))])
    tight = Contender("tight", "cache_first", {"fit_keep_oldest": 0.0})
    few, all_of = (cell_of(Material(run), tight, 0.3, asked=asked) for asked in (2, 100))
    assert few.sums.hidden == all_of.sums.hidden > 0.9
    assert pytest.approx(all_of.sums.hidden) == few.sums.asked
    assert pytest.approx(all_of.sums.by_name) == few.sums.by_name


def test_names_of_what_is_hidden() -> None:
    """A name in a line that is none of the run's, such as a label's, makes hidden evidence askable."""
    material = _material(CHAT)
    label = {"role": "tool", "tool_call_id": "call-0", "content": "[clipped: needle_name]"}
    sight = Sight(material.ruler.pieces)
    sight.move((material.ruler.piece(json.dumps(label).encode()),))
    assert [True, False] == [sight.names([name]) for name in ("needle_name", "needle")]
    (need,) = material.needs[-1]
    assert [False, False] == [sight.shows(need.lines), sight.shows_source(need.source)]


def test_a_line_that_was_cut_is_not_visible() -> None:
    """Only a whole line shows evidence."""
    material = _material(CHAT)
    cut = {"role": "tool", "tool_call_id": "call-0", "content": NEEDLE[:-4]}
    sight = Sight(material.ruler.pieces)
    sight.move((material.ruler.piece(json.dumps(cut).encode()),))
    (need,) = material.needs[-1]
    assert [False, True] == [sight.shows(need.lines), sight.names(need.names)]


def test_cost_by_hand() -> None:
    """A kept prefix costs a tenth, what is new five quarters."""
    material = Material(made(CHAT, [filler(0), filler(1), filler(2)]))
    ruler = material.ruler
    sizes = [ruler.size(turn) for turn in range(3)]
    kept = sum(size - 3 for size in sizes[:2])  # what opens the answer is not part of a prefix
    cell = cell_of(material, Contender(NEVER), 1.0)
    assert pytest.approx(0.1 * kept + 1.25 * (sum(sizes) - kept)) == cell.cost


def test_looking_at_changes_is_as_looking_anew() -> None:
    """A sight that was moved from prompt to prompt shows what a fresh one shows."""
    material = _material(CHAT, echo=3)
    pieces = material.ruler.pieces
    sent = material.ruler.sent
    chance = random.Random(5)
    moved = Sight(pieces)
    every = [frozenset([line]) for line in material.history.ids.values()]
    for _ in range(60):
        prompt = tuple(number for number in sent if chance.random() < 0.5)
        moved.move(prompt)
        fresh = Sight(pieces)
        fresh.move(prompt)
        assert [fresh.shows(line) for line in every] == [moved.shows(line) for line in every]
        assert [fresh.shows_source(line) for line in every] == [moved.shows_source(line) for line in every]


@formats
def test_old_results_become_one_line(format: str) -> None:
    """Results of all but the newest ten turns are one line each; calls and words stay."""
    material = _material(format)
    cell = cell_of(material, Contender(MASKING), 0.5)
    assert (0.0, 0) == (cell.sums.visible, cell.invalid)
    masked = [text for text in _texts(format, mask(format, material.run.messages[-5])) if "omitted" in text]
    sent = [text for text in _texts(format, material.run.messages[-5]) if "plain talk" in text]
    assert len(sent) == len(masked)


def _texts(format: str, message: object) -> list[str]:
    return [text for _, text in texts_of(format, message)]


@formats
@pytest.mark.parametrize("preset", ["cache_first", "lean", "fit_only"])
def test_every_preset_fits_and_is_valid(format: str, preset: str) -> None:
    """The sidecar's prompts are within the limit by the ruler, and have no new defect."""
    cell = cell_of(_material(format), Contender(preset, preset), 0.4)
    assert (0, 0, 0) == (cell.over, cell.unavoidable, cell.invalid)


def test_a_defect_is_reported() -> None:
    """A prompt with a result whose call is gone is invalid."""
    material = _material(CHAT)
    ruler = material.ruler
    whole = ruler.prompt(3)
    without_call = whole[: ruler.head + material.run.starts[1]] + whole[ruler.head + material.run.starts[1] + 1 :]
    assert not material.fresh_defects(ruler, 3, whole)
    assert material.fresh_defects(ruler, 3, without_call)


@formats
def test_turns_that_cannot_fit_do_not_count(format: str) -> None:
    """Where system prompt, opening and newest turn are over the limit, nobody is blamed."""
    cell = cell_of(_material(format), Contender(CONTROL), 0.01)
    assert (0, 0) == (cell.over, cell.counted)
    assert cell.unavoidable


def test_prompts_have_one_for_each_turn() -> None:
    """Each strategy makes as many prompts as the run has turns."""
    material = _material(ANTHROPIC)
    for contender in (Contender(CONTROL), Contender(NEVER), Contender(MASKING), OURS):
        assert len(material.needs) == sum(1 for _ in prompts_of(contender, material.ruler, 2_000))


def test_facts_are_complete() -> None:
    """A cell says all that it holds."""
    assert {"run", "contender", "sums", "bands", "source_bands"} <= set(Cell("a", 0.3, 1, "b").facts())
