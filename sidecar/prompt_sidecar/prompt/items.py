"""What a message is made of, whatever format it came in.

A reader turns the raw bytes of one message into a `Message`: who it is from, its items in order, and an identity. The
identity is a digest of the decoded content, so two spellings of the same message (escapes, key order, numbers) have
the same one. Everything after the reader works on these; only a writer sees raw bytes again.
"""

from __future__ import annotations

from collections.abc import Sized
from enum import StrEnum
from typing import Final, NamedTuple

from prompt_sidecar.errors import TooLarge


class Role(StrEnum):
    """Who a message is from. OTHER is a role that no reader knows; such a message is never trimmed."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    OTHER = "other"


class ItemKind(StrEnum):
    """What an item is.

    A SNAPSHOT is a user's text that quotes a page between EXTERNAL-CONTENT tags; only what stands between is edited.
    REASONING is what the model thought before it answered: a thinking block, a reasoning item. It is never shortened,
    only removed whole, with all other reasoning of its message. The block is one item (`raw_json`), and each readable
    text in it another, so that the text can be searched and recalled while what is encrypted is shown to nobody. An
    OPAQUE item is its whole message, where that holds more than other items, or none: it is stashed when the message is
    dropped, and never edited.
    """

    TEXT = "text"
    ARGUMENTS = "arguments"
    RESULT = "result"
    IMAGE = "image"
    OPAQUE = "opaque"
    SNAPSHOT = "snapshot"
    REASONING = "reasoning"


Path = tuple[str | int, ...]
"""Where a value stands in a message: object keys and array indices, outermost first."""


MAX_PARTS: Final = 10_000
"""Parts or calls in one message: providers take some hundred, and a message is decoded whole before it is weighed."""


def check_parts(parts: Sized, field: str) -> None:
    """Raises TooLarge if a message has more parts than any real one."""
    if len(parts) > MAX_PARTS:
        raise TooLarge(
            f"{field} has {len(parts):,} elements; it may have {MAX_PARTS:,}", field=field, bound="message.parts"
        )


REASONING_TYPE: Final = "application/vnd.prompt-sidecar.reasoning+json"
"""Media type of a block of reasoning as the provider made it: JSON, signed or encrypted, for programs only."""
OPAQUE_TOKENS: Final = 0.28
"""Tokens that providers count for a character of encrypted reasoning, in base64. Measured on recorded runs that carry
the provider's own counts: 0.21 to 0.30 for the signatures of Claude's thinking blocks, also where their text is
empty."""


def opaque_tokens(text: str) -> int:
    """Tokens that encrypted text, such as a signature in base64, takes at the provider."""
    return round(len(text) * OPAQUE_TOKENS)


NO_ID: Final = "name:"
"""What begins the pairing id of a call without an id. A real id may begin so too: it then pairs as that call does."""


def pairing_id(call_id: str, tool: str) -> str:
    """What pairs a call with its result where calls may have no id: the id, else the tool's name."""
    return call_id or NO_ID + tool


SNAPSHOT_OPENING: Final = "<EXTERNAL-CONTENT"
SNAPSHOT_CLOSING: Final = "</EXTERNAL-CONTENT>"
"""The tags that browser agents put around a page. Source: the design's discussion of Pilo."""


def text_kind(role: Role, text: str) -> ItemKind:
    """What a text is: a snapshot if it is a user's and a page stands in it between both tags, else a text."""
    if role is Role.USER and (opening := text.find(SNAPSHOT_OPENING)) >= 0:
        body = text.find(">", opening)
        if body >= 0 and text.find(SNAPSHOT_CLOSING, body) >= 0:
            return ItemKind.SNAPSHOT
    return ItemKind.TEXT


class Item(NamedTuple):
    """The trimmable part of a message.

    A tuple, as a message is: a prompt has thousands of both, and a frozen dataclass is three times as dear to make.
    """

    kind: ItemKind
    path: Path
    """Where the value to replace stands; empty for an OPAQUE item, which is the whole message."""
    text: str
    """What its tokens and bytes are counted from: the decoded text, or for an object its sorted, compact JSON."""
    raw_json: bool = False
    """Whether the original is the value's raw JSON rather than the UTF-8 of `text`."""
    call_id: str = ""
    """For arguments the call's id, for results and their images the id of the call they answer."""
    tool: str = ""
    """The tool's name, where the message itself tells it."""
    result: int = -1
    """Which tool result of the message the item belongs to, counted from 0; -1 outside results."""
    free_text: bool = False
    """Of arguments: whether they are text of any kind, as a custom tool takes, and no JSON. Clipped, they are empty."""
    fixed: bool = False
    """Whether it is never edited, as what the provider has signed or points into: it only leaves with its message."""
    opaque: int = 0
    """Tokens of the encrypted text in it, which no tokenizer can count; see `opaque_tokens`."""

    def __hash__(self) -> int:
        """Of where it stands, which tells a message's items apart; hashing the text would read all of it."""
        return hash(self.path)

    @property
    def content_type(self) -> str:
        """Media type of the original."""
        if self.kind is ItemKind.REASONING and self.raw_json:
            return REASONING_TYPE
        json_text = self.raw_json or self.kind in (ItemKind.ARGUMENTS, ItemKind.OPAQUE)
        json_text = json_text and not self.free_text
        return "application/json" if json_text else "text/plain"


class Message(NamedTuple):
    """One decoded message."""

    role: Role
    items: tuple[Item, ...]
    identity: bytes
    """16 bytes of SHA-256 over the decoded content; attackers choose the content, so a plain hash would not do."""
    calls: tuple[str, ...] = ()
    """Ids of the calls that the message makes, in order."""
    answers: tuple[str, ...] = ()
    """Ids of the calls that the message answers, in order."""
    other: str = ""
    """What else takes tokens: tool names, unknown blocks as JSON."""
    media: int = 0
    """Images among the items, which take tokens that their text does not tell."""
    opaque: int = 0
    """Tokens of encrypted text outside the items, such as the signature of a call; see `opaque_tokens`."""
    identified: bool = False
    """Whether the provider gave it an id by which it may demand the reasoning that came before it."""
    untouchable: bool = False
    """Whether two parsers may read it differently: it goes back as it came, is never trimmed and never dropped."""
