"""What the eval is asked to do: the command line, with its bounds, and the help that teaches it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.lab.eval.tasks import LIMIT, Kind

HELP: Final = """\
Asks a model questions whose answers it has lost sight of, and counts how often it gets them back.

Each question stands at the end of a made-up history that is trimmed by a real server on this machine. The answer lies
in an elided middle, or many iterations back, in some tasks beside an injected order ("bait"); in the controls it is in
sight. The model has the sidecar's tools. Each task is asked with the cue at the prompt's tail and without.

The model is any that speaks OpenAI's chat completions with tools. Set

  EVAL_BASE_URL   its address up to /chat/completions, such as http://127.0.0.1:8000/v1
  EVAL_MODEL      its name there
  EVAL_API_KEY    its key, if it wants one

It costs what the model costs: the plan, printed first, names the most tokens that it can take. Try it with --limit 8.
Members of the request body that a model wants otherwise are set with --body, where null takes one away:

  --body '{"temperature": 0}'
  --body '{"max_tokens": null, "max_completion_tokens": 4000}'
"""
TASKS: Final = 2
"""Of each kind; one with each form of bait."""
REPEATS: Final = 2
TURNS: Final = 8
"""Requests a conversation: a model that recalls at once takes two or three, one that turns pages five."""
REPLY_TOKENS: Final = 2_000
SECONDS: Final = 120.0
BUDGET: Final = 3_000_000
"""Tokens: the default plan with a model that takes four calls a conversation."""


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; None: this process's. Ends the process with a message where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.eval", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def add(flag: str, default: object, kind: Callable[[str], object], name: str, about: str) -> None:
        shown = "" if default is None else f" (default: {default:,})" if isinstance(default, int) else ""
        parser.add_argument(flag, type=kind, default=default, metavar=name, help=about + shown)

    add("--tasks", TASKS, _whole(1), "N", "tasks of each kind")
    add("--repeats", REPEATS, _whole(1), "N", "times that each task is asked, with the cue and without")
    add("--limit", None, _whole(1), "N", "at most so many conversations; the first ones are of all kinds")
    add("--seed", 1, _whole(0), "N", "another seed makes other tasks, the same seed the same")
    parser.add_argument(
        "--kinds", nargs="+", type=Kind, choices=list(Kind), metavar="KIND", help=f"some of: {', '.join(Kind)}"
    )
    add("--turns", TURNS, _whole(1), "N", "requests that a conversation may take")
    add("--reply-tokens", REPLY_TOKENS, _whole(16, LIMIT), "N", "tokens of one reply, sent as max_tokens")
    add("--budget", BUDGET, _whole(1), "TOKENS", "of all conversations together, in and out; past it the eval stops")
    add("--seconds", SECONDS, _seconds, "S", f"that one request may take (default: {SECONDS:g})")
    parser.add_argument("--body", type=_members, default={}, metavar="JSON", help="members for the request body")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the facts there too, one entry a conversation")
    return parser.parse_args(arguments)


def _whole(least: int, most: int = sys.maxsize) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text.replace(",", ""))
        if not least <= value <= most:
            bound = f"at least {least:,}" if value < least else f"at most {most:,}"
            raise argparse.ArgumentTypeError(f"{text} is out of bounds; it may be {bound}")
        return value

    read.__name__ = "whole number"  # argparse names the type in its message
    return read


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 3_600:
        raise argparse.ArgumentTypeError(f"{text} is not over 0 and at most 3600")
    return value


def _members(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not value.keys().isdisjoint({"messages", "model", "tools", "stream"}):
        raise argparse.ArgumentTypeError("it must be a JSON object without messages, model, tools or stream")
    return value
