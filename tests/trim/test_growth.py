"""The work of all evaluations of a run grows with its history, whatever that is: counted in steps, not in time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim.entries import Feedback
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.presets import preset
from tests.steps import growth
from tests.trim.histories import Fold, plain, record_of

TIMES = 4
MOST = 1.5 * TIMES
"""Steps for four times the history: some grow with its logarithm too. What is quadratic takes sixteen times as many."""
ITERATIONS = 60
WORDS = "twenty words of one who talks with an agent, and is answered in as many, over and over again, all day long"


def _talk(number: int) -> list[plain]:
    """Users and the model take turns."""
    user, model = plain(Role.USER, ((ItemKind.TEXT, WORDS),)), plain(Role.ASSISTANT, ((ItemKind.TEXT, WORDS),))
    return [user, model] * number


def _calls(number: int) -> list[plain]:
    """Calls, each with its result."""
    made = [plain(Role.USER, ((ItemKind.TEXT, "go"),))]
    for index in range(number):
        made += [_call(f"{index}"), _result(f"{index}")]
    return made


def _chained(number: int) -> list[plain]:
    """Each call is answered one iteration late, so that none of them can go without all others."""
    made = [plain(Role.USER, ((ItemKind.TEXT, "go"),)), _call("0")]
    for index in range(number):
        made += [_call(f"{index + 1}"), _result(f"{index}")]
    return [*made, _result(f"{number}")]


def _rejected(number: int) -> list[plain]:
    """Each iteration ends with a short feedback and with words of the user, so that each is alone in its stretch."""
    made = [plain(Role.USER, ((ItemKind.TEXT, "go"),))]
    for _ in range(number):
        made += [plain(Role.ASSISTANT, ((ItemKind.TEXT, WORDS),)), plain(Role.USER, ((ItemKind.TEXT, WORDS),))]
        made.append(plain(Role.USER, ((ItemKind.TEXT, "Invalid."),)))
    return made


def _rejected_at_once(number: int) -> list[plain]:
    """All feedback comes in one iteration."""
    made = [plain(Role.USER, ((ItemKind.TEXT, "go"),)), plain(Role.ASSISTANT, ((ItemKind.TEXT, WORDS),))]
    made += [plain(Role.USER, ((ItemKind.TEXT, f"Invalid. {WORDS}"),))] * number
    return made + [plain(Role.ASSISTANT, ((ItemKind.TEXT, WORDS),)), plain(Role.USER, ((ItemKind.TEXT, "go"),))] * 5


def _unanswered(number: int) -> list[plain]:
    """No call is answered."""
    return [plain(Role.USER, ((ItemKind.TEXT, "go"),)), *(_call(f"{index}") for index in range(number))]


def _many_results(number: int) -> list[plain]:
    """One message holds all results."""
    made = plain(Role.USER, ((ItemKind.TEXT, "go"),))
    calls = tuple(map(str, range(number)))
    asked = plain(Role.ASSISTANT, tuple((ItemKind.ARGUMENTS, "{}") for _ in calls), calls=calls)
    return [made, asked, plain(Role.TOOL, tuple((ItemKind.RESULT, WORDS * 20) for _ in calls), answers=calls)]


def _large_results(number: int) -> list[plain]:
    """Results that are worth eliding."""
    made = [plain(Role.USER, ((ItemKind.TEXT, "go"),))]
    for index in range(number):
        made += [_call(f"{index}"), _result(f"{index}", WORDS * 15), plain(Role.USER, ((ItemKind.TEXT, WORDS),))]
    return made


def _huge_results(number: int) -> list[plain]:
    """Results that are clipped before smaller ones, and small ones between them."""
    made = [plain(Role.USER, ((ItemKind.TEXT, "go"),))]
    for index in range(number):
        made += [_call(f"{index}"), _result(f"{index}", WORDS * (45 if index % 2 else 1))]
    return made


def _beside(number: int) -> list[plain]:
    """A user speaks beside each result, so that no iteration can go without the words."""
    made = [plain(Role.USER, ((ItemKind.TEXT, "go"),))]
    for index in range(number):
        items = ((ItemKind.RESULT, WORDS), (ItemKind.TEXT, WORDS))
        made += [_call(f"{index}"), plain(Role.USER, items, answers=(f"{index}",))]
    return made


def _pasted(number: int) -> list[plain]:
    """A user pastes long texts, and every other call is answered one iteration late."""
    made = [plain(Role.USER, ((ItemKind.TEXT, "go"),))]
    for index in range(0, number, 2):
        made += [_call(f"{index}"), plain(Role.USER, ((ItemKind.TEXT, WORDS * 15),)), _call(f"{index + 1}")]
        made += [_result(f"{index}"), _result(f"{index + 1}"), plain(Role.USER, ((ItemKind.TEXT, WORDS),))]
    return made


def _call(call_id: str) -> plain:
    return plain(Role.ASSISTANT, ((ItemKind.ARGUMENTS, '{"path": "a"}'),), calls=(call_id,))


def _result(call_id: str, text: str = WORDS) -> plain:
    return plain(Role.TOOL, ((ItemKind.RESULT, text),), answers=(call_id,))


SHAPES: Mapping[str, Callable[[int], list[plain]]] = {
    "talk": _talk,
    "calls": _calls,
    "chained": _chained,
    "rejected": _rejected,
    "rejected at once": _rejected_at_once,
    "unanswered": _unanswered,
    "many results": _many_results,
    "large results": _large_results,
    "huge results": _huge_results,
    "beside results": _beside,
    "pasted": _pasted,
}
LIMITS = ("fixed", "one batch", "many batches")
POLICIES: Mapping[str, Policy] = {
    name: preset(name).override({"feedback_validation": ["Invalid."]}) for name in ("cache_first", "lean", "fit_only")
}


class Noted(Fold):
    """A fold that knows feedback, as the run's recorder does."""

    def take(self, upto: int | None = None) -> None:
        """Take what is new, evaluating before each assistant message and at the end."""
        for index in range(len(self.ledger), len(self.messages) if upto is None else upto):
            message = self.messages[index]
            if message.role is Role.ASSISTANT and len(self.ledger):
                self.evaluate()
            record = record_of(message, index, self.ledger.chain)
            for entry, (_, text) in zip(record.entries, message.items, strict=True):
                if message.role is Role.USER and text.startswith("Invalid."):
                    entry.feedback = Feedback.VALIDATION
            self.ledger.append(record)
        self.evaluate()


@pytest.mark.parametrize(
    ("shape", "limit", "policy"),
    [
        (shape, limit, [*POLICIES][(row + column) % len(POLICIES)])
        for row, shape in enumerate(SHAPES)
        for column, limit in enumerate(LIMITS)
    ],
)
def test_a_run_costs_in_proportion_to_its_length(shape: str, limit: str, policy: str) -> None:
    """Four times the iterations take about four times the steps: with a small window, and with one that grows too.

    Each shape with each limit, and with each policy once.
    """
    share = {"one batch": 0.95, "many batches": 0.3}.get(limit, 0.0)

    def run(number: int) -> None:
        messages = SHAPES[shape](number)
        whole = sum(record.tokens for record in Fold(messages, 0).fresh())
        Noted(messages, max(int(share * whole), 400), POLICIES[policy]).take()

    assert growth(run, ITERATIONS, TIMES, "trim") <= MOST
