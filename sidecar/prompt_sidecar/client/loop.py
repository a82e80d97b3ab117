"""The loop behind `complete`: lets the model use the sidecar's tools without code in the agent.

In each turn the history is trimmed, the model called, its usage reported, and calls of the sidecar's tools answered by
the sidecar. The loop ends when the model answers, or calls one of the agent's tools. If the sidecar is down, the model
gets its last prompt and the messages since; its calls of the sidecar's tools are answered with a text that says that
they are unreachable.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from prompt_sidecar.client.engine import Engine, Steps
from prompt_sidecar.client.facts import Trimmed
from prompt_sidecar.client.model_calls import ModelCall
from prompt_sidecar.client.turns import Continuation, Turn, answered, offer, only_theirs, taken, with_values
from prompt_sidecar.providers.sdk import SdkApi

MOST_TURNS: Final = 12
"""Model calls in one run of the loop. A model needs one to three to find what it misses; one that still calls the
sidecar's tools after twelve is in a loop, and the agent should see it."""
Answer: TypeAlias = Callable[[Continuation, frozenset[str]], Generator[Any, Any, tuple[Any, Trimmed[dict[str, Any]]]]]


@dataclass(frozen=True, slots=True)
class Completion:
    """The result of `complete`."""

    response: Any
    """The last response, the SDK's own object."""
    calls: tuple[ModelCall, ...]
    """Calls of the agent's own tools, which the agent has to answer; empty if the model has answered."""
    trimmed: Trimmed[dict[str, Any]]
    """The last prompt."""
    turns: int
    """Number of model calls."""
    recalls: int
    """Number of calls of the sidecar's tools that were answered."""
    api: SdkApi
    _turns: tuple[Any, ...]
    _results: tuple[Any, ...]

    @property
    def waits(self) -> bool:
        """Whether the model waits for the agent's tools, or `MOST_TURNS` was reached: call `complete` again."""
        return bool(self.calls or self._results or self.api.waits_otherwise(self.response))

    def history(self, results: Sequence[Any] = ()) -> list[Any]:
        """Return the history to continue with; `results` are `call.result(...)` of each of `calls`."""
        return [*self._turns, *self.api.joined([*self._results, *results])]


def complete(engine: Engine, work: Continuation) -> Steps[Completion]:
    """Call the model until it answers or calls one of the agent's tools; `work.watch` is given each prompt.

    Raises:
        ClientError: the sidecar did not answer, and the client does not fail open.
        ValueError: `stream` or `n` is requested.
    """
    if work.keywords.get("stream") or (work.keywords.get("n") or 1) != 1:
        raise ValueError("the loop takes one whole answer: call it without stream and with n = 1")
    taken_turns = yield from turns(engine, work, lambda step, _: answered(engine, step))
    return (yield from completed(engine, taken_turns))


@dataclass(frozen=True, slots=True)
class LoopTurns:
    """The turns of one run of the loop; the last one is returned to the agent."""

    step: Continuation
    """The last turn's input."""
    response: Any
    trimmed: Trimmed[dict[str, Any]]
    last: Turn
    number: int
    recalls: int


def turns(engine: Engine, work: Continuation, answer: Answer) -> Generator[Any, Any, LoopTurns]:
    """Call the model until the loop ends; `answer` calls it once, given the names of the sidecar's tools."""
    api, keywords = work.api, work.keywords
    offered = only_theirs(keywords) if work.strict else (yield from offer(engine, api, keywords))
    history, recalls = api.history(keywords[api.messages]), 0
    for number in range(1, MOST_TURNS + 1):
        asked = {**keywords, **offered.keywords, api.messages: history}
        step = replace(work, keywords=asked, options=offered.options(work.options))
        response, trimmed = yield from answer(step, offered.own)
        turn = yield from taken(engine, step, response, offered.own, history)
        recalls += len(turn.results)
        if turn.is_last or number == MOST_TURNS:
            break
        history = [*turn.history, *api.joined(turn.results)]
    return LoopTurns(step, response, trimmed, turn, number, recalls)


def completed(engine: Engine, ended: LoopTurns) -> Steps[Completion]:
    """Return the result, with values in place of masks in the calls of the agent's tools."""
    turn, api = ended.last, ended.step.api
    calls = yield from with_values(engine, turn.calls, ended.step)
    history, results = tuple(turn.history), tuple(turn.results)
    return Completion(ended.response, calls, ended.trimmed, ended.number, ended.recalls, api, history, results)
