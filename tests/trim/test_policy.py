"""Policies: every knob within its bounds, presets as they are named, errors that name the field."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.errors import InvalidPolicy
from prompt_sidecar.trim.policy import BOUNDS, KNOBS, FitStage, NotePlace, Policy
from prompt_sidecar.trim.presets import DEFAULT_PRESET, PRESETS, preset
from tests.oracle.strategies import policies
from tests.prompt.reading import fault


def test_every_field_is_declared() -> None:
    """A field without a declaration could be set to anything and would stand in no document."""
    assert [field.name for field in fields(Policy)] == list(KNOBS)
    assert {name for name, knob in KNOBS.items() if type(knob.default) in (int, float)} == set(BOUNDS)


@pytest.mark.parametrize("name", KNOBS)
def test_every_knob_is_explained(name: str) -> None:
    """It says what it does, and why its default is what it is."""
    assert KNOBS[name].what.endswith(".")
    assert KNOBS[name].why.endswith(".")


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_are_within_bounds(name: str) -> None:
    """What a preset says, an override may say too."""
    policy = preset(name)
    values = {field.name: getattr(policy, field.name) for field in fields(Policy)}
    assert policy == Policy().override(values)


def test_presets_differ_in_when_they_trim() -> None:
    """The default trims in batches; the two others are the plain rules by themselves."""
    assert "cache_first" == DEFAULT_PRESET
    assert Policy() == preset("cache_first")
    assert (FitStage.OLDEST_FIRST, 0.95, 0.44) == (Policy().fit_stage, Policy().fit_high, Policy().fit_low)
    assert FitStage.OFF == preset("cap_only").fit_stage
    fit_only = preset("fit_only")
    assert (FitStage.LARGEST_FIRST, 0.9, 0.9) == (fit_only.fit_stage, fit_only.fit_high, fit_only.fit_low)


def test_no_such_preset() -> None:
    """The error names the presets that there are."""
    with pytest.raises(InvalidPolicy, match="cache_first, lean, cap_only, fit_only") as caught:
        preset("lean_and_mean")
    assert "policy.preset" == caught.value.field


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_bounds_are_inclusive(name: str) -> None:
    """The bounds are values; just outside them is not."""
    low, high = BOUNDS[name]
    partner = {"fit_low": {"fit_high": 1.0}, "fit_residue_low": {"fit_residue_high": 1.0},
               "fit_high": {"fit_low": 0.01}, "fit_residue_high": {"fit_residue_low": 0.0}}.get(name, {})  # fmt: skip
    for value in (low, high):
        assert value == getattr(Policy().override(partner | {name: value}), name)
    step: float = 1 if isinstance(low, int) else 1e-9
    for value in (low - step, high + step):
        with pytest.raises(InvalidPolicy, match=name) as caught:
            Policy().override(partner | {name: value})
        assert f"policy.{name}" == caught.value.field


@pytest.mark.parametrize("name", sorted(BOUNDS))
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True, "1", None, [1], 10**400])
def test_no_numbers(name: str, value: Any) -> None:
    """What is no number within bounds is refused by the field's name, whatever it is."""
    with pytest.raises(InvalidPolicy) as caught:
        Policy().override({name: value})
    assert f"policy.{name}" == caught.value.field


def test_whole_numbers() -> None:
    """A knob of bytes, tokens or iterations takes no fraction; a share takes a whole number."""
    with pytest.raises(InvalidPolicy, match="whole number"):
        Policy().override({"cap_text_bytes": 2_048.0})
    share = Policy().override({"fit_high": 1}).fit_high
    assert (1.0, float) == (share, type(share))


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [("fit_stage", "sideways", "off, oldest_first, largest_first"), ("note_place", 3, "off, tail")],
)
def test_an_unknown_choice_is_refused_with_those_there_are(name: str, value: object, accepted: str) -> None:
    """A choice that there is not is refused with those that there are."""
    with pytest.raises(InvalidPolicy, match=accepted) as caught:
        Policy().override({name: value})
    assert f"policy.{name}" == caught.value.field


def test_choices_by_name() -> None:
    """A choice is given by its value."""
    policy = Policy().override({"fit_stage": "off", "note_place": "off"})
    assert (FitStage.OFF, NotePlace.OFF) == (policy.fit_stage, policy.note_place)


def test_no_such_field() -> None:
    """A field that there is not is refused with those that there are."""
    with pytest.raises(InvalidPolicy, match="cap_text_bytes") as caught:
        Policy().override({"fit.high": 0.5})
    assert "policy.fit.high" == caught.value.field


@pytest.mark.parametrize(("low", "high"), [("fit_low", "fit_high"), ("fit_residue_low", "fit_residue_high")])
def test_marks_in_order(low: str, high: str) -> None:
    """A low-water mark is at most the high-water mark, whichever of them is overridden."""
    for values in ({low: 0.8, high: 0.7}, {low: 0.995}, {low: 0.02, high: 0.01}):
        with pytest.raises(InvalidPolicy) as caught:
            Policy().override(values)
        assert f"policy.{low}" == caught.value.field
    assert 0.7 == getattr(Policy().override({low: 0.7, high: 0.7}), low)


@given(policies())
def test_any_policy_within_bounds_is_taken(values: dict[str, Any]) -> None:
    """An override changes what it names and nothing else."""
    found: list[Policy] = []
    refused = fault(lambda: found.append(Policy().override(values)))
    assert refused in (None, "policy.fit_low", "policy.fit_residue_low")
    for policy in found:
        for field in fields(Policy):
            assert values.get(field.name, getattr(Policy(), field.name)) == getattr(policy, field.name)


@given(st.dictionaries(st.text(max_size=5), st.none() | st.text(max_size=3), min_size=1, max_size=2))
def test_anything_else_is_refused(values: dict[str, Any]) -> None:
    """Nothing but InvalidPolicy comes of nonsense."""
    with pytest.raises(InvalidPolicy):
        Policy().override(values)
