"""`make eval`: start the server, hold the conversations, show what came of them."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final

import grpc
from rich.console import Console

from tests.lab.eval.agent import Agent, Bounds, Budget, BudgetSpent, Cue, Ending, Record
from tests.lab.eval.arguments import address_or_code, members, seconds, whole
from tests.lab.eval.chat import Chat, ChatError
from tests.lab.eval.report import Case, by_kind, case_facts, description, graded, summary
from tests.lab.eval.tasks import LIMIT, Kind, Task, tasks
from tests.lab.harness.processes import NotStarted
from tests.lab.harness.servers import Server, sidecar
from tests.lab.harness.tables import INTERRUPTED, console, show, sorry, write_facts

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

    add("--tasks", TASKS, whole(1), "N", "tasks of each kind")
    add("--repeats", REPEATS, whole(1), "N", "times that each task is asked, with the cue and without")
    add("--limit", None, whole(1), "N", "at most so many conversations; the first ones are of all kinds")
    add("--seed", 1, whole(0), "N", "another seed makes other tasks, the same seed the same")
    parser.add_argument(
        "--kinds", nargs="+", type=Kind, choices=list(Kind), metavar="KIND", help=f"some of: {', '.join(Kind)}"
    )
    add("--turns", TURNS, whole(1), "N", "requests that a conversation may take")
    add("--reply-tokens", REPLY_TOKENS, whole(16, LIMIT), "N", "tokens of one reply, sent as max_tokens")
    add("--budget", BUDGET, whole(1), "TOKENS", "of all conversations together, in and out; past it the eval stops")
    add("--seconds", SECONDS, seconds, "S", f"that one request may take (default: {SECONDS:g})")
    parser.add_argument("--body", type=members, default={}, metavar="JSON", help="members for the request body")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the facts there too, one entry a conversation")
    return parser.parse_args(arguments)


_USUAL_CALLS: Final = 2.5
"""Requests of a model that recalls at once, over all kinds."""
_BYTES_PER_TOKEN: Final = 3
_SIDECAR: Final = "the sidecar:"
_FAILURES: Final = 3
"""Conversations that may fail in a row; then it is the endpoint, not the task."""
_WIDTH: Final = 110


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run the eval.

    Args:
        arguments: the command line; None: this process's.
        environment: the variables; None: this process's.

    Returns:
        The exit code: 0 done or skipped, 1 the endpoint or the server failed, 2 wrong use, 130 interrupted.
    """
    asked = options(arguments)
    address = address_or_code("eval", environment)
    if isinstance(address, int):
        return address
    chat = Chat(address, asked.seconds)
    server: Server | None = None
    try:
        # With a key that follows from the seed, ids do as well: the same seed sends the same first prompts.
        server = sidecar({"KEY": sha256(f"eval {asked.seed}".encode()).hexdigest()})
        return evaluate(asked, chat, server)
    except NotStarted as error:
        return sorry("eval", str(error))
    except grpc.RpcError as error:
        return sorry("eval", f"a call of the sidecar failed: {error}\n{server.last_words if server else ''}")
    except KeyboardInterrupt:  # before the first conversation, or while the facts are written
        return INTERRUPTED
    finally:
        if server is not None:
            server.kill()


