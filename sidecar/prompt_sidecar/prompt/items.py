"""Messages and items, independent of the format.

A reader turns the raw bytes of one message into a `Message`: its role, its items in order, and an identity. The
identity is a digest of the decoded content, so two encodings of the same message (escapes, key order, numbers) have the
same one. Everything after the reader works on these; only a writer uses raw bytes again.
"""

from __future__ import annotations

from collections.abc import Sized
from enum import StrEnum
from typing import Final, NamedTuple

from prompt_sidecar.errors import TooLarge


class Role(StrEnum):
    """The sender of a message. OTHER is an unknown role; such a message is never trimmed."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    OTHER = "other"


class ItemKind(StrEnum):
    """Kind of an item.

    A SNAPSHOT is a user's text that quotes a page between EXTERNAL-CONTENT tags; only the page is edited. REASONING is
    a thinking block or a reasoning item. It is never shortened, only removed whole, with all other reasoning of its
    message. The block is one item (`raw_json`), and each readable text in it another, so that the text can be searched
    and recalled while the encrypted part is never shown. An OPAQUE item is its whole message, where that has content
    outside other items, or no items: it is stored when the message is dropped, and never edited.
    """

    TEXT = "text"
    ARGUMENTS = "arguments"
    RESULT = "result"
    IMAGE = "image"
    OPAQUE = "opaque"
    SNAPSHOT = "snapshot"
    REASONING = "reasoning"


Path = tuple[str | int, ...]
"""Path of a value in a message: object keys and array indices, outermost first."""


MAX_PARTS: Final = 10_000
"""Most parts or calls in one message. Providers accept some hundred; a message is decoded whole before it is
checked."""


def check_parts(parts: Sized, field: str) -> None:
    """Check the number of parts. Raises TooLarge if a message has more than `MAX_PARTS`."""
    if len(parts) > MAX_PARTS:
        raise TooLarge(
            f"{field} has {len(parts):,} elements; it may have {MAX_PARTS:,}", field=field, bound="message.parts"
        )


REASONING_TYPE: Final = "application/vnd.prompt-sidecar.reasoning+json"
"""Media type of a provider's reasoning block: JSON, signed or encrypted, for programs only."""
OPAQUE_TOKENS: Final = 0.28
"""Tokens that providers count per character of encrypted reasoning in base64. Measured on recorded runs with the
provider's own counts: 0.21 to 0.30 for the signatures of Claude's thinking blocks, including those without text."""


def opaque_tokens(text: str) -> int:
    """Return the estimated tokens that the provider counts for encrypted text, such as a signature in base64."""
    return round(len(text) * OPAQUE_TOKENS)


NO_ID: Final = "name:"
"""Prefix of the pairing id of a call without an id. A real id with this prefix pairs the same way."""


def pairing_id(call_id: str, tool: str) -> str:
    """Return the key that pairs a call with its result if calls may have no id: the id, else the tool's name."""
    return call_id or NO_ID + tool


SNAPSHOT_OPENING: Final = "<EXTERNAL-CONTENT"
SNAPSHOT_CLOSING: Final = "</EXTERNAL-CONTENT>"
"""The tags that browser agents put around a page. Source: the design's discussion of Pilo."""


def text_kind(role: Role, text: str) -> ItemKind:
    """Return SNAPSHOT if it is a user's text with a page between both tags, else TEXT."""
    if role is Role.USER and (opening := text.find(SNAPSHOT_OPENING)) >= 0:
        body = text.find(">", opening)
        if body >= 0 and text.find(SNAPSHOT_CLOSING, body) >= 0:
            return ItemKind.SNAPSHOT
    return ItemKind.TEXT


class Item(NamedTuple):
    """A trimmable part of a message.

    A tuple, as is a message: a prompt has thousands of both, and creating a frozen dataclass takes three times as long.
    """

    kind: ItemKind
    path: Path
    """Path of the value to replace; empty for an OPAQUE item, which is the whole message."""
    text: str
    """The text whose tokens and bytes are counted: the decoded text, or for an object its sorted, compact JSON."""
    raw_json: bool = False
    """Whether the original is the value's raw JSON rather than the UTF-8 of `text`."""
    call_id: str = ""
    """For arguments the call's id; for results and their images the id of the answered call."""
    tool: str = ""
    """The tool's name, if the message contains it."""
    result: int = -1
    """Index, in the message, of the tool result that the item belongs to; -1 outside results."""
    free_text: bool = False
    """For arguments: whether they are free text, as for a custom tool, rather than JSON. They are clipped to nothing.
    """
    fixed: bool = False
    """Whether it is never edited, because the provider signed it or refers to offsets in it; only dropped with its
    message."""
    opaque: int = 0
    """Tokens of its encrypted text, which no tokenizer can count; see `opaque_tokens`."""
    spelled: bool = False
    """Whether the original of a text is its raw JSON, as its UTF-8 would lack a part of it: an unpaired surrogate."""
    cited: bool = False
    """For a result: whether it is the text of a document or a file, to whose offsets other parts refer."""

    def __hash__(self) -> int:
        """Hash of the path, which is unique in a message; hashing the text would read all of it."""
        return hash(self.path)

    @property
    def content_type(self) -> str:
        """Media type of the original."""
        if self.kind is ItemKind.REASONING and self.raw_json:
            return REASONING_TYPE
        json_text = self.raw_json or self.kind in (ItemKind.ARGUMENTS, ItemKind.OPAQUE)
        json_text = (json_text and not self.free_text) or self.spelled
        return "application/json" if json_text else "text/plain"


WHOLE: Final = Item(ItemKind.OPAQUE, (), "", raw_json=True)
"""The item that is a whole message."""


class Message(NamedTuple):
    """One decoded message."""

    role: Role
    items: tuple[Item, ...]
    identity: bytes
    """16 bytes of SHA-256 over the decoded content; attackers may choose the content, so the hash must be
    cryptographic."""
    calls: tuple[str, ...] = ()
    """Ids of the calls that the message makes, in order."""
    answers: tuple[str, ...] = ()
    """Ids of the calls that the message answers, in order."""
    other: str = ""
    """Other content that takes tokens: tool names, unknown blocks as JSON."""
    media: int = 0
    """Number of images among the items, whose tokens do not follow from their text."""
    opaque: int = 0
    """Tokens of encrypted text outside the items, such as the signature of a call; see `opaque_tokens`."""
    identified: bool = False
    """Whether it has a provider id, by which the provider may require the reasoning before it."""
    ambiguous: bool = False
    """Whether two parsers may read it differently: it is returned unchanged, or dropped whole."""
    untouchable: bool = False
    """Whether they may also find other calls or answers in it: then it is not dropped either."""
    tied: bool = False
    """Whether it is a system message of a provider that restricts their places: it is dropped with its iteration."""
    in_force: bool = False
    """Whether it changes what applies from there on, such as the offered tools: its iteration is not dropped."""
    final: bool = False
    """Whether the provider accepts nothing after it."""
    loads: tuple[str, ...] = ()
    """Names of deferred tools whose definitions the model sees from there on; see `DeferredTools`."""
    compacts: bool = False
    """Whether it has a provider's compaction, which replaces everything before it; see `Compaction`."""
    unseen_items: int = 0
    """Number of its first items that the model does not see, as they precede a compaction in it."""
    unseen_calls: int = 0
    """Number of its calls and answers that precede it as well."""
