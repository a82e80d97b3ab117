"""The loop behind `complete`: the model uses the sidecar's tools without code in the agent.

In each turn the history is trimmed, the model called, its usage reported, and calls of the sidecar's tools answered by
the sidecar. The loop ends when the model answers, or calls one of the agent's tools. Where the sidecar is down, the
model gets its last prompt and the messages since; its calls of the sidecar's tools are answered with the text that they
are unreachable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from prompt_sidecar.client.engine import Engine, Steps
from prompt_sidecar.client.facts import Trimmed
from prompt_sidecar.client.model_calls import ModelCall
from prompt_sidecar.client.turns import Work, answered, offer, only_theirs, taken, with_values
from prompt_sidecar.providers.sdk import SdkApi

MOST_TURNS: Final = 12
"""Turns of the model in one call of the loop. A model needs one to three to find what it misses; one that still calls
the sidecar's tools after twelve is in a loop, and the agent should see it."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The result of `complete`."""

    response: Any
    """The last response, the SDK's own object."""
    calls: tuple[ModelCall, ...]
    """Calls of the agent's own tools, which the agent has to answer; empty: the model has answered."""
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
        """Whether the model waits for the agent's tools, or for another call of `complete` as turns ran out."""
        return bool(self.calls or self._results or self.api.waits_otherwise(self.response))

    def history(self, results: Sequence[Any] = ()) -> list[Any]:
        """Return the history to continue with; `results` are `call.result(...)` of each of `calls`."""
        return [*self._turns, *self.api.joined([*self._results, *results])]


def complete(engine: Engine, work: Work) -> Steps[Completion]:
    """Call the model until it answers or calls one of the agent's tools; `work.watch` is given each prompt.

    Raises:
        ClientError: the sidecar did not answer, and the client does not fail open.
        ValueError: `stream` or `n` is asked for.
    """
    api, keywords = work.api, work.keywords
    if keywords.get("stream") or (keywords.get("n") or 1) != 1:
        raise ValueError("the loop takes one whole answer: call it without stream and with n = 1")
    offered = only_theirs(keywords) if work.strict else (yield from offer(engine, api, keywords))
    history, recalls = api.history(keywords[api.messages]), 0
    for number in range(1, MOST_TURNS + 1):
        asked = {**keywords, **offered.keywords, api.messages: history}
        step = replace(work, keywords=asked, options=offered.options(work.options))
        response, trimmed = yield from answered(engine, step)
        turn = yield from taken(engine, step, response, offered.own, history)
        recalls += len(turn.results)
        if turn.is_last or number == MOST_TURNS:
            break
        history = [*turn.history, *api.joined(turn.results)]
    calls = yield from with_values(engine, turn.calls, step)
    return Completion(response, calls, trimmed, number, recalls, api, tuple(turn.history), tuple(turn.results))
