"""`make live`: run the tasks with a real model in each arm, and show what the sidecar changes."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from prompt_sidecar.facts.known_models import Models
from prompt_sidecar.facts.money import ModelPrice, Money
from prompt_sidecar.guard.ceilings import Price
from tests.lab.eval.arguments import address_or_code, members, seconds, whole
from tests.lab.eval.chat import Address, Chat
from tests.lab.harness.figures import in_turns
from tests.lab.harness.processes import NotStarted
from tests.lab.harness.servers import LOCAL, sidecar
from tests.lab.harness.tables import INTERRUPTED, console, show, sorry, write_facts
from tests.lab.live.agent import Arm, Bounds, Ending, Outcome, converse
from tests.lab.live.relay import Relay
from tests.lab.live.report import Case, facts_of, progress, table
from tests.lab.live.tasks import QUICK, Size, Task, tasks

HELP: Final = """\
Has an agent work on small tasks whose end a program can check, with a model of yours, four times each:

  without    the agent asks the provider itself
  with       through the sidecar by its defaults, in a window of --window tokens
  ceiling    through the sidecar, in the model's own window, with policy.ceiling_tokens = --ceiling
  safe       as "with", and policy.condense = "safe"

It prints which share was solved, what was billed (by the provider's own count and the catalogue's prices), how many
calls that took, and how often the model got something back. A task takes 20 to 60 tool calls, whose results together
are some times larger than the window. The model is any that speaks OpenAI's chat completions with tools. Set

  EVAL_BASE_URL   its address up to /chat/completions, such as https://api.openai.com/v1
  EVAL_MODEL      its name there
  EVAL_API_KEY    its key, if it wants one; the sidecar does not see it

It costs money. The plan, printed first, has an estimate; --plan prints it and stops. --budget ends the trial early, and
what was done until then is shown. Where the catalogue has no price for the model, give --prices INPUT,CACHED,OUTPUT in
dollars for a million tokens; without, the budget is in tokens (--token-budget).

  make live EVAL_BASE_URL=https://api.openai.com/v1 EVAL_API_KEY=… EVAL_MODEL=gpt-5-mini LIVE="--plan"
  make live … LIVE="--tasks 4 --budget 1 --json live.json"       a first look
  make live … LIVE="--repeats 3 --json live.json"                narrower intervals
  python -m tests.lab.live.scripted                              serves a scripted model, to try it for nothing

Members of the request body that a model wants otherwise are set with --body, where null takes one away:

  --body '{"max_tokens": null, "max_completion_tokens": 4000, "reasoning_effort": "low"}'
"""
TASKS: Final = 12
QUICK_TASKS: Final = 4
WINDOW: Final = 32_000
QUICK_WINDOW: Final = 12_000
TURNS: Final = 80
"""A task takes 20 to 60 tool calls, mostly one a turn."""
REPLY_TOKENS: Final = 2_000
BUDGET: Final = 10.0
TOKEN_BUDGET: Final = 20_000_000
SECONDS: Final = 180.0
_CHARS_A_TOKEN: Final = 3.0
"""Of the tasks' files, which are full of numbers and ids."""
_CALL_TOKENS: Final = 60
_OUTPUT_TOKENS: Final = 120
"""Of one answer that calls a tool and notes something; reasoning comes on top."""
_TRIMMED: Final = 0.7
"""Share of the window that prompts have on average once they are trimmed: between 0.44 and 0.95 of it."""
_WRITTEN: Final = 1.5
"""How often a token is read that is in no cache: once as new, and some again after each cut."""
_FAILURES: Final = 3
_WIDTH: Final = 150


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.live", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def add(flag: str, default: object, kind: Callable[[str], object], name: str, about: str) -> None:
        shown = "" if default is None else f" (default: {default:,})"
        parser.add_argument(flag, type=kind, default=default, metavar=name, help=about + shown)

    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_TASKS} smaller tasks in a window of {QUICK_WINDOW:,}"
    )
    add("--tasks", None, whole(1), "N", f"how many, of four kinds in turns; default: {TASKS}")
    add("--repeats", 1, whole(1), "N", "times that each task is done in each arm")
    parser.add_argument(
        "--arms", nargs="+", type=Arm, choices=list(Arm), default=list(Arm), metavar="ARM", help=f"of {', '.join(Arm)}"
    )
    add("--limit", None, whole(1), "N", "at most so many conversations")
    add("--seed", 1, whole(0), "N", "another seed makes other tasks, the same seed the same")
    add("--window", None, whole(4_000), "TOKENS", f"that the sidecar takes the model to have; default: {WINDOW:,}")
    add("--ceiling", None, whole(2_000), "TOKENS", "of prompts in the arm ceiling; default: as --window")
    add("--turns", TURNS, whole(1), "N", "requests that a conversation may take")
    add("--reply-tokens", REPLY_TOKENS, whole(16), "N", "tokens of one reply, sent as max_tokens")
    add("--budget", BUDGET, _dollars, "DOLLARS", "of all conversations together; past it the trial stops")
    add("--token-budget", TOKEN_BUDGET, whole(1), "TOKENS", "the same where the model has no price")
    parser.add_argument("--prices", type=_prices, metavar="IN,CACHED,OUT", help="dollars for a million tokens")
    add("--seconds", SECONDS, seconds, "S", "that one request may take")
    parser.add_argument("--body", type=members, default={}, metavar="JSON", help="members for the request body")
    parser.add_argument("--plan", action="store_true", help="print the plan and what it may cost, and stop")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the facts there too, one entry a conversation")
    asked = parser.parse_args(arguments)
    asked.tasks = asked.tasks or (QUICK_TASKS if asked.quick else TASKS)
    asked.window = asked.window or (QUICK_WINDOW if asked.quick else WINDOW)
    asked.ceiling = asked.ceiling or asked.window
    return asked


