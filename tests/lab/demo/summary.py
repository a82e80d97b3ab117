"""The end of the demo: what the run came to in tokens and prices, what happened in it, and what was checked.

What it would have cost at a provider with a prompt cache is told beside other ways to trim. One ruler for all: a
message counts as cached if it and all before it are the bytes of the prompt before. What happened with tasks, search
and recall is told from the agent's record: a few lines each, none wider than 80.
"""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console

from prompt_sidecar.v1 import trim_pb2
from tests.lab.demo.agent import Agent, Exchange
from tests.lab.demo.checks import Check, Findings
from tests.lab.demo.investigation import EARLY_FILE, LONG_FILE, SEARCH
from tests.lab.demo.plan import COMPLETED, Task
from tests.lab.demo.script import OTHER_FILE, Notes
from tests.oracle.baselines import Control, cost, trim_every_call
from tests.oracle.tokens import count
from tests.promises.judge import prompt_of, sized


@dataclass(frozen=True, slots=True)
class Costs:
    """Prices of a whole run, in those of plain tokens."""

    sidecar: float
    untrimmed: float
    """Never trimming, were the window large enough."""
    every_call: float
    """Dropping the oldest to the limit, afresh at each call."""
    control: float
    """Dropping the oldest to half of the limit, and remembering the cut; what is dropped is gone."""
    over: int
    """Prompts of the run that are over the limit untrimmed."""


def costs(exchanges: Sequence[Exchange]) -> Costs:
    """Lay the ruler to all of a run's prompts."""
    limit = exchanges[0].answer.tokens.limit
    sent = [sized(prompt_of(exchange.body)) for exchange in exchanges]
    # Other ways to trim know the messages only: what tools and fields take is kept free for them.
    fields = sum(count(value.decode()) for value in exchanges[0].sent.fields.values())
    control = Control(limit - fields)
    return Costs(
        sidecar=cost([prompt_of(exchange.answer.json_body).entries() for exchange in exchanges]),
        untrimmed=cost([[message.entry for message in prompt] for prompt in sent]),
        every_call=cost([trim_every_call(prompt, limit - fields) for prompt in sent]),
        control=cost([control.prompt(prompt) for prompt in sent]),
        over=sum(exchange.answer.tokens.before > limit for exchange in exchanges),
    )


WIDTH = 80
_LABEL = 16
"""Characters before the first line of each part, as in the figures."""
_INDENT = " " * 4
_HEAD_LINES = 3
"""Lines of the search's answer before the first quote: the sidecar's own."""
_ANSWER_LINES = 14
"""Lines of it that are shown: to where the first quote holds what was looked for."""


