"""A run in any format, played turn by turn: what was sent, what came back, and what holds between the two.

Nothing here knows a format: messages are slices of JSON, and which of them are the model's the format's reader says.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from prompt_sidecar.facts.trim_calls import Edit, OwnTextPlace, TrimAnswer
from prompt_sidecar.prompt.format import Format
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.items import Role
from prompt_sidecar.trim.entries import Action
from prompt_sidecar.trim.presets import PRESETS
from tests.conformance.case import Body, Case
from tests.promises.engine import Engine

LIMITS = (300, 2_000, 6_000, 12_000, 40_000)
"""Tokens: from one that nothing fits to one that all fits; our own text has room from 4,000 on."""
_POLICIES: tuple[dict[str, object], ...] = (
    {},
    {"registry_share": 0.02},
    {"registry_share": 0.02, "cap_text_bytes": 1_024, "condense": "off"},
    {"registry_share": 0.02, "cap_text_bytes": 1_024, "condense": "full"},
)
_RANKS = {Action.CONDENSED: 0, Action.ELIDED: 1, Action.CLIPPED: 2, Action.COLLAPSED: 2, Action.DROPPED: 3}
_raw_array = msgspec.json.Decoder(list[msgspec.Raw])
_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def edited(raw: bytes, edits: Iterable[Edit]) -> Any:
    """What was sent, with edits applied one after the other.

    Raises:
        LookupError: one has no place.
        TypeError: one has its place in something that has no members.
    """
    value: Any = json.loads(raw)
    for edit in edits:
        *way, last = edit.pointer.split("/")[1:]
        target = value
        for step in way:
            target = target[int(step)] if isinstance(target, list) else target[step]
        place: Any = int(last) if isinstance(target, list) else last
        if edit.operation == "remove":
            del target[place]
        elif edit.operation == "insert" and isinstance(target, list):
            target.insert(place, json.loads(edit.value))
        else:
            target[place] = json.loads(edit.value)
    return value


@dataclass(frozen=True, slots=True)
class Played:
    """A run: its format, its whole body, and what is in force."""

    case: Case
    body: Body = field(repr=False)
    limit: int
    preset: str
    bare: bool
    """Whether the agent sends the bare array."""
    policy: Mapping[str, object] = field(default_factory=dict)

    @property
    def form(self) -> Format:
        """The format as the sidecar has it."""
        return FORMATS[self.case.format]

    @property
    def messages(self) -> list[Any]:
        """All messages, decoded."""
        found: list[Any] = self.body[self.form.messages_field]
        return found

    def engine(self) -> Engine:
        """A process that has not seen the run."""
        model = str(self.body.get("model", "")) if self.bare else ""
        return Engine(limit=self.limit, preset=self.preset, policy=self.policy, model=model)

    def trim(self, engine: Engine, raw: bytes, **fields: Any) -> TrimAnswer:
        """Have a prompt of the run trimmed; a bare array does not say which model it is for, so the call does."""
        return engine.trim(self.case.format, raw, model=str(self.body.get("model", "")), **fields)

    def raw(self, messages: Sequence[Any], member: bytes | None = None) -> bytes:
        """A body of these messages, decoded or raw; `member`: the system member in place of the run's own."""
        slices = [bytes(each) if isinstance(each, bytes) else _dumps(each) for each in messages]
        array = b"[" + b",".join(slices) + b"]"
        if self.bare:
            return array
        members = {name: _dumps(value) for name, value in self.body.items()} | {self.form.messages_field: array}
        if member is not None and self.form.system is not None:
            there = next((name for name in self.form.system.names if name in members), self.form.system.names[0])
            members[there] = member
        return b"{" + b",".join(_dumps(name) + b":" + value for name, value in members.items()) + b"}"

    def whole(self, raw: bytes) -> Body:
        """A body as the provider gets it: a bare array with what the agent puts around it."""
        value = json.loads(raw)
        return self.body | {self.form.messages_field: value} if self.bare else value

    def roles(self) -> list[Role]:
        """The role of each message."""
        return [self.form.read(_dumps(message), "message").role for message in self.messages]

    def turns(self) -> list[int]:
        """How many messages each prompt of the run holds: those before each block of the model, then all."""
        roles = self.roles()
        places = [
            place
            for place in range(1, len(roles))
            if roles[place] is Role.ASSISTANT and roles[place - 1] is not Role.ASSISTANT
        ]
        return [
            *(place for place in places if not self.case.defects(self.whole(self.raw(self.messages[:place])))),
            len(roles),
        ]

    def slices(self, raw: bytes) -> list[bytes]:
        """The messages of a body as raw JSON."""
        if not self.bare:
            raw = bytes(_raw_object.decode(raw)[self.form.messages_field])
        return [bytes(each) for each in _raw_array.decode(raw)]

    def member(self, raw: bytes) -> bytes | None:
        """The system member of a body as raw JSON; None if it has none."""
        if self.bare or self.form.system is None:
            return None
        members = _raw_object.decode(raw)
        found = [bytes(members[name]) for name in self.form.system.names if name in members]
        return found[0] if found else None

    def leading(self, count: int) -> int:
        """Leading system messages among the first so many, which message indices do not count."""
        roles = self.roles()[:count] if self.form.leading_system else []
        return next((place for place, role in enumerate(roles) if role is not Role.SYSTEM), len(roles))


