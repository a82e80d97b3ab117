"""What an action refers to, and where that stands in the history."""

from __future__ import annotations

import math
import random

import pytest

from tests.conformance.conversations import ANTHROPIC, GEMINI, RESPONSES
from tests.lab.evidence.history import History, Need, ReferenceKind, references, stands
from tests.lab.evidence.making import Step, filler, made
from tests.lab.evidence.measuring import band
from tests.lab.evidence.recordings import CHAT

K = ReferenceKind


@pytest.mark.parametrize(
    ("text", "kind", "names"),
    [
        ("see src/core/fold.py now", K.PATH, ["src/core/fold.py", "core/fold.py"]),
        ("see ./fold/two.py now", K.PATH, ["./fold/two.py"]),
        ("see https://example.com/a?b=1.", K.URL, ["https://example.com/a?b=1"]),
        ("at 3f2a91c today", K.HASH, ["3f2a91c"]),
        ("says TS2345 and ENOENT", K.ERROR, ["TS2345", "ENOENT"]),
        ("call read_file twice", K.NAME, ["read_file"]),
        ("call readFile and HTTPServer2", K.NAME, ["readFile", "HTTPServer2"]),
        ("call os.path.join twice", K.NAME, ["os.path.join"]),
        ("set MAX_TOKENS or TIMEOUT", K.NAME, ["MAX_TOKENS", "TIMEOUT"]),
        ("use the tool-result-cache", K.NAME, ["tool-result-cache"]),
        ("port 18443 of 3000 and 12", K.NUMBER, ["18443"]),
        ('it said "not my type"', K.QUOTED, ["not my type"]),
        ("it said `not my type`", K.QUOTED, ["not my type"]),
        ("    return the sum of all parts\n", K.LINE, ["return the sum of all parts"]),
    ],
)
def test_each_kind_of_reference_is_found(text: str, kind: ReferenceKind, names: list[str]) -> None:
    """Each kind is found, and nothing else is taken for it."""
    assert names == [name for name, found in references([text]).items() if found is kind]


@pytest.mark.parametrize("text", ["a_b", "e.g.", "re-use", "don't do what it's not", "1000 of 20", "short line"])
def test_prose_is_no_reference(text: str) -> None:
    """Short names, words with a hyphen, apostrophes and round numbers are none."""
    assert {} == references([text])


@pytest.mark.parametrize(
    "text", ['"1,240p"', "in_progress", '"240p" and "pending"', "*** Begin Patch", "require_escalated"]
)
def test_habits_of_agents_are_no_reference(text: str) -> None:
    """What agents write at many calls without having read it refers to nothing."""
    assert {} == references([text])


def test_the_path_of_a_patch_is_a_reference_and_its_header_is_none() -> None:
    """Of `*** Update File: path` the path counts, not the line."""
    found = references(["*** Update File: src/core/fold.py\n@@ def fold(self, first, second):"])
    assert {"src/core/fold.py": K.PATH, "core/fold.py": K.PATH, "fold.py": K.NAME} == found


def test_a_question_by_context_begins_with_identifiers() -> None:
    """A model asks by identifiers before it asks by words, however rare these are."""
    steps = [
        Step(result="needle_name, zebra, crossing, readFile and v2beta stand here"),
        Step(result="readFile v2beta again"),
        *map(filler, range(4)),
        Step(says="Use needle_name at the zebra crossing with readFile and v2beta."),
    ]
    need = _need(History(made(CHAT, steps)).needs(6), "needle_name")
    assert need is not None
    assert ["readFile", "v2beta"] == sorted(need.context.split()[:2])


FORMATS = (ANTHROPIC, CHAT, RESPONSES, GEMINI)
formats = pytest.mark.parametrize("format", FORMATS)


def _need(needs: list[Need], name: str) -> Need | None:
    return next((need for need in needs if name in need.names), None)


@formats
@pytest.mark.parametrize(
    ("age", "name"), [(1, "1-3"), (3, "1-3"), (4, "4-10"), (10, "4-10"), (11, "11-30"), (30, "11-30"), (31, "older")]
)
def test_age_counts_iterations_since_the_call(format: str, age: int, name: str) -> None:
    """The age of evidence is the iterations since the call whose result it was; 1: the newest."""
    steps = [Step(result="the needle_name is here"), *map(filler, range(age - 1)), Step(says="Use needle_name.")]
    need = _need(History(made(format, steps)).needs(age), "needle_name")
    assert need is not None
    assert (age, age, name) == (need.age, need.source_age, band(need.age))


@formats
def test_an_echo_is_evidence_but_no_source(format: str) -> None:
    """What the model itself wrote is younger evidence; the source is still the newest result or user message."""
    steps = [
        Step(result="the needle_name is here"),
        *map(filler, range(4)),
        Step(arguments={"path": "about needle_name"}),
        Step(says="Use needle_name."),
    ]
    history = History(made(format, steps))
    need = _need(history.needs(6), "needle_name")
    assert need is not None
    assert (1, 6) == (need.age, need.source_age)
    assert {history.ids["the needle_name is here"]} == need.source
    assert {history.ids["the needle_name is here"], history.ids["about needle_name"]} == need.lines