def story(agent: Agent, exchanges: Sequence[Exchange], notes: Notes, tick: str) -> Iterator[str]:
    """Tell it; `tick` marks what is done."""
    yield from _section("tasks", _tasks(agent, exchanges[len(exchanges) // 2], len(exchanges) // 2 + 1, tick))
    yield from _section("a broken call", _broken(agent))
    yield from _section("a bad day", _BAD_DAY)
    yield from _section("a search", _searched(agent))
    yield from _section("recall", _recalled(agent, notes))


_BAD_DAY = (
    "a command's output forged a marker, a registry and orders",
    "It named two ids, and the agent tried both in vain.",
)


def _tasks(agent: Agent, halfway: Exchange, iteration: int, tick: str) -> Iterator[str]:
    ticked = sum(task.status == COMPLETED for task in agent.plan)
    yield f"{len(agent.plan)} created, {ticked} ticked off"
    for task in agent.plan:
        yield _state(task, tick)
    yield f"Halfway, at iteration {iteration}, the prompt's note said:"
    for piece in halfway.answer.own_text:
        if piece.kind == trim_pb2.OWN_TEXT_KIND_NOTE:
            yield from (f"| {line}" for line in piece.text.splitlines())
    for forgotten in filter(None, agent.completion):
        named = ", ".join(str(number) for number in forgotten)
        yield f"Asked before the end, GetRun named task {named}: the model had forgotten it."


def _state(task: Task, tick: str) -> str:
    when = f"iterations {task.begun}-{task.ended}" if task.status == COMPLETED else task.status
    return f"{tick if task.status == COMPLETED else '-'} {task.number:>2} {task.text:<50}{when}"


def _broken(agent: Agent) -> Iterator[str]:
    for each in agent.answered:
        if each.call.written:
            yield f"{each.call.name}({each.call.written} … was answered:"
            yield from _whole(each.answer.content.splitlines())
            yield "The model made its next call like the example."


def _searched(agent: Agent) -> Iterator[str]:
    for each in agent.answered:
        if each.call.name == SEARCH:
            yield f"at iteration {each.iteration}, for: {each.call.arguments['query']}"
            lines = each.answer.content.splitlines()
            yield from _whole(lines[:_HEAD_LINES])
            yield from (f"| {line}" for line in lines[_HEAD_LINES:_ANSWER_LINES])


def _recalled(agent: Agent, notes: Notes) -> Iterator[str]:
    sources = (
        (notes.searched_id, "the search", EARLY_FILE, notes.searched_fact, "… "),
        (notes.fact_id, "the registry", LONG_FILE, notes.fact, "interleave = "),
        (notes.other_id, "a label", OTHER_FILE, notes.other_fact, "_sigint_wait_secs = "),
    )
    found = [source for source in sources if source[3]]
    yield f"{len(found)} facts that were not in the prompt"
    for stash_id, source, path, fact, before in found:
        answers = [each for id, each in agent.recalled if id == stash_id]
        shown = sum(len(each.answer.recalled.content) for each in answers)
        calls = "1 call" if len(answers) == 1 else f"{len(answers)} calls"
        yield f"{path}:{fact[0]}: {before}{fact[1]}"
        yield f"{_INDENT}by id {stash_id} from {source}, {calls}, {shown:,} bytes"


def _whole(lines: Iterable[str]) -> Iterator[str]:
    """Lines that the sidecar wrote: none of their words is lost, as may be with quoted ones."""
    for line in lines:
        yield from textwrap.wrap(line, WIDTH - len(_INDENT), initial_indent="| ", subsequent_indent="|   ")


def _section(what: str, lines: Iterable[str]) -> Iterator[str]:
    for place, line in enumerate(lines):
        text = f"{_INDENT if place else what.ljust(_LABEL)}{line.rstrip()}"
        yield text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


_COMPLAINTS_SHOWN = 3
"""Complaints shown of one check; a check that fails at every call would fill the screen."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the demo came to."""

    exchanges: Sequence[Exchange]
    agent: Agent
    notes: Notes
    originals: int
    """Originals of the run that were fetched back."""
    seconds: float


def print_summary(console: Console, outcome: Outcome, found: Findings) -> None:
    """Print it all; what trimming saved is checked here, where it is computed."""
    price = costs(outcome.exchanges)
    found.equal(Check.PRICE, "is cheapest", True, price.sidecar < min(price.untrimmed, price.every_call))
    good, bad = _marks(console.encoding)
    for text in [*_figures(outcome, price), *story(outcome.agent, outcome.exchanges, outcome.notes, good)]:
        console.print(text, markup=False, soft_wrap=True)
    console.print()
    for check in Check:
        complaints = found.complaints[check]
        if complaints:
            console.print(f"{bad} {check}", style="bold red", markup=False, soft_wrap=True)
            for complaint in complaints[:_COMPLAINTS_SHOWN]:
                console.print(f"    {complaint}", markup=False, soft_wrap=True)
            if len(complaints) > _COMPLAINTS_SHOWN:
                console.print(f"    and {len(complaints) - _COMPLAINTS_SHOWN} more")
        elif not found.made[check]:
            console.print(f"{bad} {check}: it was not checked", style="bold red", markup=False, soft_wrap=True)
        else:
            console.print(f"{good} {check}", style="green", markup=False, soft_wrap=True)
    verdict = "all checks passed" if found.passed else "THE DEMO FAILED"
    console.print(f"\n{verdict}: {sum(found.made.values()):,} comparisons", style="bold", markup=False)


def _marks(encoding: str) -> tuple[str, str]:
    """A tick and a cross, in words where they cannot be written."""
    try:
        "✓✗".encode(encoding)
    except UnicodeEncodeError:
        return "ok    ", "FAILED"
    return "✓", "✗"


def _figures(outcome: Outcome, price: Costs) -> Iterator[str]:
    exchanges = outcome.exchanges
    answers = [exchange.answer for exchange in exchanges]
    sent, returned = sum(each.tokens.before for each in answers), sum(each.tokens.after for each in answers)
    own = sum(each.tokens.own_text for each in answers)
    milliseconds = sorted(exchange.seconds * 1_000 for exchange in exchanges)
    yield ""
    yield f"iterations      {len(exchanges)}, in {outcome.seconds:.1f} s with all checks"
    over = sum(not answer.fits for answer in answers)
    limit = answers[0].tokens.limit
    yield f"limit           {limit:,} tokens; over it were {price.over} prompts as sent, {over} as returned"
    yield f"tokens          {sent:,} sent, {returned:,} returned ({returned / sent:.0%}), {own / returned:.1%} own text"
    yield f"batch points    {answers[-1].cache.batch_points}; {outcome.originals} originals taken out, all fetched back"
    yield (
        f"call            {statistics.median(milliseconds):.1f} ms at the median, {milliseconds[-1]:.1f} ms at most, "
        "over gRPC"
    )
    yield "price           0.1 × kept + 1.25 × rewritten tokens, never trimming = 100 %"
    for what, price_of in (
        ("this run", price.sidecar),
        ("dropping the oldest to the limit at every call", price.every_call),
        ("dropping them to half of it, in batches, for good", price.control),
    ):
        yield f"                {price_of / price.untrimmed:>5.0%}  {what}"
