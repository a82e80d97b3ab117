"""One exchange as a row of the table."""

from __future__ import annotations

from collections import Counter

from prompt_sidecar.v1 import trim_pb2
from tests.lab.demo.agent import Exchange
from tests.lab.demo.investigation import Turn
from tests.lab.demo.table import Row
from tests.lab.demo.tools import summary


def row(exchange: Exchange, before: Exchange | None, iteration: int) -> Row:
    """What an iteration's prompt was, what was newly trimmed in it, and what the model then did."""
    answer = exchange.answer
    known = set() if before is None else {_trimmed(trim) for trim in before.answer.trims}
    new = Counter(trim.action for trim in answer.trims if _trimmed(trim) not in known)
    return Row(
        iteration=iteration,
        step=step(exchange.turn),
        before=answer.tokens.before,
        after=answer.tokens.after,
        limit=answer.tokens.limit,
        kept=None if before is None else answer.cache.kept_prefix_tokens / before.answer.tokens.after,
        batch_point=answer.cache.batch_point,
        elided=new[trim_pb2.TRIM_ACTION_ELIDED],
        clipped=new[trim_pb2.TRIM_ACTION_CLIPPED],
        dropped=new[trim_pb2.TRIM_ACTION_DROPPED],
        milliseconds=exchange.seconds * 1_000,
    )


def step(turn: Turn) -> str:
    """A turn in a few words: its first call, and how many more."""
    if not turn.calls:
        return "answer the user"
    first = turn.calls[0].label or summary(turn.calls[0].name, turn.calls[0].arguments)
    return f"{first} +{len(turn.calls) - 1}" if len(turn.calls) > 1 else first


def _trimmed(trim: trim_pb2.Trim) -> tuple[int, int, int, int]:
    return trim.message_index, trim.item_index, trim.action, trim.tokens_saved