def test_the_models_own_invention_has_no_source() -> None:
    """A name that only the model wrote so far is evidence without a source."""
    history = History(made(CHAT, [Step(says="I say needle_name."), filler(1), Step(says="Use needle_name.")]))
    need = _need(history.needs(2), "needle_name")
    assert need is not None
    assert (frozenset(), 0) == (need.source, need.source_age)


def test_the_newest_source_counts() -> None:
    """Of several results the newest is the source, and a user's words are one."""
    steps = [Step(result="the needle_name is old"), Step(user="the needle_name is new"), Step(says="Use needle_name.")]
    history = History(made(CHAT, steps))
    need = _need(history.needs(2), "needle_name")
    assert need is not None
    assert {history.ids["the needle_name is new"]} == need.source


def test_what_stands_nowhere_before_is_no_reference() -> None:
    """A name that comes later only, or only in part, is none."""
    steps = [Step(result="a needle_names b"), Step(says="Use needle_name."), Step(result="the needle_name")]
    assert [] == History(made(CHAT, steps)).needs(1)


@formats
def test_what_the_system_prompt_holds_is_no_reference(format: str) -> None:
    """Every strategy keeps the system prompt."""
    steps = [Step(result="the needle_name is here"), Step(says="Use needle_name.")]
    assert [] == History(made(format, steps, system="Mind needle_name.")).needs(1)


@formats
def test_thought_is_no_evidence(format: str) -> None:
    """Reasoning is not looked at."""
    assert [] == History(made(format, [filler(0), Step(says="Use secret_of_thought.")])).needs(1)


@pytest.mark.parametrize(("times", "counts"), [(4, True), (5, False)])
def test_common_strings_are_vocabulary(times: int, counts: bool) -> None:
    """In more than five messages, the action's own among them, a string is no reference; 5 % are more in a long run."""
    steps = [Step(result="the needle_name is here")] * times
    steps += [Step(says="Use needle_name.")]
    short = History(made(CHAT, steps)).needs(times)
    assert counts == bool(_need(short, "needle_name"))
    long = History(made(CHAT, [*map(filler, range(60)), *steps])).needs(60 + times)
    assert _need(long, "needle_name")


def test_same_evidence_counts_once() -> None:
    """A path, its last two parts and its name in the same lines are one reference, asked for by the path."""
    steps = [Step(result="at src/core/needle_name.py"), filler(1), Step(says="Open src/core/needle_name.py")]
    (need,) = History(made(CHAT, steps)).needs(2)
    assert "src/core/needle_name.py" == need.names[0]
    assert {"core/needle_name.py", "needle_name.py"} <= set(need.names)
    assert 1.0 == need.weight


def test_weights_of_a_turn_sum_to_one() -> None:
    """A reference weighs ln(messages / messages that hold it); those of a turn sum to 1."""
    steps = [
        Step(result="the rare_needle is here"),
        Step(result="the known_needle is here"),
        Step(result="the known_needle is there"),
        Step(says="Use rare_needle or known_needle."),
    ]
    run = made(CHAT, steps)
    needs = History(run).needs(3)
    rare, known = (math.log(len(run.messages) / count) for count in (2, 3))
    assert pytest.approx([rare / (rare + known), known / (rare + known)]) == [need.weight for need in needs]


def test_a_quoted_line_is_found_within_another() -> None:
    """A line of the action may stand behind a line number."""
    steps = [Step(result="12\treturn the sum of all parts"), Step(says="    return the sum of all parts")]
    (need,) = History(made(CHAT, steps)).needs(1)
    assert need.quotes_line


def test_context_is_made_of_other_rare_words() -> None:
    """Words of the name, common words and words that stand nowhere before are not asked for."""
    steps = [
        Step(result="the needle_name is here"),
        Step(result="quick orange lemur jumps"),
        *[Step(result="plain talk")] * 6,
        Step(says="Use needle_name, plain orange lemur of unheard jumps quick."),
    ]
    need = _need(History(made(CHAT, steps)).needs(8), "needle_name")
    assert need is not None
    assert "orange lemur jumps" == need.context


def test_find_is_as_a_walk_over_all_lines() -> None:
    """Looking only where the rarest word stands finds what looking everywhere finds."""
    chance = random.Random(7)
    words = ["a_b", "src/x.py", "x.py", "x", "alpha", "alphabet", "'q'", "-", "é", "v1.2"]
    steps = [Step(result="\n".join(" ".join(chance.choices(words, k=4)) for _ in range(9))) for _ in range(20)]
    history = History(made(CHAT, steps))
    for name in {" ".join(chance.choices(words, k=chance.choice([1, 1, 2]))) for _ in range(200)} - {"-", "- -"}:
        expected = {number for line, number in history.ids.items() if stands(name, line)}
        assert expected == set(history.find(name))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [("ab", "x ab.", True), ("ab", "xab", False), ("ab", "abx ab", True), ("/a", "x/a", True), ("ab", "é ab_", False)],
)
def test_word_boundaries(name: str, text: str, expected: bool) -> None:
    """A text holds a string if its ends are not in the middle of a word."""
    assert expected == stands(name, text)
