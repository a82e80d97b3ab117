"""The trial with scripted models: its figures are what the model's habits and the provider's counts make them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab.eval.arguments import SKIPPED
from tests.lab.eval.endpoint import KEY
from tests.lab.live.__main__ import main
from tests.lab.live.agent import Arm, Ending, Outcome
from tests.lab.live.relay import Used
from tests.lab.live.report import Case, table
from tests.lab.live.scripted import Habits, Scripted
from tests.lab.live.tasks import QUICK, Kind, Size, Task, Workspace, evaluated, tasks

PRICES = ("--prices", "1,0.1,4")
WINDOW = 12_000


@dataclass(frozen=True, slots=True)
class Trial:
    """What came out of one."""

    code: int
    facts: Any
    out: str
    err: str
    endpoint: Scripted

    def of(self, arm: str, kind: str = "") -> list[Any]:
        """The conversations of an arm, of a kind or of all."""
        return [
            each for each in self.facts["conversations"] if arm == each["arm"] and (not kind or kind == each["kind"])
        ]


class Trials:
    """Runs trials."""

    def __init__(self, folder: Path, captured: pytest.CaptureFixture[str]) -> None:
        self._file = folder / "facts.json"
        self._captured = captured

    def run(
        self, habits: Habits, *arguments: str, prices: Sequence[str] = PRICES, counts: bool = True, key: str = KEY
    ) -> Trial:
        """Run one, small."""
        self._file.write_text("{}")
        with Scripted(habits, counts=counts) as endpoint:
            environment = endpoint.environment | {"EVAL_API_KEY": key}
            code = main(["--quick", *prices, *arguments, "--json", str(self._file)], environment)
        facts = json.loads(self._file.read_bytes())
        out, err = self._captured.readouterr()
        return Trial(code, facts, out, err, endpoint)


@pytest.fixture
def trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Trials:
    """What runs trials."""
    return Trials(tmp_path, capsys)


def test_a_model_with_notes_solves_all_in_each_arm(trials: Trials) -> None:
    """Prompts are valid and fit the window where there is one; what is billed is what the provider counted."""
    got = trials.run(Habits())
    assert (0, []) == (got.code, got.endpoint.refusals)
    arms = got.facts["arms"]
    assert dict.fromkeys(Arm, (4, 4)) == {arm: (arms[arm]["solved"]["hits"], arms[arm]["solved"]["of"]) for arm in Arm}
    for arm in (Arm.WITH, Arm.CEILING, Arm.SAFE):
        # The oracle's ruler counts somewhat more than the sidecar's estimate.
        assert arms[arm]["largest_prompt"] <= 1.1 * WINDOW < arms[Arm.WITHOUT]["largest_prompt"] * 1.1
        assert arms[arm]["tokens_in"]["mean"] < arms[Arm.WITHOUT]["tokens_in"]["mean"]
    each = [case["provider"] for case in got.facts["conversations"]]
    assert got.endpoint.requests == sum(used["requests"] for used in each)
    for used in each:
        plain = used["tokens_in"] - used["cached"]
        billed = (plain + 0.1 * used["cached"] + 4 * used["tokens_out"]) / 1e6
        assert pytest.approx(billed) == used["cost"]
        assert 0 < used["cached"] < used["tokens_in"]
    assert 16 == got.err.count(" s to go ")
    assert "4/4 100% (51% to 100%)" in got.out


def test_what_a_model_without_notes_loses_is_shown(trials: Trials) -> None:
    """It counts what it sees: all of it without the sidecar, and too little in a window."""
    got = trials.run(Habits(notes=False, recalls=False), "--arms", "without", "with", "--tasks", "3")
    assert [True, True, True] == [case["solved"] for case in got.of("without")]
    assert [False] == [case["solved"] for case in got.of("with", "count")]
    assert got.facts["arms"]["with"]["solved_without_alone"] >= 1
    assert 0 == got.facts["arms"]["with"]["solved_here_alone"]


def test_recalls_are_counted(trials: Trials) -> None:
    """A model that searches for what left its prompt finds it, and its searches are in figures and bill."""
    got = trials.run(Habits(notes=False), "--arms", "without", "with", "--tasks", "1", "--window", "6000")
    (alone,), (trimmed,) = got.of("without"), got.of("with")
    assert (True, 0) == (alone["solved"], alone["provider"]["recalls"])
    assert trimmed["solved"]
    assert trimmed["provider"]["recalls"] == trimmed["provider"]["requests"] - trimmed["requests"] > 0


def test_the_budget_ends_the_trial(trials: Trials) -> None:
    """What was done until then counts, and the conversation that passed it is left out."""
    got = trials.run(Habits(), "--arms", "without", "--budget", "0.04")
    assert 0 == got.code
    assert "the budget is used up" in got.err
    assert ["answered", "failed"] == [case["ending"] for case in got.facts["conversations"]]
    assert 1 == got.facts["arms"]["without"]["conversations"]


def test_a_model_without_price_has_a_budget_in_tokens(trials: Trials) -> None:
    """Nothing is billed, and nothing guessed."""
    got = trials.run(Habits(), "--arms", "without", "--tasks", "1", "--token-budget", "50,000", prices=())
    assert "The catalogue has no price for it" in got.out
    assert "the budget is used up" in got.err
    assert [None] == [case["provider"]["cost"] for case in got.facts["conversations"]]


def test_an_endpoint_that_does_not_count(trials: Trials) -> None:
    """Tokens are counted here then, and the table says so."""
    got = trials.run(Habits(), "--arms", "without", "--tasks", "1", counts=False)
    (case,) = got.facts["conversations"]
    assert case["provider"]["estimated"]
    assert case["provider"]["tokens_in"] > WINDOW
    assert "does not count all tokens" in got.out


def test_a_wrong_key_ends_the_trial(trials: Trials) -> None:
    """At the first request, with the endpoint's words and without the key."""
    got = trials.run(Habits(), "--arms", "without", key="not-the-key-at-all")
    assert (1, 1) == (got.code, got.endpoint.requests)
    assert "HTTP 401" in got.err
    assert "not-the-key-at-all" not in got.out + got.err + json.dumps(got.facts)


