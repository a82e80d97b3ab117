"""docs/python-client.md has every public name, and its figures are the code's."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import prompt_sidecar.client
from prompt_sidecar.client import AsyncClient, AsyncRun, Client, Run
from prompt_sidecar.client.breaker import LONGEST_PAUSE, MISSES
from prompt_sidecar.client.fallback_rules import AS_GIVEN, KEPT_SHARE, LAST_PROMPT, LEFT_OUT
from prompt_sidecar.client.forwarding import MOST_REFUSALS
from prompt_sidecar.client.loop import MOST_TURNS
from prompt_sidecar.client.options import DEFAULT_FALLBACK_BYTES, Options

DOCUMENT = (Path(__file__).parents[2] / "docs" / "python-client.md").read_text(encoding="utf-8")
REFERENCE = DOCUMENT.split("\n## Reference\n")[1].split("\n## ")[0]


def named(text: str) -> set[str]:
    """Every name in what a text has between backticks."""
    spans = re.findall(r"`([^`\n]+)`", text)
    return {word for span in spans for word in re.findall(r"\w+", span)} | {span.removesuffix("s") for span in spans}


def public(kind: type[Any]) -> dict[str, Any]:
    """The methods and properties of a class that a program may use."""
    return {name: value for name, value in inspect.getmembers(kind) if not name.startswith("_")}


def test_every_public_name_is_in_the_reference() -> None:
    """What `prompt_sidecar.client` exports."""
    assert set() == set(prompt_sidecar.client.__all__) - named(REFERENCE)


@pytest.mark.parametrize("kind", [Client, AsyncClient, Run, AsyncRun])
def test_every_public_method_is_in_the_reference(kind: type[Any]) -> None:
    """With its arguments."""
    assert set() == set(public(kind)) - named(REFERENCE)
    for name, method in public(kind).items():
        if inspect.isfunction(method):
            assert (name, set()) == (name, set(inspect.signature(method).parameters) - {"self"} - named(REFERENCE))


def test_every_attribute_is_in_the_reference() -> None:
    """Those that a client and a run are given when they are made."""
    client = Client("127.0.0.1:1")
    for made in (client, client.run("r")):
        assert set() == {name for name in vars(made) if not name.startswith("_")} - named(REFERENCE)


def test_options_and_figures_are_the_codes() -> None:
    """Each option has its row; each word and each bound that a reader is told is the one in force."""
    assert set() == {field.name for field in fields(Options)} - named(DOCUMENT)
    assert {LAST_PROMPT, LEFT_OUT, AS_GIVEN} <= named(DOCUMENT)
    for figure in (
        f"brought down to {KEPT_SHARE * 100:.0f} %",
        f"at most {MOST_REFUSALS} times",
        f"After {MOST_TURNS} turns",
        f"{DEFAULT_FALLBACK_BYTES >> 20} MiB",
        f"at most {LONGEST_PAUSE:.0f} seconds",
        "After two calls in a row",
    ):
        assert figure in DOCUMENT
    assert 2 == MISSES
