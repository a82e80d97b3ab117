"""Judging one answer against the prompt that was sent, with the oracle's eyes only.

What the answer claims (which items it trimmed, where its own text stands) is used to check that the claims are true,
never to excuse anything.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from prompt_sidecar.facts.trim_calls import OwnTextKind, OwnTextPlace, Trim, TrimAnswer
from prompt_sidecar.trim.entries import Action
from tests.oracle.alignment import Alignment, alignment
from tests.oracle.baselines import Entry, Sized
from tests.oracle.runs import Run
from tests.oracle.shapes import (
    OPENAI_CHAT,
    blocks_of,
    canonical,
    item_bytes,
    messages_of,
    results_of,
    role_of,
    texts_of,
)
from tests.oracle.tokens import count_message, count_prompt
from tests.oracle.validity import Kind, defects, independent_new_defects, new_defects


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]
    system: msgspec.Raw = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A body in slices: the raw bytes of the system prompt and of each message, and the decoded messages."""

    system: bytes
    slices: tuple[bytes, ...]
    messages: tuple[Any, ...]

    @property
    def decoded(self) -> dict[str, Any]:
        """Return the body as far as the oracle needs it."""
        system = json.loads(self.system)
        return {"messages": list(self.messages)} | ({} if system is None else {"system": system})

    def entries(self) -> list[Entry]:
        """Return what the ruler measures: each system block, then each message."""
        return [_entry(piece) for piece in (*self.system_pieces(), *self.slices)]

    def system_pieces(self) -> list[bytes]:
        """Return the system prompt's blocks, or its string, as raw JSON."""
        if self.system == b"null":
            return []
        if self.system.startswith(b"["):
            return [bytes(piece) for piece in msgspec.json.decode(self.system, type=list[msgspec.Raw])]
        return [self.system]


def prompt_of(body: bytes) -> Prompt:
    """Split a body."""
    split = msgspec.json.decode(body, type=_Body)
    slices = tuple(bytes(piece) for piece in split.messages)
    return Prompt(bytes(split.system), slices, tuple(_decoded(piece) for piece in slices))


@lru_cache(maxsize=20_000)
def _decoded(piece: bytes) -> Any:
    return json.loads(piece)


@lru_cache(maxsize=50_000)
def _entry(piece: bytes) -> Entry:
    return hashlib.sha256(piece).digest(), count_message(json.loads(piece))


