"""The common base of readers for formats whose messages are lists of parts.

A format derives from `Gathering` and defines how one part is read. The rest is shared: the role, the items in order,
other content that takes tokens, and an opaque item where a message has content outside its items.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.format import Replacement
from prompt_sidecar.prompt.items import (
    WHOLE,
    Item,
    ItemKind,
    Message,
    Path,
    Role,
    check_parts,
    opaque_tokens,
    text_kind,
)
from prompt_sidecar.prompt.jsontext import canonical, identity, load, load_again


class Gathering(ABC):
    """Gathers the items of one message in order."""

    takes: ClassVar[str] = "a string or an array"
    """Accepted types of a content, in words."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.items: list[Item] = []
        self.calls: list[str] = []
        self.answers: list[str] = []
        self.names: list[str] = []
        self.other: list[str] = []
        self.opaque = 0
        self.more = False
        """Whether the message has content that is neither in its items nor in `other`."""
        self.compacts = False
        """Whether a compaction was read."""
        self._unseen = 0, 0
        """Numbers of items, and of calls and answers, before it, if the model does not see them."""

    @abstractmethod
    def part(self, part: dict[str, Any], path: Path, field: str) -> None:
        """Read one part, which is at `path`. Raises InvalidJson if its shape is not the format's."""

    def text(self, text: str, path: Path, *, fixed: bool = False) -> None:
        """Add a text."""
        if text:
            self.items.append(Item(text_kind(self.role, text), path, text, fixed=fixed))

    def content(self, content: Any, field: str, name: str = "content") -> None:
        """Read the content of a member: a string or an array of parts.

        Raises:
            InvalidJson: it is neither, or a part is not an object.
        """
        if type(content) is str:
            self.text(content, (name,))
        elif type(content) is list:
            self.parts(content, (name,), f"{field}.{name}")
        else:
            raise InvalidJson(f"{field}.{name} must be {self.takes}", field=f"{field}.{name}")

    def parts(self, parts: Any, path: Path, field: str) -> None:
        """Read an array of parts. Raises InvalidJson if it is not an array, or a part is not an object."""
        for part, at, where in each_object(parts, path, field):
            self.part(part, at, where)

    def reasoning(
        self, path: Path, encrypted: str, texts: Iterable[tuple[Path, str]] = (), *, fixed: bool = False
    ) -> None:
        """Read a block of the model's reasoning; see `reasoning_items`."""
        self.items += reasoning_items(path, encrypted, texts, fixed=fixed)

    def rest(self, value: dict[str, Any], known: frozenset[str]) -> None:
        """Add an object's unknown members to `other`: they are counted and never edited."""
        rest = {name: member for name, member in value.items() if name not in known and member is not None}
        if rest:
            self.other.append(canonical(rest).decode())

    def compaction(self, part: dict[str, Any], encrypted: str = "", *, drops: bool) -> None:
        """Read a provider's compaction.

        Args:
            part: the part of it that counts as JSON.
            encrypted: its encrypted text.
            drops: whether the provider drops everything before it in the message.
        """
        self.compacts = True
        if drops:
            self._unseen = len(self.items), len(self.calls) + len(self.answers)
            self.items = [item._replace(fixed=True, opaque=0) for item in self.items]
            self.names, self.other, self.opaque = [], [], 0
        self.other.append(canonical(part).decode())
        self.opaque += opaque_tokens(encrypted)

    def is_opaque(self) -> bool:
        """Whether the message has content outside its items, or no items."""
        return bool(self.other) or self.more or not self.items

    def message(self, identity: bytes, *, media: int = 0, identified: bool = False, final: bool = False) -> Message:
        """Return the message, once all parts are read; `media`: how many media it has in addition to its images."""
        if self.is_opaque():
            self.items.append(WHOLE)
        return Message(
            role=self.role,
            items=tuple(self.items),
            identity=identity,
            calls=tuple(self.calls),
            answers=tuple(self.answers),
            other="\n".join((*self.names, *self.other)),
            media=media + sum(item.kind is ItemKind.IMAGE for item in self.items[self._unseen[0] :]),
            opaque=self.opaque,
            identified=identified,
            final=final,
            in_force=self.compacts,
            compacts=self.compacts,
            unseen_items=self._unseen[0],
            unseen_calls=self._unseen[1],
        )


def each_object(value: Any, path: Path, field: str) -> Iterator[tuple[dict[str, Any], Path, str]]:
    """Yield the objects in an array, each with its path, and with the request field to name in an error.

    Raises:
        InvalidJson: it is not an array, or an element is not an object.
        TooLarge: it has too many elements.
    """
    if type(value) is not list:
        raise InvalidJson(f"{field} must be an array", field=field)
    check_parts(value, field)
    for index, part in enumerate(value):
        where = f"{field}[{index}]"
        if type(part) is not dict:
            raise InvalidJson(f"{where} must be an object", field=where)
        yield part, (*path, index), where


def reasoning_items(
    path: Path, encrypted: str, texts: Iterable[tuple[Path, str]] = (), *, fixed: bool = False
) -> list[Item]:
    """Return the items of a block of reasoning: the block and each readable text in it; one for a plain text.

    Args:
        path: the block's path.
        encrypted: its encrypted text, such as a signature; may be empty.
        texts: its readable texts, each with its path; empty ones are left out.
        fixed: whether the provider may reject the prompt without it.
    """
    block = Item(ItemKind.REASONING, path, encrypted, raw_json=True, fixed=fixed, opaque=opaque_tokens(encrypted))
    readable = [Item(ItemKind.REASONING, at, text, fixed=fixed) for at, text in texts if text]
    return readable if readable and readable[0].path == path else [block, *readable]


def without_reasoning(
    replacements: Mapping[Item, Replacement],
) -> tuple[dict[Path, bytes | None], dict[Item, Replacement], str]:
    """Separate the reasoning that is removed from the items that are replaced.

    Returns:
        The removals by path, the other replacements, and the label for a message that holds nothing else.
    """
    blocks: dict[Path, bytes | None] = {}
    others: dict[Item, Replacement] = {}
    label = ""
    places = {item.path for item in replacements if item.kind is ItemKind.REASONING}
    for item, text in replacements.items():
        if item.kind is not ItemKind.REASONING:
            others[item] = text
        elif not any(
            item.path[:length] in places for length in range(len(item.path))
        ):  # otherwise it is removed with its block
            blocks[item.path] = None
            label = label or text or ""
    return blocks, others, label


Comparable = Callable[[dict[str, Any]], Any]
"""Returns the parts of a message that its identity depends on, in one common form."""


def loaded(raw: bytes | memoryview, field: str, *, identify: bool) -> dict[str, Any]:
    """Return the message as an object. `identify` is false only for one that was loaded before. Raises InvalidJson."""
    value = load(raw, field) if identify else load_again(raw)
    if type(value) is not dict:
        raise InvalidJson(f"{field} must be an object", field=field)
    return value


def role_of(value: dict[str, Any], field: str, roles: Mapping[str, Role]) -> Role:
    """Return the role of a message. Raises InvalidJson if it is not a string."""
    name = value.get("role")
    if type(name) is not str:
        raise InvalidJson(f"{field}.role must be a string", field=f"{field}.role")
    return roles.get(name, Role.OTHER)


def identity_of(value: dict[str, Any], comparable: Comparable, *, identify: bool) -> bytes:
    """Return the identity; empty if `identify` is false."""
    return identity(comparable(value)) if identify else b""
