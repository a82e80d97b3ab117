"""Sends a prompt to a provider: trimmed, and again, shorter, if the provider refuses it as too long.

For `loop.py`, which calls an SDK's function, and for programs between an agent and its provider, such as an HTTP
client's transport or a framework's middleware, which do the sending and receiving themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from prompt_sidecar.client.answers import UsageLearned
from prompt_sidecar.client.arguments import TrimOptions, Usage
from prompt_sidecar.client.engine import Ask, Engine, Rpc, Steps
from prompt_sidecar.client.errors import ClientError
from prompt_sidecar.client.facts import Trimmed
from prompt_sidecar.client.model_calls import refuses_thinking, too_long
from prompt_sidecar.providers.messages import Format

REFUSING: Final = frozenset({400, 413, 422})
"""Statuses of responses that may say that a prompt is too long: their text is read."""
MOST_REFUSALS: Final = 8
"""How often one prompt may be refused as too long before the provider's error is raised. Each time at least three
tenths of the prompt are left out, so even a history of ten windows comes to fit."""
Watch: TypeAlias = Callable[[Any, Steps[Trimmed[Any]]], Steps[Trimmed[Any]]]
"""Called with the prompt to trim and the steps that trim it; performs them and records the result."""


@dataclass(frozen=True, slots=True)
class Sending:
    """A prompt to be trimmed and sent."""

    run_id: str
    prompt: Any
    """Bytes or text of a body, or native objects."""
    format: Format
    options: TrimOptions
    asked: Callable[[Trimmed[Any]], Mapping[str, Any]] = lambda trimmed: {"prompt": trimmed.prompt}
    """Returns the keyword arguments of the sending function for a trimmed prompt."""
    are_keywords: bool = False
    """Whether the prompt is the keyword arguments of an SDK's function."""
    watch: Watch = lambda prompt, steps: steps  # noqa: ARG005


class RefusedAnswer(Exception):
    """A provider's response with one of the statuses `REFUSING`, raised by a program without an error of its own."""

    def __init__(self, native: Any, status: int, text: str) -> None:
        super().__init__(text)
        self.native = native
        """The program's own object."""
        self.status_code = status


def forward(engine: Engine, sending: Sending) -> Steps[tuple[Any, Trimmed[Any]]]:
    """Trim a prompt and send it; return the answer, and the prompt that it answers.

    A refusal for the prompt's length is reported, and the prompt is sent again as long as trimming makes it shorter.

    Raises:
        ClientError: the sidecar did not trim it, and the client does not fail open.
        Exception: any error of the sending function.
    """
    trimmed = yield from trim(engine, sending)
    for tries in range(1, MOST_REFUSALS + 2):
        try:
            return (yield Ask(sending.asked(trimmed))), trimmed
        except Exception as error:
            if tries <= MOST_REFUSALS and refuses_thinking(error) and engine.thinking_refused(sending.run_id):
                trimmed = yield from trim(engine, sending)
                continue
            shorter = None
            if too_long(error):
                shorter = yield from made_shorter(engine, sending, trimmed, error)
            if shorter is None or tries > MOST_REFUSALS:
                if not too_long(error):
                    yield from reported(engine, sending.run_id, {"failed": True}, trimmed)
                raise
            trimmed = yield from sending.watch(sending.prompt, _made(shorter))
    raise AssertionError("the last try returns or raises")


def made_shorter(
    engine: Engine, sending: Sending, trimmed: Trimmed[Any], error: Exception
) -> Steps[Trimmed[Any] | None]:
    """Report that a prompt was refused as too long; return it trimmed again, or None if it is no shorter."""
    engine.refused(sending.run_id)
    yield from sending.watch(trimmed.prompt, _made(replace(trimmed, refused=True)))
    learned = yield from reported(engine, sending.run_id, {"refusal": {"message": too_long(error)}}, trimmed)
    if learned is not None and not learned.learned_limit:
        return None
    again = yield from _trimmed(engine, sending)
    if again.trimmed and trimmed.trimmed and again.tokens and trimmed.tokens:
        return again if again.tokens.after < trimmed.tokens.after else None
    return again if again.trimmed or again.left_out > trimmed.left_out else None


def _made(trimmed: Trimmed[Any]) -> Steps[Trimmed[Any]]:
    """Return a prompt that was already made, as steps."""
    yield from ()
    return trimmed


def reported(
    engine: Engine, run_id: str, usage: Usage, trimmed: Trimmed[Any]
) -> Generator[Rpc | Ask, Any, UsageLearned | None]:
    """Report usage of a prompt that the sidecar trimmed. A failed report is only counted."""
    if not trimmed.trimmed or not (_refused_or_failed(usage) or usage.get("input_tokens") is not None):
        return None
    try:
        return (yield from engine.report_usage(run_id, {**usage, "revision": trimmed.revision}))
    except ClientError:
        engine.not_reported()
        return None


def _refused_or_failed(usage: Usage) -> bool:
    return bool(usage.get("refusal") or usage.get("failed"))


def trim(engine: Engine, sending: Sending) -> Steps[Trimmed[Any]]:
    """Trim a prompt without sending it."""
    return (yield from sending.watch(sending.prompt, _trimmed(engine, sending)))


def _trimmed(engine: Engine, sending: Sending) -> Steps[Trimmed[Any]]:
    way = engine.trim_keywords if sending.are_keywords else engine.trim
    return way(sending.run_id, sending.prompt, sending.format, sending.options)