def evaluate(asked: argparse.Namespace, chat: Chat, server: Server) -> int:
    """Hold the conversations through a server that runs, and report; return the exit code."""
    plan = list(islice(_plan(asked), asked.limit))
    to = console(_WIDTH)
    to.print(_described_plan(asked, chat, plan), markup=False, soft_wrap=True)
    budget = Budget(asked.budget)
    agent = Agent(server.stub, chat, Bounds(asked.turns, asked.reply_tokens, asked.body), budget)
    cases: list[Case] = []
    why, code = "", 0
    started = time.monotonic()
    try:
        for case in _held(agent, plan):
            cases.append(case)
            done = time.monotonic() - started
            left = done / len(cases) * (len(plan) - len(cases))
            line = f"{len(cases):>4}/{len(plan)}  {done:>5.0f} s, {left:.0f} s to go  {description(case)}"
            print(line, file=sys.stderr, flush=True)
            if why := _why_stop(cases):
                code = 1
                break
    except BudgetSpent:
        why = f"the next request could pass the budget of {budget.total:,} tokens (--budget)"
    except KeyboardInterrupt:
        why, code = "interrupted", INTERRUPTED
    if why:
        print(f"eval: stopped after {len(cases)} of {len(plan)} conversations: {why}", file=sys.stderr)
    if any(case.record.error.startswith(_SIDECAR) for case in cases):
        print(f"The end of the server's log:\n{server.last_words}", file=sys.stderr)
    totals = {
        "model": chat.address.model,
        "seed": asked.seed,
        "limit_tokens": LIMIT,
        "planned": len(plan),
        "tokens_used": budget.spent,
        "tried_again": chat.tried_again,
    }
    reported = _report(asked, to, cases, totals)
    return code or reported


def _held(agent: Agent, plan: Sequence[tuple[Task, Cue, int]]) -> Iterator[Case]:
    """Hold the conversations, one after another; one that fails is told, and the next begins.

    Raises:
        BudgetSpent: the tokens are used up.
    """
    for task, cue, repeat in plan:
        record = Record()
        try:
            agent.converse(task, cue, f"{task.kind} {task.number} {cue} {repeat}", record)
        except ChatError as error:
            record.error, record.hopeless = str(error), error.hopeless
        except grpc.RpcError as error:
            details = getattr(error, "details", None)  # the types do not say that it is a Call, too
            record.error = f"{_SIDECAR} {details() if details else error}"
        yield Case(task, cue, repeat, record)


def _why_stop(cases: Sequence[Case]) -> str:
    """Why there is no use in going on; empty: there is."""
    newest = cases[-_FAILURES:]
    if cases[-1].record.hopeless or (
        len(newest) == _FAILURES and all(case.record.ending is Ending.FAILED for case in newest)
    ):
        return cases[-1].record.error
    return ""


def _plan(asked: argparse.Namespace) -> Iterator[tuple[Task, Cue, int]]:
    """All conversations. Those with the cue and without stand side by side, so that a cut or a bad hour hits both."""
    for repeat in range(1, asked.repeats + 1):
        for task in tasks(asked.seed, asked.tasks, asked.kinds or tuple(Kind)):
            for cue in Cue:
                yield task, cue, repeat


def _described_plan(asked: argparse.Namespace, chat: Chat, plan: Sequence[tuple[Task, Cue, int]]) -> str:
    sizes = [min(len(json.dumps(list(task.messages))) // _BYTES_PER_TOKEN, LIMIT) for task, _, _ in plan]
    most = min(asked.budget, len(plan) * asked.turns * (LIMIT + asked.reply_tokens))
    return (
        f"{len(plan)} conversations with {chat.address.model}, at most {asked.turns} requests each; "
        f"about {round(_USUAL_CALLS * sum(sizes)):,} tokens with a model that recalls at once, "
        f"at most some {most:,} (--budget)"
    )


def _report(asked: argparse.Namespace, to: Console, cases: Sequence[Case], totals: Mapping[str, Any]) -> int:
    """Print the tables and write the facts; return 1 if they could not be written or there are none."""
    sections = [by_kind(cases), summary(cases)]
    to.print()
    for section in sections if graded(cases) else []:
        show(section, to)
    used, again = totals["tokens_used"], totals["tried_again"]
    to.print(f"{used:,} tokens used; {again} requests tried again", markup=False)
    if asked.json:
        facts = {
            **totals,
            **{section.name: section.facts for section in sections},
            "conversations": [case_facts(case) for case in cases],
        }
        try:
            write_facts(asked.json, facts)
        except OSError as error:
            return sorry("eval", f"the facts cannot be written to {asked.json}: {error.strerror}")
    return 0 if graded(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
