"""A prompt on its way to a provider: trimmed, sent, and sent shorter where the provider refuses it as too long.

For programs between an agent and its provider, such as an HTTP client's transport or a framework's middleware. What is
sent and received is theirs; `loop.py` does the same for an SDK's function, and answers the sidecar's tools.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prompt_sidecar.client.arguments import TrimOptions, Usage
from prompt_sidecar.client.engine import Ask, Engine, Rpc, Steps
from prompt_sidecar.client.errors import ClientError
from prompt_sidecar.client.facts import Trimmed
from prompt_sidecar.client.model_calls import refuses_thinking, too_long
from prompt_sidecar.providers.messages import Format

REFUSING: Final = frozenset({400, 413, 422})
"""Statuses of answers that may say that a prompt is too long: their text is read."""
MOST_REFUSALS: Final = 8
"""How often one prompt may be refused as too long before the refusal is the agent's, as in `loop.py`."""


@dataclass(frozen=True, slots=True)
class Sending:
    """A prompt that is to be trimmed and sent."""

    run_id: str
    prompt: Any
    """Bytes or text of a body, or native objects."""
    format: Format
    options: TrimOptions
    asked: Callable[[Trimmed[Any]], Mapping[str, Any]] = lambda trimmed: {"prompt": trimmed.prompt}
    """The keywords of the function that sends, from the trimmed prompt."""


class RefusedAnswer(Exception):
    """A provider's answer with one of the statuses `REFUSING`, raised by a program that has no error of its own."""

    def __init__(self, native: Any, status: int, text: str) -> None:
        super().__init__(text)
        self.native = native
        """The program's own object."""
        self.status_code = status


def forward(engine: Engine, sending: Sending) -> Steps[tuple[Any, Trimmed[Any]]]:
    """Trim a prompt and send it; return the answer, and the prompt that it answers.

    A refusal for the prompt's length is reported, and the prompt is sent again as long as it gets shorter.

    Raises:
        ClientError: the sidecar did not trim it, and the client does not fail open.
        Exception: what the function that sends raises.
    """
    trimmed = yield from trim(engine, sending)
    for tries in range(1, MOST_REFUSALS + 2):
        try:
            return (yield Ask(sending.asked(trimmed))), trimmed
        except Exception as error:
            if tries > MOST_REFUSALS:
                raise
            if refuses_thinking(error) and engine.thinking_refused(sending.run_id):
                trimmed = yield from trim(engine, sending)
                continue
            shorter = None
            if too_long(error):
                shorter = yield from made_shorter(engine, sending, trimmed, error)
            if shorter is None:
                raise
            trimmed = shorter
    raise AssertionError("the last try returns or raises")


def made_shorter(
    engine: Engine, sending: Sending, trimmed: Trimmed[Any], error: Exception
) -> Steps[Trimmed[Any] | None]:
    """Report that a prompt was refused as too long; return it as it is trimmed then, or None where it is no shorter."""
    engine.refused(sending.run_id)
    yield from reported(engine, sending.run_id, {"refusal": {"message": too_long(error)}}, trimmed)
    again = yield from trim(engine, sending)
    if again.trimmed and trimmed.trimmed and again.tokens and trimmed.tokens:
        return again if again.tokens.after < trimmed.tokens.after else None
    return again if again.trimmed or again.left_out > trimmed.left_out else None


def reported(engine: Engine, run_id: str, usage: Usage, trimmed: Trimmed[Any]) -> Generator[Rpc | Ask, Any, None]:
    """Report usage of a prompt that the sidecar trimmed. A failed report is only counted."""
    if not trimmed.trimmed or not (usage.get("refusal") or usage.get("input_tokens") is not None):
        return
    try:
        yield from engine.report_usage(run_id, {**usage, "revision": trimmed.revision})
    except ClientError:
        engine.not_reported()


def trim(engine: Engine, sending: Sending) -> Steps[Trimmed[Any]]:
    """Trim a prompt without sending it."""
    return engine.trim(sending.run_id, sending.prompt, sending.format, sending.options)
