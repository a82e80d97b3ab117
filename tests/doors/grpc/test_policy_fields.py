"""The protocol's policy has the core's knobs: each as a field of the right type, whose comment states the range."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.trim.policy import BOUNDS, KNOBS
from prompt_sidecar.trim.presets import PRESETS
from prompt_sidecar.v1 import policy_pb2

PROTO = Path(__file__).parents[3] / "protos" / "prompt_sidecar" / "v1" / "policy.proto"
FIELDS: dict[str, Any] = dict(policy_pb2.Policy.DESCRIPTOR.fields_by_name)
NOT_IN_REQUESTS = {"fit_stage"}
"""A request chooses what happens above the mark by its preset."""


def _comments() -> dict[str, str]:
    """The comment of each field of the message Policy, on one line."""
    body = PROTO.read_text(encoding="utf-8").partition("message Policy {")[2].partition("\n}")[0]
    found = re.findall(r"((?:  //[^\n]*\n)+)  (?:optional )?\w+ (\w+) = \d+;", body)
    return {name: " ".join(line.strip(" /") for line in comment.splitlines()) for comment, name in found}


def _names(enum: Any, prefix: str) -> set[str]:
    return {value.name.removeprefix(prefix).lower() for value in enum.values if value.number}


def test_every_knob_is_a_field() -> None:
    """And every field a knob, but for the preset."""
    assert set(KNOBS) - NOT_IN_REQUESTS == set(FIELDS) - {"preset"}
    assert set(PRESETS) == _names(FIELDS["preset"].enum_type, "PRESET_")


@pytest.mark.parametrize("name", sorted(set(KNOBS) - NOT_IN_REQUESTS))
def test_a_field_has_the_type_of_its_knob(name: str) -> None:
    """A whole number is an int32 that holds its bounds, a share a double, and a choice an enum with the same names."""
    field, default = FIELDS[name], KNOBS[name].default
    match default:
        case bool():
            assert field.type == field.TYPE_BOOL
        case StrEnum():
            assert {str(each) for each in type(default)} == _names(field.enum_type, f"{name.upper()}_")
        case int():
            assert field.type == field.TYPE_INT32
            assert -(2**31) <= BOUNDS[name][0] <= BOUNDS[name][1] < 2**31
        case float():
            assert field.type == field.TYPE_DOUBLE
        case _:
            assert "Prefixes" == field.message_type.name


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_a_comment_states_the_range(name: str) -> None:
    """As the core has it, so that a client's author need not try."""
    assert KNOBS[name].kind.accepted.rpartition(" from ")[2] in _comments()[name]


def test_the_comment_on_prefixes_states_their_bounds() -> None:
    """The same of the lists of texts."""
    message = PROTO.read_text(encoding="utf-8").partition("message Prefixes")[0].splitlines()[-1]
    _, most, low, high = re.split(r"\D+", KNOBS["feedback_error"].kind.accepted)[:4]
    assert f"at most {most}, each of {low} to {high} characters" in message
