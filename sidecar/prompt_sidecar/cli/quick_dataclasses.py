"""Dataclasses that are made faster, for a server's start.

`dataclasses` compiles the source of six functions for each frozen class, and the server has some 330 such classes: a
sixth of the processor time of its start. Three of the functions are never on a call's way: `__setattr__`,
`__delattr__` and `__repr__`. Here they are closures, with the same answers and errors, which nothing compiles; that
saves 60 to 80 ms of 960 (Python 3.11). What reads and makes instances is left as it is.

The two functions that are replaced are private to Python 3.11 and 3.12. Where their parameters differ, as from 3.13
on, which compiles a class's functions at once, nothing is replaced.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from reprlib import recursive_repr
from typing import Any, Final

_REPLACED: Final = {"_frozen_get_del_attr": ["cls", "fields", "globals"], "_repr_fn": ["fields", "globals"]}
"""Each replaced function of `dataclasses`, with its parameters."""


def use() -> bool:
    """Have all classes that are made from now on use closures; return whether this Python allows it."""
    for name, parameters in _REPLACED.items():
        function = getattr(dataclasses, name, None)
        if function is None or list(inspect.signature(function).parameters) != parameters:
            return False
    vars(dataclasses).update(_frozen_get_del_attr=_frozen, _repr_fn=_repr)
    return True


def _frozen(cls: Any, fields: Sequence[dataclasses.Field[Any]], _: object) -> tuple[Callable[..., None], ...]:
    """`__setattr__` and `__delattr__` of a frozen class."""
    names = frozenset(field.name for field in fields)

    def __setattr__(self: object, name: str, value: object) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__


def _repr(fields: Sequence[dataclasses.Field[Any]], _: object) -> Callable[..., str]:
    names = [field.name for field in fields]

    @recursive_repr()
    def __repr__(self: object) -> str:  # noqa: N807
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({shown})"

    return __repr__