def _dollars(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not over 0 and at most 1,000,000")
    return value


def _prices(text: str) -> Price:
    try:
        plain, cached, output = (float(part) for part in text.split(","))
        return Price(input=plain, cached=cached, output=output)
    except ValueError:
        raise argparse.ArgumentTypeError("it must be three prices, such as 0.25,0.025,2") from None


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run the trial.

    Args:
        arguments: the command line; None: this process's.
        environment: the variables; None: this process's.

    Returns:
        The exit code: 0 done or skipped, 1 the endpoint or a server failed, 2 wrong use, 130 interrupted.
    """
    asked = options(arguments)
    address = address_or_code("live", environment)
    if isinstance(address, int):
        return address
    price = ModelPrice(asked.prices) if asked.prices else Money(models=Models()).of(address.model)
    plan = list(_plan(asked))
    print(_described(asked, address.model, plan, price), flush=True)
    if asked.plan:
        return 0
    try:
        return _trial(asked, address, plan, price)
    except NotStarted as error:
        return sorry("live", str(error))
    except KeyboardInterrupt:  # while servers are started or the facts are written
        return INTERRUPTED


def _plan(asked: argparse.Namespace) -> Iterator[tuple[Task, Arm, int]]:
    """All conversations. The arms of one task follow one another, so that a bad hour meets all of them."""
    made = tasks(asked.seed, asked.tasks, QUICK if asked.quick else Size())
    each = ((task, arm, repeat) for repeat in range(1, asked.repeats + 1) for at, task in enumerate(made)
            for arm in in_turns(asked.arms, at + 1))  # fmt: skip
    for place, one in enumerate(each):
        if asked.limit is None or place < asked.limit:
            yield one


def _described(
    asked: argparse.Namespace, model: str, plan: Sequence[tuple[Task, Arm, int]], price: ModelPrice | None
) -> str:
    """The plan for people, with what it is expected to take."""
    calls = read = fresh = 0.0
    for task, arm, _ in plan:
        whole = task.chars / _CHARS_A_TOKEN + task.calls * _CALL_TOKENS
        calls += task.calls
        most = {Arm.WITHOUT: whole, Arm.CEILING: asked.ceiling * _TRIMMED}.get(arm, asked.window * _TRIMMED)
        read += task.calls * min(whole / 2, most)
        fresh += whole
    output = calls * _OUTPUT_TOKENS
    text = (
        f"{len(plan)} conversations with {model}: {asked.tasks} tasks, arms {', '.join(asked.arms)}, repeats "
        f"{asked.repeats}; about {calls:,.0f} requests, {read / 1e6:.1f} million tokens in and {output / 1e6:.2f} out. "
    )
    if price is None:
        return f"{text}The catalogue has no price for it (--prices); at most {asked.token_budget:,} tokens."
    without = price.base.of(plain=read, output=output)
    plain = min(_WRITTEN * fresh, read)
    cached = price.base.of(plain=plain, cached=read - plain, output=output)
    return (
        f"{text}About ${cached:.2f} where the provider caches, ${without:.2f} where it does not, and any reasoning "
        f"in addition; at most ${asked.budget:.2f} (--budget)."
    )


def _trial(
    asked: argparse.Namespace, address: Address, plan: Sequence[tuple[Task, Arm, int]], price: ModelPrice | None
) -> int:
    """Hold the conversations, and report; return the exit code."""
    budget = asked.token_budget if price is None else asked.budget
    cases: list[Case] = []
    why, code = "", 0
    with ExitStack() as stack:
        relay = stack.enter_context(Relay(Chat(address, asked.seconds), price, budget))
        urls = {
            arm: f"{stack.enter_context(_door(arm, relay.url, asked))}/v1"
            for arm in asked.arms
            if arm is not Arm.WITHOUT
        }
        urls[Arm.WITHOUT] = f"{relay.url}/v1"
        began = time.monotonic()
        try:
            for one in plan:
                cases.append(_held(relay, one, Address(urls[one[1]], address.model, "none"), asked))
                spent = time.monotonic() - began
                left = spent / len(cases) * (len(plan) - len(cases))
                line = f"{len(cases):>4}/{len(plan)}  {spent:>5.0f} s, {left:.0f} s to go  {progress(cases[-1])}"
                print(line, file=sys.stderr, flush=True)
                if why := _why_stop(relay, cases):
                    code = 0 if relay.over_budget else 1
                    break
        except KeyboardInterrupt:
            why, code = "interrupted", INTERRUPTED
    if why:
        print(f"live: stopped after {len(cases)} of {len(plan)} conversations: {why}", file=sys.stderr)
    section = table(cases, asked.arms)
    counted = any(case.outcome.ending.counts for case in cases)
    if counted:
        show(section, console(_WIDTH))
    unit = f"{relay.spent:,.0f} tokens" if price is None else f"${relay.spent:.4f}"
    print(f"{unit} in all")
    facts = {
        "model": address.model,
        "seed": asked.seed,
        "window": asked.window,
        "ceiling": asked.ceiling,
        "planned": len(plan),
        "stopped": why,
        section.name: section.facts,
        "conversations": [facts_of(case) for case in cases],
    }
    try:
        write_facts(asked.json, facts)
    except OSError as error:
        return sorry("live", f"the facts cannot be written to {asked.json}: {error.strerror}")
    return code or (0 if counted else 1)


def _held(relay: Relay, one: tuple[Task, Arm, int], address: Address, asked: argparse.Namespace) -> Case:
    """Hold one conversation."""
    task, arm, repeat = one
    used = relay.begin()
    name = f"{asked.seed}-{task.name}-{arm}-{repeat}"
    headers = {} if arm is Arm.WITHOUT else {"x-prompt-sidecar-run": name}
    if arm in (Arm.WITH, Arm.SAFE):
        headers["x-prompt-sidecar-context-window"] = str(asked.window + asked.reply_tokens)
    # A request of the agent may hold several of the sidecar's, of which each may be tried again.
    bounds = Bounds(asked.turns, asked.reply_tokens, asked.seconds * 8, asked.body)
    outcome: Outcome = converse(task, name, address, headers, bounds)
    if relay.over_budget:
        outcome.ending, outcome.solved = Ending.FAILED, False
    return Case(task, arm, repeat, outcome, used)


def _why_stop(relay: Relay, cases: Sequence[Case]) -> str:
    """Why there is no use in going on; empty: there is."""
    if relay.over_budget:
        return "the budget is used up (--budget, --token-budget)"
    newest = cases[-_FAILURES:]
    if relay.hopeless or (len(newest) == _FAILURES and all(each.outcome.ending is Ending.FAILED for each in newest)):
        return relay.hopeless or cases[-1].outcome.error
    return ""


class _Door:
    """A sidecar with an HTTP door for one arm. A context manager that gives its base URL, without /v1."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._server = sidecar(settings, "--http", LOCAL, listen="")

    def __enter__(self) -> str:
        return self._server.address

    def __exit__(self, *_: object) -> None:
        self._server.kill()


def _door(arm: Arm, upstream: str, asked: argparse.Namespace) -> _Door:
    settings = {
        "http.openai_upstream": upstream,
        "telemetry.metrics_listen": "",
        "key": f"of the trial, seed {asked.seed}",
    }
    if arm is Arm.CEILING:
        settings["policy.ceiling_tokens"] = str(asked.ceiling)
    if arm is Arm.SAFE:
        settings["policy.condense"] = "safe"
    return _Door(settings)


if __name__ == "__main__":
    sys.exit(main())
