"""Every knob and preset is told, once, and docs/policy.md says what the code says."""

from __future__ import annotations

from dataclasses import fields

import pytest

from prompt_sidecar.config.effective import inert
from prompt_sidecar.config.knobs import KNOBS, groups, reader
from prompt_sidecar.config.presets import GUIDES, differs
from prompt_sidecar.trim.policy import PRESETS, Policy
from tests.config.policy_page import BLOCK, BLOCKS, PAGE, remade

FIELDS = [field.name for field in fields(Policy)]


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_of_the_policy_is_told(name: str) -> None:
    """A knob that was added has its words in `config/knobs.py`: what it does, and why its default."""
    assert name in KNOBS, f"policy field {name} has no row in KNOBS of sidecar/prompt_sidecar/config/knobs.py"
    assert KNOBS[name].what.endswith(".")
    assert KNOBS[name].why.endswith(".")


def test_no_knob_is_told_that_is_not_there() -> None:
    """A field that was removed takes its words along."""
    assert set() == set(KNOBS) - set(FIELDS)


def test_every_knob_stands_in_a_stage() -> None:
    """Each is in one group, none in the last, which catches what no stage names."""
    shown = [name for group in groups() for name in group.knobs]
    assert sorted(FIELDS) == sorted(shown)
    assert [] == [name for group in groups() if not group.about for name in group.knobs]


@pytest.mark.parametrize("name", FIELDS)
def test_readers_take_what_presets_hold(name: str) -> None:
    """A preset's value passes the knob's reader and the policy's own check, and comes out as it was."""
    for policy in PRESETS.values():
        held = getattr(policy, name)
        assert held == reader(name).read(held)
        assert policy == policy.override({name: reader(name).read(held)})


def test_every_preset_is_told() -> None:
    """Each has its guide, in the order of the presets."""
    assert list(PRESETS) == list(GUIDES)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_a_reason_for_what_differs(name: str) -> None:
    """A reason for each field that differs from cache_first, and for no other; none of them is idle."""
    differing = {field for field in FIELDS if differs(name, field)}
    assert differing == set(GUIDES[name].reasons)
    assert set() == differing & set(inert(PRESETS[name]))


def test_the_page_is_current() -> None:
    """The generated blocks of docs/policy.md say what the code says; all of them stand in it."""
    page = PAGE.read_text(encoding="utf-8")
    assert sorted(BLOCKS) == sorted(found[2] for found in BLOCK.finditer(page))
    assert page == remade(page), "run python -m tests.config.policy_page"
