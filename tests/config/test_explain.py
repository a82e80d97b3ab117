"""What is said of a policy holds in the stages; what makes little sense is told, and plain presets are not blamed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from prompt_sidecar.config.explain import ages, inert, report, sentences, warnings
from prompt_sidecar.config.settings import load
from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim.entries import Reason
from prompt_sidecar.trim.policy import KNOBS, AgeStage, Arguments, FitStage, Policy
from prompt_sidecar.trim.presets import PRESETS, preset
from tests.trim.histories import decisions, evaluated, few, histories, limits, plain

WINDOW = 128_000

VALUES: dict[str, list[Any]] = {
    "age_stage": list(AgeStage),
    "fit_stage": list(FitStage),
    "age_repeats": [True, False],
    "age_arguments": list(Arguments),
    "fit_keep_light": [0.0, 0.1, 1.0],
    "age_hard_cap_iterations": [0, 2, 5],
    "fit_low": [0.3, 0.9],
    "fit_high": [0.9, 0.95],
    "fit_head_share": [0.0, 1.0],
    "fit_keep_oldest": [0.0, 0.3, 1.0],
    "price_cached": [0.0, 0.5, 1.0],
    "price_written": [0.5, 1.0],
    "fit_residue_high": [0.2, 0.4],
    "fit_residue_low": [0.0, 0.03],
    **{name: [0, 1, 4] for name in KNOBS if name.startswith("age_keep_")},
}


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Policies whose knobs are mostly at a preset's value."""
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=4))
    return draw(st.sampled_from(list(PRESETS.values()))).override(
        {name: draw(st.sampled_from(VALUES[name])) for name in names}
    )


@few
@given(histories(), limits, policies(), st.data())
def test_what_is_reported_as_without_effect_changes_nothing(
    messages: list[plain], limit: int, policy: Policy, data: st.DataObject
) -> None:
    """Any other value of such a field gives the same decisions."""
    idle = sorted(set(inert(policy)) & set(VALUES))
    assume(idle)
    name = data.draw(st.sampled_from(idle))
    other = data.draw(st.sampled_from(VALUES[name]))
    assume(name != "age_stage" or other is not AgeStage.ALWAYS)
    as_it_is = decisions(evaluated(messages, limit, policy).ledger)
    assert as_it_is == decisions(evaluated(messages, limit, policy.override({name: other})).ledger)


@few
@given(histories(), limits, policies())
def test_ages_and_fits_as_explained(messages: list[plain], limit: int, policy: Policy) -> None:
    """Nothing is done for a reason that the sentences rule out."""
    text = " ".join(sentences(policy, limit))
    ledger = evaluated(messages, limit, policy).ledger
    reasons = {entry.reason for record in ledger.records for entry in record.entries if entry.action}
    reasons |= {record.dropped_for for record in ledger.records if record.dropped}
    if "Nothing is clipped for its age." in text:
        assert Reason.AGE not in reasons
        assert "" == ages(policy)
    if "No prompt is made to fit" in text:
        assert not reasons & {Reason.FIT, Reason.RESIDUE}
    if "leaves of the older one a pointer" not in text:
        assert Reason.REPEATED not in reasons


def test_what_ageing_leaves_stays_where_nothing_is_made_to_fit() -> None:
    """Ageing at every call clips; only fitting drops whole iterations because their remains take room."""
    turn = [plain(Role.ASSISTANT), plain(Role.USER, ((ItemKind.TEXT, "be careful"),))]
    messages = [plain(Role.USER, ((ItemKind.TEXT, "line of log"),)), *turn * 8]
    ageing, fitting = (
        Policy(age_stage=AgeStage.ALWAYS, fit_stage=stage) for stage in (FitStage.OFF, FitStage.OLDEST_FIRST)
    )

    assert [] == [record for record in evaluated(messages, 60, ageing).ledger.records if record.dropped]
    assert any(record.dropped for record in evaluated(messages, 60, fitting).ledger.records)