def sized(prompt: Prompt) -> list[Sized]:
    """Return a sent prompt as the baselines take it."""
    head = [Sized(_entry(piece), opens=False) for piece in prompt.system_pieces()]
    return head + [
        Sized(_entry(piece), opens=role_of(message) == "assistant")
        for piece, message in zip(prompt.slices, prompt.messages, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the oracle says about one answer. Every tuple of complaints is empty if all is well."""

    entries: tuple[Entry, ...]
    own: frozenset[int]
    """Places of the sidecar's own text among the entries."""
    tail: int
    """Entries at the end that are the note, which is gone at the next call."""
    shown: Mapping[int, bytes]
    """Digest of each message that stays, by its index as in `trims`."""
    edited: frozenset[int]
    trims: Mapping[tuple[int, int], tuple[Action, int, str]]
    """Action, tokens saved and id of each trimmed item, by message and item index."""
    complaints: tuple[str, ...]


def judge(run: Run, sent: Prompt, answer: TrimAnswer) -> Verdict:
    """Compare an answer with what was sent."""
    assert answer.prompt.body is not None
    got = prompt_of(answer.prompt.body)
    own_messages, complaints = _own_messages(got, answer)
    absent = {trim.message_index + run.leading for trim in answer.trimmed.trims if trim.action is Action.DROPPED}
    matched = alignment(run.format, sent.messages, got.messages, own_messages, absent)
    complaints += [f"message {place} stands for none that was sent" for place in matched.strangers]
    fresh = new_defects(run.format, sent.decoded, got.decoded, own_messages)
    complaints += [f"new defect: {defect}" for defect in fresh]
    independent = independent_new_defects(run.format, sent.decoded, got.decoded, own_messages)
    complaints += [f"new defect, second opinion: {defect}" for defect in independent]
    complaints += _identity(run, sent, got, matched, answer.trimmed.trims)
    complaints += _figures(answer)
    shift = len(got.system_pieces())
    ours = {piece.text for piece in answer.prompt.own_text}
    own_system = {place for place, piece in enumerate(got.system_pieces()) if ours & set(texts_of(json.loads(piece)))}
    tail = sum(piece.place is OwnTextPlace.TAIL for piece in answer.prompt.own_text if piece.message_index >= 0)
    lead = run.leading
    return Verdict(
        entries=tuple(got.entries()),
        own=frozenset({place + shift for place in own_messages} | own_system),
        tail=tail,
        shown={old - lead: _entry(got.slices[new])[0] for new, old in matched.pairs if old >= lead},
        edited=frozenset(old - lead for new, old in matched.pairs if got.slices[new] != sent.slices[old]),
        trims={
            (trim.message_index, trim.item_index): (trim.action, trim.tokens_saved, trim.stash_id)
            for trim in answer.trimmed.trims
        },
        complaints=tuple(complaints),
    )


def _own_messages(got: Prompt, answer: TrimAnswer) -> tuple[set[int], list[str]]:
    places: set[int] = set()
    complaints = []
    for piece in answer.prompt.own_text:
        if piece.message_index < 0:
            if piece.place is not OwnTextPlace.CALLER and piece.text not in "\n".join(texts_of(json.loads(got.system))):
                complaints.append(f"{piece.kind} is not in the system prompt")
            continue
        places.add(piece.message_index)
        message = got.messages[piece.message_index]
        if [piece.text] != texts_of(message.get("content")) and not any(
            text == piece.text for text in texts_of(message)
        ):
            complaints.append(f"{piece.kind} is not message {piece.message_index}")
    return places, complaints


def _identity(run: Run, sent: Prompt, got: Prompt, matched: Alignment, trims: Sequence[Trim]) -> list[str]:
    """Messages that no trim names come back as the very bytes; those dropped are named; nothing else is."""
    lead = run.leading
    dropped = {trim.message_index + lead for trim in trims if trim.action is Action.DROPPED}
    collapsed = {trim.message_index + lead for trim in trims if trim.action is Action.COLLAPSED}
    edited = {trim.message_index + lead for trim in trims if trim.action is not Action.DROPPED}
    stays = {old: new for new, old in matched.pairs}
    complaints = []
    for old, piece in enumerate(sent.slices):
        if old not in stays:
            if old not in dropped | collapsed:
                complaints.append(f"sent message {old} is gone, and no trim says so")
        elif got.slices[stays[old]] != piece and old not in edited:
            complaints.append(f"sent message {old} has other bytes, and no trim says so")
    return complaints


def _figures(answer: TrimAnswer) -> list[str]:
    complaints = []
    if answer.fits != (answer.tokens.after <= answer.tokens.limit):
        complaints.append(f"fits is {answer.fits} at {answer.tokens.after} of {answer.tokens.limit} tokens")
    if answer.fits == (answer.no_fit is not None):
        complaints.append(f"fits is {answer.fits}, the reason {answer.no_fit}")
    if answer.cache.kept + answer.cache.rewritten != answer.tokens.after:
        total = answer.cache.kept + answer.cache.rewritten
        complaints.append(f"kept and rewritten tokens are {total}, those of the prompt {answer.tokens.after}")
    return complaints


def protected_tokens(run: Run, sent: Prompt) -> int:
    """Count the text that is never touched: system prompt, tools, opening messages and the newest turn.

    And the iteration that holds the user's last words, which is never dropped, though its other text may be clipped.
    """
    first = next((i for i, message in enumerate(sent.messages) if role_of(message) == "assistant"), len(sent.messages))
    last = max((i for i, message in enumerate(sent.messages) if role_of(message) == "assistant"), default=first)
    while last > first and role_of(sent.messages[last - 1]) == "assistant":
        last -= 1
    kept = [*sent.messages[:first], *sent.messages[max(last, first) :]]
    kept += [message for message in sent.messages[first:last] if _never_dropped(run.format, message)]
    kept += _last_words(run.format, sent.messages[first:last])
    return count_prompt(sent.decoded | {"messages": kept})


def stuck_tokens(run: Run, got: Prompt) -> int:
    """Count what returned iterations take that stay.

    That is those whose call nobody answered, as an answer may still come late, and those with a change of tools, which
    is in force from there on.
    """
    held = {defect.message for defect in defects(run.format, got.decoded) if defect.kind is Kind.UNANSWERED_CALL}
    held |= {place for place, message in enumerate(got.messages) if any(map(_changes_tools, blocks_of(message)))}
    last = max((place for place, message in enumerate(got.messages) if role_of(message) == "assistant"), default=0)
    total = taken = 0
    stuck = False
    for place, message in enumerate(got.messages[:last]):
        if role_of(message) == "assistant" and (place == 0 or role_of(got.messages[place - 1]) != "assistant"):
            total, taken, stuck = total + (taken if stuck else 0), 0, False
        stuck = stuck or place in held
        taken += count_message(message)
    return total + (taken if stuck else 0)


def _changes_tools(block: object) -> bool:
    return isinstance(block, Mapping) and block.get("type") in {"tool_addition", "tool_removal"}


def _last_words(format: str, messages: Sequence[Any]) -> Sequence[Any]:
    """The iteration in which the user spoke last, of those given; none if the user did not."""
    spoke = [at for at, one in enumerate(messages) if role_of(one) == "user" and not results_of(format, one)]
    if not spoke:
        return []
    start = next((at for at in range(spoke[-1], -1, -1) if role_of(messages[at]) == "assistant"), 0)
    while start and role_of(messages[start - 1]) == "assistant":
        start -= 1
    end = next((at for at in range(spoke[-1], len(messages)) if role_of(messages[at]) == "assistant"), len(messages))
    return messages[start:end]


def _never_dropped(format: str, message: Any) -> bool:
    return format == OPENAI_CHAT and role_of(message) in ("system", "developer")


def originals_complaints(run: Run, sent: Prompt, found: Iterable[tuple[Trim, bytes | None]]) -> list[str]:
    """Say which originals are not, byte for byte, an item of the message that they are said to be from.

    Two trims of a message may not both claim the one item that the message has.
    """
    complaints = []
    claimed: dict[int, Counter[bytes]] = {}
    for trim, original in found:
        place = trim.message_index + run.leading
        name = f"original {trim.kind} {trim.item_index} of message {trim.message_index}"
        if original is None:
            complaints.append(f"{name} is not found")
            continue
        there = Counter(item_bytes(run.format, sent.messages[place]))
        item = original
        if item not in there:
            # Not a text: then the raw JSON as it was sent, byte for byte.
            if original not in sent.slices[place]:
                complaints.append(f"{name} is no part of that message")
                continue
            item = canonical(json.loads(original))
        claimed.setdefault(place, Counter())[item] += 1
        if claimed[place][item] > there[item]:
            complaints.append(f"{name} is claimed more often than it is there")
    return complaints


def same_answer(expected: TrimAnswer, actual: TrimAnswer) -> list[str]:
    """Say in what two answers to the same history differ: decoded body, trims, ids, registry, own text."""
    assert expected.prompt.body is not None
    assert actual.prompt.body is not None
    differences = []
    if canonical(json.loads(expected.prompt.body)) != canonical(json.loads(actual.prompt.body)):
        differences.append(_first_difference(expected.prompt.body, actual.prompt.body))
    if list(expected.trimmed.trims) != list(actual.trimmed.trims):
        ours, theirs = set(expected.trimmed.trims), set(actual.trimmed.trims)
        differences.append(f"trims: {len(ours - theirs)} only in the first, {len(theirs - ours)} only in the second")
    if list(expected.trimmed.stash_entries) != list(actual.trimmed.stash_entries):
        differences.append("stash entries")
    if list(expected.prompt.own_text) != list(actual.prompt.own_text):
        kinds = {kind for kind in OwnTextKind if _of(kind, expected) != _of(kind, actual)}
        differences.append(f"own text: {', '.join(sorted(kinds))}")
    if (expected.fits, expected.tokens.after) != (actual.fits, actual.tokens.after):
        differences.append(f"tokens after: {expected.tokens.after} and {actual.tokens.after}")
    return differences


def _of(kind: OwnTextKind, answer: TrimAnswer) -> list[Any]:
    return [piece for piece in answer.prompt.own_text if piece.kind is kind]


def _first_difference(expected: bytes, actual: bytes) -> str:
    ours, theirs = messages_of(json.loads(expected)), messages_of(json.loads(actual))
    for place, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if canonical(one) != canonical(other):
            return f"body: message {place} of {len(ours)} and {len(theirs)}"
    return f"body: {len(ours)} and {len(theirs)} messages, or another field"
