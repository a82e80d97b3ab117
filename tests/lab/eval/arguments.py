"""What programs that ask a model share: the types of their arguments, and the model that the environment names."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.lab.eval.chat import Address
from tests.lab.harness.tables import sorry

WRONG_USE: Final = 2
"""The exit code."""
SKIPPED: Final = (
    "{program}: skipped, as no model is given. Set EVAL_BASE_URL (such as http://127.0.0.1:8000/v1), EVAL_MODEL and, "
    "if it wants one, EVAL_API_KEY; `python -m tests.lab.{program} --help` explains the rest."
)


def whole(least: int, most: int = sys.maxsize) -> Callable[[str], int]:
    """A whole number within bounds; commas may group its digits."""

    def read(text: str) -> int:
        value = int(text.replace(",", ""))
        if not least <= value <= most:
            bound = f"at least {least:,}" if value < least else f"at most {most:,}"
            raise argparse.ArgumentTypeError(f"{text} is out of bounds; it may be {bound}")
        return value

    read.__name__ = "whole number"  # argparse names the type in its message
    return read


def seconds(text: str) -> float:
    """Seconds that one request may take."""
    value = float(text)
    if not 0 < value <= 3_600:
        raise argparse.ArgumentTypeError(f"{text} is not over 0 and at most 3600")
    return value


def members(text: str) -> dict[str, Any]:
    """Members for the request body, as a JSON object; null takes one away."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not value.keys().isdisjoint({"messages", "model", "tools", "stream"}):
        raise argparse.ArgumentTypeError("it must be a JSON object without messages, model, tools or stream")
    return value


def address_or_code(program: str, environment: Mapping[str, str] | None) -> Address | int:
    """Return the model that the variables name; or the exit code of a program that can ask none, and why is printed.

    The key leaves this process's own variables: servers that the program starts have no business with it.

    Args:
        program: its name, which is its module's, too.
        environment: the variables; None: this process's.
    """
    given = os.environ if environment is None else environment
    if not given.get("EVAL_BASE_URL"):
        print(SKIPPED.format(program=program))
        return 0
    address = Address(given["EVAL_BASE_URL"], given.get("EVAL_MODEL", ""), given.get("EVAL_API_KEY", ""))
    if problem := address.problem():
        return sorry(program, problem, WRONG_USE)
    if environment is None:
        os.environ.pop("EVAL_API_KEY", None)
    return address
