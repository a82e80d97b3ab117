"""What makes a provider refuse a prompt, by the providers' documented rules, and whether trimming added any of it.

Real histories have defects, and they must pass through unworsened. So the check is never "is it valid" but "is every
defect of the trimmed prompt one that the sent prompt had, at the same message and for the same call". Messages of the
two are matched by `alignment`.

Sources: OpenAI API reference, chat completions (messages, tool_calls); Anthropic API reference, messages, and its
guides on tool use (results follow their calls at once and stand first in the user turn), on extended thinking, on
system messages and changes of tools in mid-conversation, and on prompt caching (at most four marks). Anthropic joins
consecutive messages of one role into a turn, so pairing is judged on turns there; such messages are reported as
CONSECUTIVE_ROLES, which alone gets no prompt refused by Anthropic itself but does by models behind other gateways.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import toolrepair

from tests.oracle.alignment import alignment
from tests.oracle.shapes import (
    ANTHROPIC_MESSAGES,
    OPENAI_CHAT,
    blocks_of,
    calls_of,
    messages_of,
    results_of,
    role_of,
    typed_blocks,
)


class Kind(StrEnum):
    """The kinds of defects."""

    NO_MESSAGES = "no_messages"
    NOT_A_MESSAGE = "not_a_message"
    UNKNOWN_ROLE = "unknown_role"
    EMPTY_MESSAGE = "empty_message"
    EMPTY_TEXT = "empty_text"
    ORPHANED_RESULT = "orphaned_result"
    """It answers a call that is nowhere before it."""
    MISPLACED_RESULT = "misplaced_result"
    """It answers a call, but does not stand right after it."""
    DUPLICATE_RESULT = "duplicate_result"
    UNANSWERED_CALL = "unanswered_call"
    BAD_CALL = "bad_call"
    """A call without a name or id."""
    BAD_ARGUMENTS = "bad_arguments"
    """OpenAI: not a string that holds a JSON object. Anthropic: not an object."""
    TEXT_BEFORE_RESULT = "text_before_result"
    CONSECUTIVE_ROLES = "consecutive_roles"
    FIRST_NOT_USER = "first_not_user"
    THINKING_LAST = "thinking_last"
    """An assistant message that ends with a thinking block."""
    MISPLACED_SYSTEM = "misplaced_system"
    """Anthropic: system messages that do not follow a user's turn or a server tool's result, or that neither precede an
    assistant's turn nor end the prompt; so also between a call and its results."""
    SYSTEM_IN_A_ROW = "system_in_a_row"
    """Anthropic: a system message after another one. Its own page takes them, others' of its models do not."""
    BAD_SYSTEM = "bad_system"
    """System content that is neither text nor, in the history of Anthropic's, a change of tools."""
    TOO_MANY_CACHE_MARKS = "too_many_cache_marks"


TOLERATED = frozenset({Kind.CONSECUTIVE_ROLES, Kind.SYSTEM_IN_A_ROW})
"""Kinds that Anthropic itself accepts (it joins the messages)."""

CACHE_MARKS = 4
"""Anthropic refuses a body with more `cache_control` marks."""

NOWHERE = -1
"""Message index of a defect that belongs to the whole prompt."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One broken rule: which, at which message, for which call (empty: none)."""

    kind: Kind
    message: int
    call_id: str = ""


def defects(format: str, body: object) -> Counter[Defect]:
    """Return the defects of a decoded request body or bare message array."""
    rules: Callable[[object, list[Any]], Iterator[Defect]]
    rules = {OPENAI_CHAT: _openai, ANTHROPIC_MESSAGES: _anthropic}[format]
    messages = messages_of(body)
    if not messages:
        return Counter([Defect(Kind.NO_MESSAGES, NOWHERE)])
    return Counter(rules(body, messages))


def refused(found: Counter[Defect]) -> Counter[Defect]:
    """Return the defects for which the format's own provider refuses a prompt."""
    return Counter({defect: count for defect, count in found.items() if defect.kind not in TOLERATED})


def new_defects(format: str, before: object, after: object, inserted: Collection[int] = ()) -> Counter[Defect]:
    """Return the defects of `after` that `before` did not have at the same message and for the same call.

    `inserted` are indices of messages of `after` that stand for none of `before`.
    """
    places = dict(alignment(format, messages_of(before), messages_of(after), inserted).pairs)
    places[NOWHERE] = NOWHERE
    old = defects(format, before)
    fresh: Counter[Defect] = Counter()
    for defect, count in defects(format, after).items():
        place = places.get(defect.message)
        known = 0 if place is None else old[Defect(defect.kind, place, defect.call_id)]
        if count > known:
            fresh[defect] += count - known
    return fresh


def no_new_defects(format: str, before: object, after: object, inserted: Collection[int] = ()) -> bool:
    """Tell whether every defect of `after` was there in `before`."""
    return not new_defects(format, before, after, inserted)


def independent_defects(format: str, messages: list[Any]) -> Counter[tuple[str, int, str]]:
    """Return what the PyPI package tool-call-repair finds: code, message index, call id."""
    name: Any = "anthropic" if format == ANTHROPIC_MESSAGES else "openai"
    violations = toolrepair.validate(messages, format=name)
    return Counter((found.code, found.message, str(found.id or "")) for found in violations)


