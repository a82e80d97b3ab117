"""Reading a message that holds its parts in a list: what formats that do so have in common.

A format derives from `Gathering` and says what one part is; the rest is the same for all of them: a role, the items in
order, whatever else takes tokens, and an opaque item where a message holds more than its items tell.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.format import Replacement
from prompt_sidecar.prompt.items import Item, ItemKind, Message, Path, Role, check_parts, opaque_tokens, text_kind
from prompt_sidecar.prompt.jsontext import canonical, digest, load, load_again


class Gathering(ABC):
    """Gathers the items of one message in order."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.items: list[Item] = []
        self.calls: list[str] = []
        self.answers: list[str] = []
        self.names: list[str] = []
        self.other: list[str] = []
        self.opaque = 0
        self.more = False
        """Whether the message holds what neither its items nor `other` tell."""

    @abstractmethod
    def part(self, part: dict[str, Any], path: Path, field: str) -> None:
        """Take one part, which stands at `path`. Raises InvalidJson where its shape is not the format's."""

    def content(self, content: Any, field: str) -> None:
        """Take a content that is a string or an array of parts.

        Raises:
            InvalidJson: it is neither, or a part is no object.
        """
        if type(content) is str:
            if content:
                self.items.append(Item(text_kind(self.role, content), ("content",), content))
        elif type(content) is list:
            self.parts(content, ("content",), f"{field}.content")
        else:
            raise InvalidJson(f"{field}.content must be a string or an array", field=f"{field}.content")

    def parts(self, parts: list[Any], path: Path, field: str) -> None:
        """Take an array of parts. Raises InvalidJson where one is no object."""
        check_parts(parts, field)
        for index, part in enumerate(parts):
            where = f"{field}[{index}]"
            if type(part) is not dict:
                raise InvalidJson(f"{where} must be an object", field=where)
            self.part(part, (*path, index), where)

    def reasoning(
        self, path: Path, encrypted: str, texts: Iterable[tuple[Path, str]] = (), *, fixed: bool = False
    ) -> None:
        """Take a block of the model's reasoning; see `reasoning_items`."""
        self.items += reasoning_items(path, encrypted, texts, fixed=fixed)

    def rest(self, value: dict[str, Any], known: frozenset[str]) -> None:
        """Take what else an object holds: it is counted, and kept as it is."""
        rest = {name: member for name, member in value.items() if name not in known and member is not None}
        if rest:
            self.other.append(canonical(rest).decode())

    def message(self, identity: bytes) -> Message:
        """All of it."""
        if self.other or self.more or not self.items:
            self.items.append(Item(ItemKind.OPAQUE, (), "", raw_json=True))
        return Message(
            role=self.role,
            items=tuple(self.items),
            identity=identity,
            calls=tuple(self.calls),
            answers=tuple(self.answers),
            other="\n".join((*self.names, *self.other)),
            media=sum(item.kind is ItemKind.IMAGE for item in self.items),
            opaque=self.opaque,
        )


def reasoning_items(
    path: Path, encrypted: str, texts: Iterable[tuple[Path, str]] = (), *, fixed: bool = False
) -> list[Item]:
    """The items of a block of reasoning: the block itself, and each readable text in it. A plain text is both in one.

    Args:
        path: where the block stands.
        encrypted: the encrypted text in it, such as its signature; empty if there is none.
        texts: the readable texts in it, each with its path; empty ones are left out.
        fixed: whether the provider may refuse the prompt without it.
    """
    block = Item(ItemKind.REASONING, path, encrypted, raw_json=True, fixed=fixed, opaque=opaque_tokens(encrypted))
    readable = [Item(ItemKind.REASONING, at, text, fixed=fixed) for at, text in texts if text]
    return readable if readable and readable[0].path == path else [block, *readable]


def without_reasoning(
    replacements: Mapping[Item, Replacement],
) -> tuple[dict[Path, bytes | None], dict[Item, Replacement], str]:
    """Tell what of a message is replaced from its reasoning, which is removed.

    Returns:
        The removals, by path; the other replacements; and the label for a message of which nothing else is left.
    """
    blocks: dict[Path, bytes | None] = {}
    others: dict[Item, Replacement] = {}
    label = ""
    places = {item.path for item in replacements if item.kind is ItemKind.REASONING}
    for item, text in replacements.items():
        if item.kind is not ItemKind.REASONING:
            others[item] = text
        elif not any(item.path[:length] in places for length in range(len(item.path))):  # else it goes with its block
            blocks[item.path] = None
            label = label or text or ""
    return blocks, others, label


Comparable = Callable[[dict[str, Any]], Any]
"""What of a message makes it the same in every spelling."""


def loaded(raw: bytes, field: str, *, identify: bool) -> dict[str, Any]:
    """The message as an object; without `identify` one that was loaded before. Raises InvalidJson."""
    value = load(raw, field) if identify else load_again(raw)
    if type(value) is not dict:
        raise InvalidJson(f"{field} must be an object", field=field)
    return value


def role_of(value: dict[str, Any], field: str, roles: Mapping[str, Role]) -> Role:
    """Who a message is from. Raises InvalidJson if its role is no string."""
    name = value.get("role")
    if type(name) is not str:
        raise InvalidJson(f"{field}.role must be a string", field=f"{field}.role")
    return roles.get(name, Role.OTHER)


def identity_of(value: dict[str, Any], comparable: Comparable, *, identify: bool) -> bytes:
    """The identity, or none where it is known."""
    return digest(canonical(comparable(value))) if identify else b""
