"""Types of arguments that programs share which ask a model: argparse calls them, and shows what they raise."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any


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
