"""What happened with tasks, search and recall, told from the agent's record: a few lines each, none wider than 80."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from prompt_sidecar.v1 import trim_pb2
from tests.lab.demo.agent import Agent, Exchange
from tests.lab.demo.investigation import EARLY_FILE, LONG_FILE, SEARCH
from tests.lab.demo.plan import COMPLETED, Task
from tests.lab.demo.script import OTHER_FILE, Notes

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
    yield from _told("tasks", _tasks(agent, exchanges[len(exchanges) // 2], len(exchanges) // 2 + 1, tick))
    yield from _told("a broken call", _broken(agent))
    yield from _told("a bad day", _BAD_DAY)
    yield from _told("a search", _searched(agent))
    yield from _told("recall", _recalled(agent, notes))


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


def _told(what: str, lines: Iterable[str]) -> Iterator[str]:
    for place, line in enumerate(lines):
        text = f"{_INDENT if place else what.ljust(_LABEL)}{line.rstrip()}"
        yield text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"
