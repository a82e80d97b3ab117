"""Reads and writes messages of the made-up API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from prompt_sidecar.prompt.ambiguous import tolerant
from prompt_sidecar.prompt.format import Format, Placement, Replacement
from prompt_sidecar.prompt.gathering import Gathering, identity_of, loaded, role_of
from prompt_sidecar.prompt.items import Item, ItemKind, Message, Path, Role, text_kind
from prompt_sidecar.prompt.jsontext import splice
from prompt_sidecar.prompt.parts import originals_at, string

_ROLES: Final[Mapping[str, Role]] = {
    "director": Role.SYSTEM,
    "person": Role.USER,
    "machine": Role.ASSISTANT,
    "device": Role.TOOL,
}


class _Reader(Gathering):
    def part(self, part: dict[str, Any], path: Path, field: str) -> None:
        """Read a use of a device."""
        del field
        ref, name = string(part.get("ref")), string(part.get("device"))
        self.calls.append(ref)
        self.names.append(name)
        self.items.append(Item(ItemKind.ARGUMENTS, (*path, "with"), string(part.get("with")), call_id=ref, tool=name))

    def add_text(self, text: str, ref: str) -> None:
        """Read what is said."""
        if self.role is Role.TOOL:
            self.answers.append(ref)
            self.items.append(Item(ItemKind.RESULT, ("said",), text, call_id=ref, result=0))
        elif text:
            self.items.append(Item(text_kind(self.role, text), ("said",), text))


def read(raw: bytes | memoryview, field: str, identify: bool = True) -> Message:
    """Decode one message; see `Format.read`."""
    value = loaded(raw, field, identify=identify)
    reader = _Reader(role_of(value, field, _ROLES))
    reader.add_text(string(value.get("said")), string(value.get("ref")))
    reader.parts(value.get("uses") or [], ("uses",), f"{field}.uses")
    reader.rest(value, frozenset({"role", "said", "uses", "ref"}))
    return reader.message(identity_of(value, lambda whole: whole, identify=identify))


def write(raw: bytes, replacements: Mapping[Item, Replacement]) -> bytes:
    """Return the message with items replaced."""
    return splice(
        raw,
        {
            item.path: orjson.dumps(text or ("{}" if item.kind is ItemKind.ARGUMENTS else ""))
            for item, text in replacements.items()
        },
    )


def tool(name: str, description: str, parameters: bytes) -> bytes:
    """A tool's definition."""
    return orjson.dumps({"device": name, "about": description, "takes": orjson.Fragment(parameters)})


FORMAT: Final = tolerant(
    Format(
        name="made_up",
        read=read,
        write=write,
        originals=originals_at,
        tool=tool,
        placement=Placement.inside(lambda text: orjson.dumps({"role": "director", "said": text})),
        leading_system=True,
        messages_field="dialogue",
        tool_fields=("tools",),
    )
)
