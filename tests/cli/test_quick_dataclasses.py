"""Dataclasses made for a quick start: they do what the library's own do."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from prompt_sidecar.cli import quick_dataclasses


def _classes() -> Sequence[Any]:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Slotted:
        text: str
        others: Sequence[Any] = ()
        hidden: int = dataclasses.field(default=1, repr=False)

    @dataclasses.dataclass(frozen=True)
    class Plain:
        number: int

    @dataclasses.dataclass(frozen=True)
    class More(Plain):
        further: float = 0.5

    class Derived(Plain):
        pass

    @dataclasses.dataclass(frozen=True, slots=True)
    class Empty:
        pass

    @dataclasses.dataclass
    class Changed:
        items: list[Any]

    circle = Changed([])
    circle.items.append(circle)
    return [Slotted("a", (Plain(1),)), Plain(2), More(3), Derived(4), Empty(), circle]


def _outcome(act: Callable[[], object]) -> object:
    try:
        return act()
    except Exception as error:  # noqa: BLE001 - compared, whatever it is
        return type(error), str(error)


def _behaviour(made: Sequence[Any]) -> Sequence[object]:
    names = ("text", "number", "further", "items", "new")
    return [
        [
            repr(each),
            *(_outcome(partial(setattr, each, name, 1)) for name in names),
            *(_outcome(partial(delattr, each, name)) for name in names),
            getattr(each, "__dict__", None),
            type(each).__setattr__.__qualname__,
            type(each).__repr__.__qualname__,
        ]
        for each in made
    ]


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What is replaced in the library is put back after the test."""
    for name in ("_frozen_get_del_attr", "_repr_fn"):
        if hasattr(dataclasses, name):
            monkeypatch.setattr(dataclasses, name, getattr(dataclasses, name))
    return monkeypatch


@pytest.mark.usefixtures("restored")
def test_the_same_answers_and_errors() -> None:
    """Classes made by closures answer and refuse as those of the library, by inheritance and in circles too."""
    expected = _behaviour(_classes())
    assert (sys.version_info < (3, 13)) is quick_dataclasses.use()
    assert expected == _behaviour(_classes())


def test_another_library(restored: pytest.MonkeyPatch) -> None:
    """Where the library's private functions have other parameters, they stay as they are."""

    def other(_class: type, _fields: object) -> None:
        raise AssertionError

    restored.setattr(dataclasses, "_repr_fn", other, raising=False)
    before = vars(dataclasses).get("_frozen_get_del_attr")
    assert not quick_dataclasses.use()
    assert (other, before) == (vars(dataclasses)["_repr_fn"], vars(dataclasses).get("_frozen_get_del_attr"))
