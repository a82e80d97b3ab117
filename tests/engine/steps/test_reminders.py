"""Reminders of an agent's framework next to tool results are no user's words: they go with their iterations."""

from __future__ import annotations

import json

import pytest

from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.trim.entries import Action
from prompt_sidecar.trim.presets import preset
from tests.conformance.table import CASES
from tests.engine.steps.test_words import AROUND, LIMIT, SHAPES
from tests.promises.engine import Engine

REMINDER = "<system-reminder>\n" + "Task {} is open: mind the list. " * 12 + "\n</system-reminder>\n"
ITERATIONS = 60


def prompt(format: str, text: str) -> bytes:
    """A run with a text beside each result, numbered."""
    shape = SHAPES[format]
    assert shape.beside is not None
    messages = [shape.text("user", "Find the fault.")]
    for number in range(ITERATIONS):
        messages += [shape.call(f"call_{number}"), shape.beside(f"call_{number}", text.replace("{}", str(number)))]
    return json.dumps(AROUND.get(format, {}) | {shape.member: messages}).encode()


@pytest.mark.parametrize("format", [name for name, shape in SHAPES.items() if shape.beside is not None])
def test_iterations_with_reminders_are_dropped(format: str) -> None:
    """Old reminders are clipped and can be fetched, and do not keep their iterations; words in their place do."""
    engine = Engine(limit=LIMIT)
    answer = engine.trim(format, prompt(format, REMINDER))
    assert answer.fits
    assert answer.prompt.body is not None
    assert [] == CASES[format].defects(json.loads(answer.prompt.body))
    gone = [trim for trim in answer.trimmed.trims if trim.kind is ItemKind.SNAPSHOT]
    assert {Action.CLIPPED, Action.DROPPED} <= {trim.action for trim in gone}
    assert REMINDER.replace("{}", "1").encode() in [engine.original(trim.stash_id) for trim in gone]
    assert json.dumps(REMINDER.replace("{}", str(ITERATIONS - 1))).encode() in answer.prompt.body
    words = Engine(limit=LIMIT).trim(format, prompt(format, "Mind rule {}."))
    assert Action.DROPPED not in {trim.action for trim in words.trimmed.trims}


@pytest.mark.parametrize(
    ("text", "reminder"),
    [
        ("<system-reminder>a</system-reminder>", True),
        ("\n <system-reminder>a</system-reminder>\n<system-reminder>b</system-reminder> ", True),
        ("<system-reminder>a</system-reminder> and you?", False),
        ("Look. <system-reminder>a</system-reminder>", False),
        ("<system-reminder>a</system-reminder> x <system-reminder>b</system-reminder>", False),
        ("<system-reminder>a", False),
        ("<other>a</other>", False),
        ("", False),
        (" \n", False),
    ],
)
def test_what_a_reminder_is(text: str, reminder: bool) -> None:
    """Only a text that is nothing but elements with such a tag."""
    assert reminder is preset("cache_first").is_reminder(text)


def test_other_tags() -> None:
    """The tags are set by the policy; without any there are no reminders."""
    text = "<hint>a</hint><note>b</note>"
    assert preset("cache_first").override({"reminder_tags": ["hint", "note"]}).is_reminder(text)
    assert not preset("cache_first").override({"reminder_tags": []}).is_reminder(text)
