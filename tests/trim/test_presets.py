"""Presets: each differs from the default one where it says so, with a reason, and nowhere in vain."""

from __future__ import annotations

import pytest

from prompt_sidecar.config.explain import inert
from prompt_sidecar.trim.policy import KNOBS, Policy
from prompt_sidecar.trim.presets import DEFAULT_PRESET, EXPLAINED


def test_the_default_preset_is_the_default_of_every_knob() -> None:
    """It differs in nothing, so that a knob's default has one source."""
    assert Policy() == EXPLAINED[DEFAULT_PRESET].policy
    assert {} == EXPLAINED[DEFAULT_PRESET].reasons


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_preset_has_a_reason_for_what_differs(name: str) -> None:
    """A reason for each field that differs, and for no other; none of these fields is without effect."""
    preset = EXPLAINED[name]
    differing = {field for field, knob in KNOBS.items() if getattr(preset.policy, field) != knob.default}
    assert differing == set(preset.reasons)
    assert set() == differing & set(inert(preset.policy))
    assert all(why.endswith(".") for why in preset.reasons.values())


@pytest.mark.parametrize("name", EXPLAINED)
@pytest.mark.parametrize("field", KNOBS)
def test_kinds_accept_what_presets_hold(name: str, field: str) -> None:
    """A preset's value passes the knob's check, and comes out of a settings file as it was."""
    held = getattr(EXPLAINED[name].policy, field)
    assert held == KNOBS[field].kind.check(held)
    assert held == KNOBS[field].kind.read(held)
