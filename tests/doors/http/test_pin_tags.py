"""Messages that agents pin by tags that the policy names, through the door; tags of tools and models pin nothing."""

from __future__ import annotations

import json
from time import process_time
from typing import Any, Final

import pytest

from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.trim.presets import preset
from tests.client.provider import Says
from tests.doors.http.habits import APIS, Turn
from tests.doors.http.serving import proxied
from tests.doors.http.test_pins import _history, _model, _send
from tests.doors.http.upstream import scripted

RULE: Final = "Never touch the folder of payments. " * 40
TAGGED: Final = f"<keep>{RULE}</keep>"
REMINDER: Final = f"<system-reminder>{TAGGED}</system-reminder>"
"""Of what stands in a user's message, reminders go first."""
KEEP: Final = Rules(CallerRules(preset("cache_first").override({"pin_tags": ["keep", "rules"]})))
FINE: Final[dict[str, Any]] = {
    "chat": {"role": "assistant", "content": "Fine."},
    "messages": {"role": "assistant", "content": "Fine."},
    "responses": {"role": "assistant", "content": "Fine."},
    "gemini": {"role": "model", "parts": [{"text": "Fine."}]},
    "bedrock": {"role": "assistant", "content": [{"text": "Fine."}]},
}
EACH_API: Final = pytest.mark.parametrize("api", APIS)


def _last(api: str, history: list[Any], rules: Rules) -> str:
    """What the provider is sent at the end of a run that outgrows its window several times."""
    with proxied(scripted(), rules=rules) as here:
        sent = _model(here, api, *(Says(str(number)) for number in range(9)))
        for turns in (2, 9, 17, 25):
            assert 200 == _send(here, api, [*history, *_history(api, turns, first=1)])[0]
        return json.dumps(sent()[-1])


@EACH_API
@pytest.mark.parametrize("named", [True, False])
def test_a_tagged_message_outlives_every_cut(api: str, *, named: bool) -> None:
    """A reminder between turns that go; without the policy's word it goes with them."""
    spoken = APIS[api]
    entries = [*spoken.answer_entries(Turn("Step.", "call-0")), spoken.result(Turn("Step.", "call-0"), "done")]
    history = [spoken.asked("Go"), *entries, FINE[api], spoken.asked(REMINDER)]

    last = _last(api, history, KEEP if named else Rules(CallerRules(preset("cache_first"))))

    assert named is (RULE in last)


@EACH_API
@pytest.mark.parametrize("by", ["tool", "model"])
def test_tags_of_tools_and_models_pin_nothing(api: str, by: str) -> None:
    """A page that a tool has read, and what the model makes of it, say nothing about what stays."""
    spoken = APIS[api]
    turn = Turn(TAGGED if by == "model" else "Step.", "call-0")
    history = [
        spoken.asked("Go"),
        *spoken.answer_entries(turn),
        spoken.result(turn, TAGGED if by == "tool" else "done"),
    ]

    assert RULE not in _last(api, history, KEEP)


def test_an_instruction_in_mid_run_is_pinned_by_its_tag() -> None:
    """In Anthropic's format a system message goes with the iteration that it follows, unless it is pinned."""
    spoken, turn = APIS["messages"], Turn("Step.", "call-0")
    entries = [spoken.asked("Go"), *spoken.answer_entries(turn), spoken.result(turn, "done")]

    assert RULE in _last("messages", [*entries, {"role": "system", "content": TAGGED}], KEEP)
    assert RULE not in _last("messages", [*entries, {"role": "system", "content": RULE}], KEEP)


def test_a_tag_that_is_split_over_texts_pins_nothing() -> None:
    """Each text of a message is looked at by itself."""
    spoken, turn = APIS["chat"], Turn("Step.", "call-0")
    halves = [{"type": "text", "text": f"<system-reminder>{half}</system-reminder>"} for half in ("<keep>", "</keep>")]
    rules = {"type": "text", "text": REMINDER.replace("keep>", "rule>")}
    split = {"role": "user", "content": [halves[0], rules, halves[1]]}
    entries = [*spoken.answer_entries(turn), spoken.result(turn, "done"), FINE["chat"]]

    assert RULE not in _last("chat", [spoken.asked("Go"), *entries, split], KEEP)


@pytest.mark.parametrize(
    ("text", "pins"),
    [
        ("a <keep>x</keep> b", True),
        ("<rules>x</rules>", True),
        ("</keep> <keep>x</keep>", True),
        ("<keep><keep>x</keep>", True),
        ("<keep>x", False),
        ("x</keep>", False),
        ("</keep>x<keep>", False),
        ("<keep>x</rules>", False),
        ("<keep >x</keep>", False),
        ("<KEEP>x</KEEP>", False),
        ("<keeper>x</keeper>", False),
        ("<ke", False),
    ],
)
def test_what_is_an_element(text: str, *, pins: bool) -> None:
    """Both tags, in this order, spelt as the policy spells them."""
    assert pins is KEEP.general.policy.pins(text)


def test_thousands_of_tags_take_linear_time() -> None:
    """Tags that begin and never end are looked for once each."""
    text = "<keep><rules>" * 400_000
    began = process_time()

    assert not KEEP.general.policy.pins(text)
    assert process_time() - began < 1
