"""What a test needs of the machine: where a component cannot be had, it is skipped with the reason; in CI it fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from tests.lab.harness.components import Missing


def need(component: Callable[[], Path]) -> Path:
    """Return a component's path."""
    try:
        return component()
    except Missing as error:
        lack(str(error))


def lack(reason: str) -> NoReturn:
    """End a test that the machine has not got what it needs for."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must have every component: {reason}")
    pytest.skip(reason)