def independent_new_defects(
    format: str, before: object, after: object, inserted: Collection[int] = ()
) -> Counter[tuple[str, int, str]]:
    """As `new_defects`, in the judgement of tool-call-repair."""
    places = dict(alignment(format, messages_of(before), messages_of(after), inserted).pairs)
    old = independent_defects(format, messages_of(before))
    fresh: Counter[tuple[str, int, str]] = Counter()
    for (code, message, call_id), count in independent_defects(format, messages_of(after)).items():
        known = old[code, places[message], call_id] if message in places else 0
        if count > known:
            fresh[code, message, call_id] += count - known
    return fresh


_OPENAI_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_ANTHROPIC_ROLES = frozenset({"user", "assistant", "system"})
_SYSTEM_BLOCKS = frozenset({"text", "tool_addition", "tool_removal"})
_BLANK = re.compile(r"\s*\Z")


@dataclass(slots=True)
class _Pairing:
    """Calls and results as they come: what is owed now, what this turn asked, what was ever asked."""

    owed: Counter[str] = field(default_factory=Counter)
    asked_at: dict[str, int] = field(default_factory=dict)
    """Calls of this turn, and the message of each."""
    ever: set[str] = field(default_factory=set)

    def ask(self, call_id: str, index: int) -> None:
        self.owed[call_id] += 1
        self.asked_at[call_id] = index
        self.ever.add(call_id)

    def answer(self, call_id: str, index: int) -> Iterator[Defect]:
        if self.owed[call_id] > 0:
            self.owed[call_id] -= 1
        elif call_id in self.asked_at:
            yield Defect(Kind.DUPLICATE_RESULT, index, call_id)
        elif call_id in self.ever:
            yield Defect(Kind.MISPLACED_RESULT, index, call_id)
        else:
            yield Defect(Kind.ORPHANED_RESULT, index, call_id)

    def close(self) -> Iterator[Defect]:
        """End the turn: nothing can answer its calls any more."""
        for call_id in self.owed.elements():
            yield Defect(Kind.UNANSWERED_CALL, self.asked_at[call_id], call_id)
        self.owed, self.asked_at = Counter(), {}


def _openai(_: object, messages: list[Any]) -> Iterator[Defect]:
    pairing = _Pairing()
    for index, message in enumerate(messages):
        role = role_of(message)
        if role != "tool":
            yield from pairing.close()
        if not isinstance(message, Mapping):
            yield Defect(Kind.NOT_A_MESSAGE, index)
            continue
        if role not in _OPENAI_ROLES:
            yield Defect(Kind.UNKNOWN_ROLE, index)
        yield from _openai_content(index, role, message)
        for call in calls_of(OPENAI_CHAT, message):
            pairing.ask(call.call_id, index)
            if not isinstance(call.arguments, str) or not _is_object_text(call.arguments):
                yield Defect(Kind.BAD_ARGUMENTS, index, call.call_id)
            if not call.name:
                yield Defect(Kind.BAD_CALL, index, call.call_id)
        for call_id in results_of(OPENAI_CHAT, message):
            yield from pairing.answer(call_id, index)
    yield from pairing.close()


def _openai_content(index: int, role: str, message: Mapping[str, Any]) -> Iterator[Defect]:
    content = message.get("content")
    empty = content is None or content in ([], "")
    if role == "assistant":
        calls = message.get("tool_calls")
        if calls is not None and (not isinstance(calls, list) or not calls):
            yield Defect(Kind.BAD_CALL, index)
        if empty and not any(message.get(key) for key in ("tool_calls", "function_call", "refusal", "audio")):
            yield Defect(Kind.EMPTY_MESSAGE, index)
    elif empty and not (role == "tool" and content == ""):
        yield Defect(Kind.EMPTY_MESSAGE, index)
    if role in ("system", "developer") and any(
        not isinstance(block, Mapping) or block.get("type") != "text" for block in blocks_of(message)
    ):
        yield Defect(Kind.BAD_SYSTEM, index)
    for block in typed_blocks(message, "text"):
        if not isinstance(block.get("text"), str):
            yield Defect(Kind.EMPTY_TEXT, index)


def _anthropic(body: object, messages: list[Any]) -> Iterator[Defect]:
    yield from _anthropic_body(body)
    yield from _anthropic_instructions(messages)
    if role_of(messages[0]) != "user":
        yield Defect(Kind.FIRST_NOT_USER, 0)
    pairing = _Pairing()
    other_seen = False
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            yield Defect(Kind.NOT_A_MESSAGE, index)
            continue
        role, previous = role_of(message), role_of(messages[index - 1]) if index else ""
        yield from _anthropic_role(index, role, previous)
        if role == "assistant" and previous != "assistant":
            yield from pairing.close()
        if role == "user" and previous != "user":
            other_seen = False
        yield from _anthropic_content(index, role, message, last=index == len(messages) - 1)
        for call in calls_of(ANTHROPIC_MESSAGES, message):
            pairing.ask(call.call_id, index)
            if not isinstance(call.arguments, Mapping):
                yield Defect(Kind.BAD_ARGUMENTS, index, call.call_id)
            if not call.name or not call.call_id:
                yield Defect(Kind.BAD_CALL, index, call.call_id)
        for block in (blocks_of(message) or [message.get("content")]) if role == "user" else []:
            if isinstance(block, Mapping) and block.get("type") == "tool_result":
                call_id = str(block.get("tool_use_id") or "")
                if other_seen:
                    yield Defect(Kind.TEXT_BEFORE_RESULT, index, call_id)
                yield from pairing.answer(call_id, index)
            else:
                other_seen = True
    yield from pairing.close()


