"""Replaying an agent's conversation against a scripted provider, and counting what it refuses."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import fmean

from tests.conformance.bound_thinking import BoundThinking
from tests.conformance.conversations import (
    ANTHROPIC,
    CONVERSE,
    GEMINI,
    RESPONSES,
    Conversation,
    instructed,
    made,
    recorded,
    recorded_paths,
    thoughtful,
)
from tests.conformance.converse_thinking import ConverseThinking
from tests.conformance.providers import Cause, Provider, Refusal
from tests.conformance.reasoning_items import ReasoningItems
from tests.conformance.table import CASES
from tests.conformance.thought_signatures import ThoughtSignatures
from tests.conformance.turn_thinking import TurnThinking
from tests.conformance.wired_agents import STYLES
from tests.promises.engine import Engine

STRUCTURE = 8
"""Turns from one look at all else that the provider refuses to the next; it takes long."""
MADE = "made"
"""The name of the conversations that need no recorded data."""


@dataclass(frozen=True, slots=True)
class Judge:
    """A provider's rules, and what a request must name for them to hold."""

    format: str
    model: str
    provider: Callable[[], Provider]
    head: Mapping[str, object] = field(default_factory=dict)
    thinks: bool = False
    """Whether runs without thinking get some."""


_ADAPTIVE = {"thinking": {"type": "adaptive"}}
JUDGES: Mapping[str, Judge] = {
    "bound": Judge(ANTHROPIC, "claude-fable-5-1", BoundThinking, _ADAPTIVE, thinks=True),
    "converse": Judge(CONVERSE, "anthropic.claude-fable-5-1-v1:0", lambda: ConverseThinking("claude-fable-5-1")),
    "older": Judge(ANTHROPIC, "claude-opus-4-6", TurnThinking, _ADAPTIVE, thinks=True),
    "gemini": Judge(GEMINI, "gemini-3-pro-preview", ThoughtSignatures),
    "responses": Judge(RESPONSES, "gpt-5.4", ReasoningItems, {"store": True}),
    "responses-plain": Judge(RESPONSES, "gpt-5.4", lambda: ReasoningItems(ids=False), {"store": False}),
}


@dataclass(frozen=True, slots=True)
class Task:
    """One replay."""

    judge: str
    run: str
    preset: str
    share: float
    """The limit as a share of the run's size, as the sidecar counts it."""
    style: str


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one replay's prompts."""

    task: Task
    turns: int
    refused: int
    """Turns that were refused."""
    causes: Mapping[str, int]
    """Refused turns by the cause that comes first."""
    remarks: int
    """Turns in which something was advised against."""
    carried: float
    """Share of the reasoning given so far that a prompt carries, on average over the turns; 1 where none was given."""
    first: tuple[str, ...]
    """The first refusals, each with its turn."""
    seconds: float


def conversation(judge: Judge, name: str) -> Conversation:
    """A run as this judge's requests."""
    base, _, more = name.partition("+")
    if name.startswith(MADE):
        run = made(judge.format, judge.model, seed=int(base.removeprefix(MADE).strip("-") or 1))
        return instructed(run) if more else run
    run = recorded(recorded_paths()[base], judge.model, judge.head)
    return thoughtful(run) if more else run


def names(judge: Judge) -> list[str]:
    """The runs that a judge can look at: recorded ones, those without thinking with some, and a made one."""
    found = []
    for name in recorded_paths():
        run = conversation(judge, name) if _of(judge, name) else None
        if run is None:
            continue
        has = any(b'"signature"' in raw for step in run.steps for raw in step.answer)
        found.append(f"{name}+thinking" if judge.thinks and not has else name)
    return [*found, MADE]


def _of(judge: Judge, name: str) -> bool:
    short = {ANTHROPIC: "anthropic", GEMINI: "gemini_contents", RESPONSES: "openai_responses"}.get(judge.format, "")
    return recorded_paths()[name].name.split(".")[1] == short


def replayed(task: Task, *, keep: int = 3) -> Result:
    """Replay one run."""
    start = time.perf_counter()
    judge = JUDGES[task.judge]
    run, size, sound = _prepared(task.judge, task.run)
    provider = judge.provider()
    agent = STYLES[task.style](run, task.preset, int(task.share * size))
    causes: Counter[str] = Counter()
    remarks = given = 0
    shares: list[float] = []
    first: list[str] = []
    try:
        for number, step in enumerate(run.steps):
            body = agent.prompt(step.given)
            reply = provider.ask(body, step.answer)
            agent.took(reply.messages)
            refusals = list(reply.refusals)
            for other in agent.aside():
                refusals += provider.ask(other, ()).refusals
            if sound and (number % STRUCTURE == 0 or number == len(run.steps) - 1):
                refusals += structural(judge, body)
                refusals += worsened(run, number, body)
            shares += [reply.carried / given] if given else []
            given += reply.given
            remarks += bool(reply.remarks)
            if refusals:
                causes[refusals[0].cause.value] += 1
                if len(first) < keep:
                    first.append(f"turn {number}: {refusals[0]}")
    finally:
        agent.close()
    return Result(
        task=task,
        turns=len(run.steps),
        refused=sum(causes.values()),
        causes=dict(causes),
        remarks=remarks,
        carried=fmean(shares) if shares else 1.0,
        first=tuple(first),
        seconds=time.perf_counter() - start,
    )


@lru_cache(maxsize=2)
def _prepared(judge: str, name: str) -> tuple[Conversation, int, bool]:
    """A run, its size, and whether the provider's other rules take it as it was recorded."""
    run = conversation(JUDGES[judge], name)
    return run, size_of(run), not structural(JUDGES[judge], run.body(run.messages))


def size_of(run: Conversation) -> int:
    """Tokens of the whole run, as the sidecar counts them without having learned anything."""
    return Engine(limit=1 << 30).trim(run.format, run.body(run.messages), dry_run=True).tokens.before


def worsened(run: Conversation, number: int, body: bytes) -> list[Refusal]:
    """What of a prompt is worse than what the run has up to a step, though the provider takes it."""
    before = [raw for step in run.steps[:number] for raw in (*step.given, *step.answer)]
    sent = json.loads(run.body([*before, *run.steps[number].given]))
    return [Refusal(Cause.STRUCTURE, "", what) for what in CASES[run.format].worsened(sent, json.loads(body))]


def structural(judge: Judge, body: bytes) -> list[Refusal]:
    """What else the provider would refuse a body for."""
    return [Refusal(Cause.STRUCTURE, "", defect) for defect in CASES[judge.format].defects(json.loads(body))]