def _dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@st.composite
def plays(draw: st.DrawFn, case: Case, *, most_iterations: int = 12) -> Played:
    """A run of a format under some preset and limit."""
    seed, iterations = draw(st.integers(0, 10_000)), draw(st.integers(1, most_iterations))
    body = case.history(random.Random(seed), iterations) | dict(draw(st.sampled_from(list(case.heads))))
    return Played(
        case=case,
        body=body,
        limit=draw(st.sampled_from(LIMITS)),
        preset=draw(st.sampled_from(list(PRESETS))),
        bare=draw(st.sampled_from([False, False, False, True])),
        policy=draw(st.sampled_from(_POLICIES)),
    )


# -- what holds between a prompt and its answer ----------------------------------------------------------------------


def complaints(play: Played, count: int, answer: TrimAnswer, engine: Engine) -> Iterator[str]:
    """What is wrong with the answer to the run's first `count` messages."""
    assert answer.prompt.body is not None
    yield from play.case.defects(play.whole(answer.prompt.body))
    yield from play.case.worsened(play.whole(play.raw(play.messages[:count])), play.whole(answer.prompt.body))
    sent, got = play.slices(play.raw(play.messages[:count])), play.slices(answer.prompt.body)
    own = {piece.message_index for piece in answer.prompt.own_text if piece.message_index >= 0}
    for piece in answer.prompt.own_text:
        if piece.place is not OwnTextPlace.CALLER and _dumps(piece.text)[1:-1] not in _dumps(
            json.loads(answer.prompt.body)
        ):
            yield f"{piece.kind} is not where it is said to be"
    rest = [each for place, each in enumerate(got) if place not in own]
    lead = play.leading(count)
    dropped = {trim.message_index + lead for trim in answer.trimmed.trims if trim.action is Action.DROPPED}
    touched = {trim.message_index + lead for trim in answer.trimmed.trims}
    stays = [place for place in range(count) if place not in dropped]
    if len(stays) != len(rest):
        yield f"{len(rest)} messages are left of {count}, and {len(dropped)} are said to be dropped"
        return
    for place, returned in zip(stays, rest, strict=True):
        if returned != sent[place] and place not in touched:
            yield f"message {place} has other bytes, and no trim says so"
    for trim in answer.trimmed.trims:
        original = engine.original(trim.stash_id)
        if original is None:
            yield f"original {trim.item_index} of message {trim.message_index} is not found"
        elif not _is_part(original, play.messages[trim.message_index + lead]):
            yield f"original {trim.item_index} is no part of message {trim.message_index}"
    if answer.fits != (answer.tokens.after <= answer.tokens.limit):
        yield "fits does not say whether it does"
    if answer.cache.kept + answer.cache.rewritten != answer.tokens.after:
        yield "kept and rewritten tokens do not make up the prompt"


def _is_part(original: bytes, message: Any) -> bool:
    """Whether an original is a text or a value of a message, or the whole."""
    text = original.decode(errors="replace")
    if any(text == each for each in _values(message) if isinstance(each, str)):
        return True
    try:
        value = json.loads(original)
    except ValueError:
        return False
    return any(value == each for each in _values(message))


def _values(value: Any) -> Iterator[Any]:
    yield value
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for each in inner:
        yield from _values(each)


def instability(play: Played, before: TrimAnswer, after: TrimAnswer) -> Iterator[str]:
    """What changed from one turn to the next that should not have."""
    assert before.prompt.body is not None
    assert after.prompt.body is not None
    if not after.cache.batch_point:
        old = play.slices(before.prompt.body)
        tail = {piece.message_index for piece in before.prompt.own_text if piece.place is OwnTextPlace.TAIL}
        old = [each for place, each in enumerate(old) if place not in tail]
        if play.slices(after.prompt.body)[: len(old)] != old:
            yield "the prefix changed with no batch point"
        if play.member(before.prompt.body) != play.member(after.prompt.body):
            yield "the system prompt changed with no batch point"
    later = {(trim.message_index, trim.item_index): trim for trim in after.trimmed.trims}
    for trim in before.trimmed.trims:
        now = later.get((trim.message_index, trim.item_index))
        if now is None:
            yield f"item {trim.item_index} of message {trim.message_index} is whole again"
        elif _RANKS[now.action] < _RANKS[trim.action] or now.tokens_saved < trim.tokens_saved:
            yield f"item {trim.item_index} of message {trim.message_index} grew"
        elif now.stash_id != trim.stash_id:
            yield f"item {trim.item_index} of message {trim.message_index} changed its id"


def resent(play: Played, answer: TrimAnswer, how: str) -> bytes:
    """The prompt that came back, as an agent may send it again."""
    assert answer.prompt.body is not None
    if how == "with our text":
        return answer.prompt.body
    own = {piece.message_index for piece in answer.prompt.own_text if piece.message_index >= 0}
    rest = [each for place, each in enumerate(play.slices(answer.prompt.body)) if place not in own]
    if how == "without our text":
        return play.raw(rest)
    return play.raw(rest, play.member(answer.prompt.body))  # "our text in the system prompt alone"


WAYS = ("with our text", "without our text", "our text in the system prompt alone")
