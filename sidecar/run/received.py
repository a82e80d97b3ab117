"""What the agent sent, read: each message's identity and weight, at the cost of what is new.

Messages that are byte for byte where they were in the last prompt are known already. The others are decoded and
counted here, before anything of the run is changed, so that a call that is cancelled or turns out to be wrong has
changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sidecar.errors import TooLarge
from sidecar.prompt.body import Split, equal_slice
from sidecar.prompt.format import Format
from sidecar.prompt.items import Message, Role
from sidecar.prompt.likeness import check_message
from sidecar.run.weigh import Weight, weigh

OWN: Final = -1
"""Place of a message that is our own text, sent back."""
SYSTEM: Final = -2
"""Place of a leading system message: it is no part of the history, as agents rewrite it from call to call."""


class Read(NamedTuple):
    """One message as it was sent.

    A tuple: each new message makes two, and a frozen dataclass is three times as dear to make.
    """

    identity: bytes
    tokens: int
    role: Role
    message: Message | None = None
    """Only while it is new: what a record is made from."""
    weight: Weight | None = None
    opaque: int = 0
    """Of its tokens, those of encrypted text."""


@dataclass(slots=True)
class Received:
    """A prompt as it was sent, and what each message of it is in the run's history."""

    split: Split
    reads: list[Read]
    places: list[int]
    """For each message its index in the history, OWN or SYSTEM; filled in when the prompt is aligned."""
    nexts: list[int]
    """For each message the history index that is expected after it."""
    tokens: list[int]
    """Tokens of the messages up to and including each; our own and leading system messages are not counted."""
    opaque: list[int]
    """Of them, those of encrypted text."""
    whole: list[int]
    """Messages up to and including each that came untrimmed."""
    carried: int = 0
    """Messages at the start that are the same bytes as in the last prompt and keep their places."""


def read(
    split: Split,
    before: Received | None,
    format_: Format,
    count_many: Callable[[Sequence[str]], Sequence[int]],
    check: Callable[[], None],
    *,
    most_items: int,
) -> list[Read]:
    """Decode and count what is new in a prompt; changes nothing.

    Raises:
        InvalidRequest: a message is not of the format's shape; the error names it.
        TooLarge: what is new has more than `most_items` items.
    """
    field = format_.messages_path
    same = before.reads[: split.same] if before is not None else []
    reads: list[Read | None] = []
    new: list[Message] = []
    items = 0
    for index in range(split.same, len(split)):
        if before is not None and equal_slice(split, before.split, index):
            reads.append(before.reads[index])
            continue
        raw, where = split.message(index), field if split.is_text else f"{field}[{index}]"
        message = format_.read(raw, where)
        check_message(raw, format_.name, where)
        items += len(message.items)
        if items > most_items:
            raise TooLarge(
                f"the prompt's new messages have over {most_items:,} items; limits.run_items allows so many",
                field=field,
                bound="limits.run_items",
            )
        new.append(message)
        reads.append(None)
        check()
    weighed = (
        Read(message.identity, weight.total, message.role, message, weight, weight.opaque)
        for message, weight in zip(new, weigh(new, count_many, format_.call_tokens), strict=True)
    )
    return same + [next(weighed) if known is None else known for known in reads]