def _anthropic_body(body: object) -> Iterator[Defect]:
    if isinstance(body, Mapping):
        yield from _anthropic_system(body.get("system"))
        if sum(_cache_marks(body.get(key)) for key in ("system", "tools", "messages")) > CACHE_MARKS:
            yield Defect(Kind.TOO_MANY_CACHE_MARKS, NOWHERE)


def _anthropic_role(index: int, role: str, previous: str) -> Iterator[Defect]:
    if role not in _ANTHROPIC_ROLES:
        yield Defect(Kind.UNKNOWN_ROLE, index)
    if role == previous and role in ("user", "assistant"):
        yield Defect(Kind.CONSECUTIVE_ROLES, index)
    if role == previous == "system":
        yield Defect(Kind.SYSTEM_IN_A_ROW, index)


def _anthropic_instructions(messages: list[Any]) -> Iterator[Defect]:
    """Judge the system messages of a history: those in a row together, at the first of them."""
    roles = [role_of(message) for message in messages]
    for index, role in enumerate(roles):
        if role != "system":
            continue
        blocks = blocks_of(messages[index])
        if any(not isinstance(block, Mapping) or block.get("type") not in _SYSTEM_BLOCKS for block in blocks):
            yield Defect(Kind.BAD_SYSTEM, index)
        if index and roles[index - 1] == "system":
            continue
        end = next((at for at in range(index, len(roles)) if roles[at] != "system"), len(roles))
        if all(_sets_effort(message) for message in messages[index:end]):
            continue
        follows = index > 0 and (roles[index - 1] == "user" or _ends_served(messages[index - 1]))
        if not follows or (end < len(roles) and roles[end] != "assistant"):
            yield Defect(Kind.MISPLACED_SYSTEM, index)


def _sets_effort(message: Any) -> bool:
    """Whether a system message only sets the effort, which may stand anywhere."""
    return isinstance(message, Mapping) and not message.get("content") and message.get("output_config") is not None


def _ends_served(message: Any) -> bool:
    """Whether an assistant's message ends in the result of a tool that the provider ran."""
    blocks = blocks_of(message)
    kind = blocks[-1].get("type") if blocks and isinstance(blocks[-1], Mapping) else ""
    return role_of(message) == "assistant" and str(kind).endswith("_tool_result")


def _anthropic_content(index: int, role: str, message: Mapping[str, Any], *, last: bool) -> Iterator[Defect]:
    content = message.get("content")
    if not isinstance(content, (str, list)) or not content:
        if not (last and role == "assistant") and not (role == "system" and _sets_effort(message)):
            yield Defect(Kind.EMPTY_MESSAGE, index)
        return
    if isinstance(content, str):
        if _BLANK.match(content):
            yield Defect(Kind.EMPTY_TEXT, index)
        return
    for block in content:
        if not isinstance(block, Mapping):
            yield Defect(Kind.NOT_A_MESSAGE, index)
            continue
        inner = block.get("content") if block.get("type") == "tool_result" else None
        for text in [block, *(inner if isinstance(inner, list) else [])]:
            if isinstance(text, Mapping) and text.get("type") == "text" and not _has_text(text.get("text")):
                yield Defect(Kind.EMPTY_TEXT, index)
    end = content[-1]
    if role == "assistant" and isinstance(end, Mapping) and end.get("type") in ("thinking", "redacted_thinking"):
        yield Defect(Kind.THINKING_LAST, index)


def _anthropic_system(system: object) -> Iterator[Defect]:
    if system is None or isinstance(system, str):
        return
    if not isinstance(system, list):
        yield Defect(Kind.BAD_SYSTEM, NOWHERE)
        return
    for block in system:
        if not isinstance(block, Mapping) or block.get("type") != "text":
            yield Defect(Kind.BAD_SYSTEM, NOWHERE)
        elif not _has_text(block.get("text")):
            yield Defect(Kind.EMPTY_TEXT, NOWHERE)


def _has_text(text: object) -> bool:
    return isinstance(text, str) and not _BLANK.match(text)


def _is_object_text(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _cache_marks(value: object) -> int:
    if isinstance(value, Mapping):
        own = 1 if value.get("cache_control") is not None else 0
        return own + sum(_cache_marks(value.get(key)) for key in ("content",))
    if isinstance(value, list):
        return sum(_cache_marks(inner) for inner in value)
    return 0
