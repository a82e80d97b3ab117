"""One turn of the model, for `loop.py` and `streaming.py`.

The prompt is trimmed, the model called with it and its usage reported. A prompt that the model refuses as too long is
trimmed again. Then the turn's calls are run or prepared: the sidecar answers calls of its own tools, and in calls of
the agent's tools values replace masks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from prompt_sidecar.client.answers import ToolAnswer
from prompt_sidecar.client.arguments import TrimOptions
from prompt_sidecar.client.engine import Engine, Steps
from prompt_sidecar.client.errors import STORE_UNAVAILABLE, ClientError, Unreachable
from prompt_sidecar.client.facts import Trimmed
from prompt_sidecar.client.forwarding import Sending, Watch, forward, reported
from prompt_sidecar.client.model_calls import ModelCall, model_calls, tool_names, usage_of
from prompt_sidecar.providers.sdk import SdkApi

UNREACHABLE: Final = "This tool cannot be reached right now. Go on without it, or try again later."
"""The result of a call of the sidecar's tools if the sidecar cannot be reached."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """A history for the model to continue."""

    api: SdkApi
    run_id: str
    keywords: Mapping[str, Any]
    """Keyword arguments for the SDK's function."""
    options: TrimOptions
    watch: Watch
    strict: bool = False
    """Whether the SDK's function accepts only strict tools, which the sidecar's are not."""

    @property
    def sending(self) -> Sending:
        """The prompt to be sent."""
        return Sending(
            self.run_id,
            self.keywords,
            self.api.format,
            self.options,
            lambda trimmed: trimmed.prompt,
            are_keywords=True,
            watch=self.watch,
        )


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools offered to the model."""

    keywords: Mapping[str, Any]
    """The keyword `tools`, if there are any."""
    own: frozenset[str]
    """Names of the sidecar's tools among them."""

    def options(self, options: TrimOptions) -> TrimOptions:
        """Return the options, with `recall_unavailable` if none of the sidecar's tools is offered."""
        return options if self.own else {**options, "recall_unavailable": True}


def only_theirs(keywords: Mapping[str, Any]) -> Offer:
    """Return an offer of only the agent's tools."""
    given = keywords.get("tools") or ()
    theirs = list(given) if isinstance(given, Sequence) else []
    return Offer({"tools": theirs} if theirs else {}, frozenset())


def offer(engine: Engine, api: SdkApi, keywords: Mapping[str, Any]) -> Steps[Offer]:
    """Add the sidecar's tools to the agent's. An agent's tool with the same name stays the agent's."""
    alone = only_theirs(keywords)
    theirs = alone.keywords.get("tools", [])
    try:
        tools = yield from engine.list_tools(api.format)
    except ClientError:
        if not engine.options.fail_open:
            raise
        return alone
    taken = tool_names(api, theirs)
    definitions = [each for each in json.loads(tools.tools_json) if api.tool_name(each) not in taken]
    return Offer({"tools": [*theirs, *definitions]}, tool_names(api, definitions))


def answered(engine: Engine, work: Continuation) -> Steps[tuple[Any, Trimmed[dict[str, Any]]]]:
    """Trim, call the model, report."""
    response, trimmed = yield from forward(engine, work.sending)
    yield from reported(engine, work.run_id, usage_of(work.api, response), trimmed)
    return response, trimmed


def run_own_tool(engine: Engine, call: ModelCall, work: Continuation) -> Steps[ToolAnswer]:
    """Run a tool of the sidecar's. If it has not seen the run, as after a restart, it is sent the prompt first.

    The same is done if a store that does not answer is needed to know whether another sidecar has seen the run.
    """
    try:
        try:
            answer = yield from engine.call_tool(work.run_id, call.name, call.arguments, "")
        except Unreachable as error:
            if error.reason != STORE_UNAVAILABLE:
                raise
            answer = None
        if answer is None or answer.outcome == "run_unknown":
            yield from engine.trim_keywords(work.run_id, work.keywords, work.api.format, work.options)
            answer = yield from engine.call_tool(work.run_id, call.name, call.arguments, "")
    except ClientError:
        if not engine.options.fail_open:
            raise
        return ToolAnswer("unreachable", UNREACHABLE, is_error=True)
    return answer


def with_values(engine: Engine, calls: tuple[ModelCall, ...], work: Continuation) -> Steps[tuple[ModelCall, ...]]:
    """Return the calls with masks in their arguments replaced by values; the history keeps the model's calls.

    If the sidecar does not have the values, as after a restart, it is sent the history once more. If it does not
    answer, the masks stay: they reveal nothing.
    """
    masked = [call for call in calls if call.has_masks]
    if not masked:
        return calls
    asked = [(call.name, call.arguments) for call in masked]
    try:
        restored = yield from engine.restore_secrets(work.run_id, asked)
        if any(each.unknown for each in restored):
            yield from engine.trim_keywords(work.run_id, work.keywords, work.api.format, work.options)
            restored = yield from engine.restore_secrets(work.run_id, asked)
    except ClientError:
        if not engine.options.fail_open:
            raise
        return calls
    filled = {
        id(call): replace(call, arguments=each.arguments, masks_left=each.not_allowed + each.unknown)
        for call, each in zip(masked, restored, strict=True)
    }
    return tuple(filled.get(id(call), call) for call in calls)


@dataclass(frozen=True, slots=True)
class Turn:
    """The outcome of one response of the model."""

    history: Sequence[Any]
    """The history with the response."""
    calls: tuple[ModelCall, ...]
    """Calls of the agent's own tools."""
    results: Sequence[Any]
    """Results of the sidecar's tools."""
    is_last: bool
    """Whether the loop ends: the model has answered, or calls a tool that is not the sidecar's."""


def taken(
    engine: Engine, step: Continuation, response: Any, own: frozenset[str], history: Sequence[Any]
) -> Steps[Turn]:
    """Process a response: run the sidecar's tools that it calls, whose names are `own`."""
    api, calls = step.api, model_calls(step.api, response)
    history = [*history, *api.turn(response)]
    results: list[Any] = []
    for call in calls:
        if call.name in own:
            answer = yield from run_own_tool(engine, call, step)
            results.append(call.result(answer.content, is_error=answer.is_error))
    others = tuple(call for call in calls if call.name not in own)
    is_last = bool(others) or not results or bool(api.waits_otherwise(response))
    return Turn(history, others, results, is_last)