@pytest.mark.parametrize("name", PRESETS)
def test_plain_presets_make_sense(name: str) -> None:
    """No warning for a preset as it is."""
    assert [] == list(warnings(PRESETS[name], {}, name, WINDOW))


@pytest.mark.parametrize(
    ("base", "values", "words"),
    [
        ("lean", {"registry_share": 0.01}, "set it to 0, as lean does"),
        ("lean", {"fit_stage": "off"}, "nothing makes it fit"),
        ("lean", {"age_keep_results": 0}, "the newest iteration's tool results may be clipped before"),
        ("lean", {"age_hard_cap_iterations": 2}, "drops iterations that are to be kept, up to 3"),
        ("lean", {"age_hard_cap_iterations": 4, "age_keep_images": 9}, "up to 9 of them for images"),
        ("cache_first", {"fit_low": 0.8}, "fit_low, 0.8, is close to fit_high, 0.95"),
        ("cache_first", {"fit_high": 1.0}, "leaves nothing for what an estimate may be wrong by"),
        ("cache_first", {"age_stage": "off", "fit_stage": "off"}, "neither age nor fit trims anything"),
        ("cache_first", {"fit_stage": "off"}, "neither age nor fit trims anything"),
        ("cache_first", {"age_repeats": True}, "policy.age_repeats is set and changes nothing: age_stage is pressure"),
        ("cap_only", {"fit_low": 0.3}, "policy.fit_low is set and changes nothing: fit_stage is off"),
        ("cap_only", {"age_stage": "pressure"}, "there is no pressure while fit_stage is off"),
        ("cache_first", {"note_place": "off", "note_max_tokens": 90}, "note_max_tokens is set and changes nothing"),
        ("cache_first", {"note_place": "off", "registry_share": 0.0}, "only from markers"),
        ("cache_first", {"cap_text_bytes": 1 << 20}, "about 262,144 tokens"),
        ("cache_first", {"feedback_error": ["I"]}, "with which a person's text may begin too"),
        ("cache_first", {"feedback_error": ["Validation feedback: no"]}, "which feedback_validation takes first"),
    ],
)
def test_what_makes_little_sense_is_reported(base: str, values: dict[str, Any], words: str) -> None:
    """Each combination has a warning that names the setting and what would make sense."""
    found = warnings(preset(base).override(values), values, base, WINDOW)
    assert any(words in warning for warning in found), found


def test_a_value_that_is_the_presets_own_is_not_blamed() -> None:
    """A file that spells out a preset is no reason to warn."""
    given_values = {"fit_low": 0.44, "age_keep_iterations": 3}
    assert [] == list(warnings(preset("cap_only").override(given_values), given_values, "cap_only", WINDOW))


def test_numbers_of_a_kind_are_reported() -> None:
    """Kinds that keep another number of iterations are named with it."""
    policy = preset("lean").override({"age_keep_results": 5, "age_keep_images": 1})
    assert any("of tool results 5 iterations, images 1 iteration stay" in each for each in sentences(policy, WINDOW))


@few
@given(policies(), st.integers(256, 2_000_000))
def test_any_policy_can_be_explained(policy: Policy, limit: int) -> None:
    """Sentences and warnings are texts without gaps for whatever policy."""
    values = {name: getattr(policy, name) for name in KNOBS}
    for text in (*sentences(policy, limit), *warnings(policy, values, "cache_first", limit)):
        assert "None" not in text
        assert "  " not in text.strip()


def test_the_report_says_where_each_field_comes_from() -> None:
    """The preset's source and that of every field; the limit of the figures is the default window."""
    flags = {"policy.preset": "fit_only", "policy.fit_head_share": "0.25", "limits.default_window": "10000"}
    lines = report(load({}, flags=flags))
    assert "The policy is preset fit_only (--set policy.preset), with:" == lines[0]
    assert "  fit_head_share = 0.25, in place of 0.5 (--set policy.fit_head_share)" == lines[1]
    assert "a limit of 10,000 tokens" in lines[2]
    assert any("(9,000 tokens)" in line for line in lines)
