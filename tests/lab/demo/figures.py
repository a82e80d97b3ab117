"""What the run would have cost at a provider with a prompt cache, and what other ways to trim would.

One ruler for all: a message counts as cached if it and all before it are the bytes of the prompt before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tests.lab.demo.agent import Exchange
from tests.lab.demo.prompt import Prompt
from tests.oracle.baselines import Control, Entry, Sized, cost, trim_every_call
from tests.oracle.shapes import role_of
from tests.oracle.tokens import count, count_message


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
    sent = [_sized(exchange.sent) for exchange in exchanges]
    # Other ways to trim know the messages only: what tools and fields take is kept free for them.
    fields = sum(count(value.decode()) for value in exchanges[0].sent.fields.values())
    control = Control(limit - fields)
    return Costs(
        sidecar=cost([_entries(exchange.returned) for exchange in exchanges]),
        untrimmed=cost([[message.entry for message in prompt] for prompt in sent]),
        every_call=cost([trim_every_call(prompt, limit - fields) for prompt in sent]),
        control=cost([control.prompt(prompt) for prompt in sent]),
        over=sum(exchange.answer.tokens.before > limit for exchange in exchanges),
    )


def _sized(prompt: Prompt) -> list[Sized]:
    return [
        Sized(entry, opens=role_of(message) == "assistant")
        for entry, message in zip(_entries(prompt), prompt.messages, strict=True)
    ]


def _entries(prompt: Prompt) -> list[Entry]:
    return [_entry(piece) for piece in prompt.slices]


@lru_cache(maxsize=5_000)
def _entry(piece: bytes) -> Entry:
    return hashlib.sha256(piece).digest(), count_message(Prompt.of(b'{"messages":[' + piece + b"]}").messages[0])
