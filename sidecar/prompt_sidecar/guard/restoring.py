"""Restoring values: masks in a call's arguments are replaced by their values, where the settings allow it.

A list names pairs of a tool and a kind of value. Without the list nothing is restored: text that a tool returned can
make a model call any tool with any mask, and that tool must receive only the mask.

Only strings among the arguments are filled, never names of members. JSON in a string is decoded, so that a value is
escaped as often as its place requires; where a program has escaped the mask, the value is escaped in the same way.
Arguments that two parsers may read differently, such as those with a member twice, are filled like others: no other
byte changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from prompt_sidecar.guard.masks import mask, written
from prompt_sidecar.guard.vault import Value
from prompt_sidecar.prompt.literals import TextEdit, changed, nested_edits
from prompt_sidecar.prompt.strings import MAX_NESTED, values_in

ANY: Final = "*"
MOST_NAMED: Final = 100
"""Masks without a value that are listed for a call: more than any call has; further ones are only counted."""

Lookup = Callable[[str], Value | None]
"""Returns the value of a mask's id, or None."""


@dataclass(slots=True)
class RestoredCall:
    """A call's arguments with values in place of masks."""

    arguments: bytes
    restored: Counter[str] = field(default_factory=Counter)
    """Masks that became values, by kind."""
    not_allowed: Counter[str] = field(default_factory=Counter)
    """Masks that no pair on the list allows, by kind."""
    unknown: int = 0
    """Masks whose value is not known in this run."""
    unknown_masks: dict[str, None] = field(default_factory=dict)
    """Each unknown mask once, as the sidecar writes it; the first `MOST_NAMED`."""
    filled: dict[str, Value] = field(default_factory=dict)
    """The values that were put in place of masks, by the masks' ids."""


def allows(pairs: Sequence[str], tool: str, kind: str) -> bool:
    """Whether a list of `tool:kind` pairs allows a tool the values of a kind; `*` means all of either."""
    for pair in pairs:
        of_tool, _, of_kind = pair.rpartition(":")
        if of_tool in {ANY, tool} and of_kind in {ANY, kind}:
            return True
    return False


def gives_back(pairs: Sequence[str], kind: str) -> bool:
    """Whether a list of `tool:kind` pairs allows any tool the values of a kind."""
    return any(pair.rpartition(":")[2] in {ANY, kind} for pair in pairs)


def restore(arguments: bytes, tool: str, pairs: Sequence[str], lookup: Lookup) -> RestoredCall:
    """Replace masks in a call's arguments; arguments that are not JSON stay unchanged.

    Args:
        arguments: JSON, as the model wrote it.
        tool: the tool's name.
        pairs: what the settings allow.
        lookup: the run's values.
    """
    done = RestoredCall(arguments)
    strings = values_in(arguments)
    if strings is None:
        return done

    def filled(text: str, depth: int) -> Sequence[TextEdit]:
        is_nested = depth < MAX_NESTED and text.lstrip(" \t\r\n")[:1] in ("{", "[")
        inner = values_in(text.encode()) if is_nested else None
        if inner is not None:
            changes = {place: within for place, each in inner if (within := filled(each, depth + 1))}
            return nested_edits(text, changes) if changes else ()
        edits: list[TextEdit] = []
        for found in written(text):
            known = lookup(found.id)
            if known is None or known.kind != found.kind:
                done.unknown += 1
                if len(done.unknown_masks) < MOST_NAMED:
                    done.unknown_masks[mask(found.kind, found.id)] = None
            elif not allows(pairs, tool, known.kind):
                done.not_allowed[known.kind] += 1
            else:
                done.restored[known.kind] += 1
                done.filled[found.id] = known
                edits.append(TextEdit(found.start, found.end, found.spelled(known.text)))
        return edits

    done.arguments = changed(arguments, {place: edits for place, each in strings if (edits := filled(each, 0))})
    return done