def test_the_plan_asks_nothing(trials: Trials) -> None:
    """It says how many requests and dollars a trial may take."""
    got = trials.run(Habits(), "--plan")
    assert (0, 0, {}) == (got.code, got.endpoint.requests, got.facts)
    assert "16 conversations with scripted-model" in got.out
    assert "About $" in got.out


@pytest.mark.parametrize(
    ("environment", "code", "words"),
    [
        ({}, 0, SKIPPED.format(program="live")),
        ({"EVAL_BASE_URL": "http://127.0.0.1:1/v1"}, 2, "EVAL_MODEL"),
        ({"EVAL_BASE_URL": "x", "EVAL_MODEL": "m"}, 2, "http"),
    ],
)
def test_without_an_endpoint(
    environment: dict[str, str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says how to give one."""
    assert code == main([], environment)
    assert words in "".join(capsys.readouterr())


@pytest.mark.parametrize("arguments", [["--prices", "1,2"], ["--budget", "nan"], ["--arms", "both"], ["--tasks", "0"]])
def test_wrong_use(arguments: list[str]) -> None:
    """A wrong argument is refused before anything is asked."""
    with pytest.raises(SystemExit) as error:
        main(arguments, {})
    assert 2 == error.value.code


@pytest.mark.parametrize("kind", Kind)
def test_a_task_takes_twenty_to_sixty_calls_and_more_than_the_window(kind: Kind) -> None:
    """And the same seed makes it again."""
    made = [task for task in tasks(5, 12, Size()) if task.kind is kind]
    assert 3 == len(made)
    assert made == [task for task in tasks(5, 12, Size()) if task.kind is kind]
    for task in made:
        assert 20 <= task.calls <= 60
        assert task.chars / 4 > 32_000


def task_of(kind: Kind) -> Task:
    """A small task."""
    return next(task for task in tasks(1, 4, QUICK) if task.kind is kind)


def test_only_the_answer_solves_a_task() -> None:
    """The last one of the message counts."""
    workspace = Workspace(task_of(Kind.COUNT))
    answer = workspace.task.answer
    assert workspace.solved(f"ANSWER: 100000\nANSWER: **{answer}**")
    assert not workspace.solved(f"ANSWER: {answer}\nANSWER: 100000")
    assert not workspace.solved(answer)


def test_only_a_function_that_is_right_passes_its_tests() -> None:
    """Whatever the agent says of it."""
    workspace = Workspace(task_of(Kind.FIX))
    assert not workspace.solved("ANSWER: done")
    wrong = next(
        path for path, text in workspace.files.items() if path.endswith(".py") and " - " in text.split("def ")[1]
    )
    line = workspace.files[wrong].rstrip().rpartition("\n")[2]
    answer = workspace.call("replace_text", json.dumps({"path": wrong, "old": line, "new": line.replace(" - ", " + ")}))
    assert f"{wrong} is changed" == answer
    assert "all tests passed" in workspace.call("run_tests", "{}")
    assert workspace.solved("")


@pytest.mark.parametrize(
    "body", ["__import__('os').getpid()", "x ** 9999", "y", "'a' * x", "x.real", "[x]", "x * 99999999999999999999"]
)
def test_what_a_model_writes_is_not_run(body: str) -> None:
    """Arithmetic on whole numbers is evaluated; anything else is an error."""
    with pytest.raises(ValueError, match="stage00 must be one line"):
        evaluated(f"def stage00(x):\n    return {body}\n", "stage00", 7)
    assert 26 == evaluated("# a note\ndef stage00(x):\n    return (x * 3 + 5) % 100 // 1\n", "stage00", 7)


def test_a_wrong_call_is_answered() -> None:
    """An agent reads what was wrong, as from any tool."""
    workspace = Workspace(task_of(Kind.FIX))
    for name, arguments in (("read_file", '{"path": "no"}'), ("read_file", "["), ("drop", "{}"), ("read_file", "[]")):
        assert workspace.call(name, arguments).startswith("error: ")


def test_figures_have_their_intervals() -> None:
    """A failed conversation counts for nothing, one that was refused as not solved."""
    task = task_of(Kind.COUNT)
    cases = [
        Case(task, arm, repeat, Outcome(ending, solved=solved), Used(cost=cost))
        for arm, repeat, ending, solved, cost in (
            (Arm.WITHOUT, 1, Ending.ANSWERED, True, 1.0),
            (Arm.WITHOUT, 2, Ending.REFUSED, False, 2.0),
            (Arm.WITH, 1, Ending.ANSWERED, True, 0.5),
            (Arm.WITH, 2, Ending.ANSWERED, True, 1.0),
            (Arm.WITH, 3, Ending.FAILED, False, 9.0),
        )
    ]
    facts: Any = table(cases, [Arm.WITHOUT, Arm.WITH]).facts
    assert (1, 2) == (facts["without"]["solved"]["hits"], facts["without"]["solved"]["of"])
    assert (2, 2, 1, 0) == tuple(
        facts["with"][name] if name.startswith("solved_") else facts["with"]["solved"][name]
        for name in ("hits", "of", "solved_here_alone", "solved_without_alone")
    )
    assert {"mean": 0.5, "low": 0.5, "high": 0.5} == facts["with"]["billed_share_of_without"]
    assert {"mean": 1.5, "low": 1.0, "high": 2.0} == facts["without"]["billed_usd"]
