"""An agent with random histories, policies and annotations under ageing, and what is checked of each of its answers.

The reference is always the untrimmed history, whatever was sent in its place: no answer may hold a defect that it has
not, nor other bytes for what no trim names, nor lack an original. In between, whatever changes, items only shrink.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from google.protobuf.json_format import MessageToDict
from hypothesis import strategies as st

from prompt_sidecar.facts.trim_calls import Annotation, Trim, TrimAnswer
from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.trim.entries import Action, Reason
from prompt_sidecar.v1 import conversation_pb2 as pb
from tests.oracle.alignment import Alignment, may_stand_for
from tests.oracle.browsing import CONVERSATION, Browsing, History, Part, browsing, prompt_of, returned, typed
from tests.oracle.runs import Shape, synthetic
from tests.oracle.shapes import ANTHROPIC_MESSAGES, OPENAI_CHAT, canonical, item_bytes, texts_of
from tests.oracle.strategies import budgets, policies
from tests.oracle.validity import NOWHERE, defects, independent_defects
from tests.promises.engine import Engine, counter

STRANGE = -2
"""Place of a returned message that stands for none that was sent: nothing is forgiven there."""
RANKS = {Action.CONDENSED: 0, Action.ELIDED: 1, Action.CLIPPED: 2, Action.COLLAPSED: 2, Action.DROPPED: 3}


# -- what is drawn ---------------------------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn, format: str, most: int = 14) -> History:
    """A browsing run or, one time in three, a coding one."""
    seed = draw(st.integers(0, 10_000))
    if draw(st.integers(0, 2)) == 0:
        shape = Shape(iterations=draw(st.integers(0, most)), median=300, odd_ids=0.3, bare=0.2, images=0.2)
        base = ANTHROPIC_MESSAGES if format == ANTHROPIC_MESSAGES else OPENAI_CHAT
        run = synthetic(seed, base, shape)
        slices = [typed(message) for message in run.messages] if format == CONVERSATION else run.slices()
        return History(format, run, slices, [Part.PERSON] * len(slices))
    shape_ = Browsing(
        iterations=draw(st.integers(0, most)),
        page=draw(st.sampled_from([60, 900, 4_000])),
        snapshots=draw(st.sampled_from([0.3, 1.0])),
        validations=draw(st.sampled_from([0.0, 0.4])),
        errors=draw(st.sampled_from([0.1, 0.6])),
        repetitions=draw(st.sampled_from([0.0, 0.4])),
        persons=draw(st.sampled_from([0.0, 0.3])),
        bare=draw(st.sampled_from([0.0, 0.4])),
        same_again=draw(st.sampled_from([0.0, 0.5])),
        prefixed=draw(st.booleans()),
        merged=draw(st.booleans()),
        odd_ids=draw(st.sampled_from([0.0, 0.6])),
    )
    return browsing(seed, format, shape_)


@st.composite
def ageing(draw: st.DrawFn) -> dict[str, Any]:
    """Overrides of a policy: any subset of the knobs, those of ageing more often than not."""
    values = draw(policies()) if draw(st.booleans()) else {}
    values |= {"age_stage": draw(st.sampled_from(["off", "pressure", "always", "always"]))}
    for name in ("iterations", "arguments", "text", "results", "snapshots", "images", "feedback"):
        if draw(st.integers(0, 3)) == 0:
            values[f"age_keep_{name}"] = draw(st.integers(0 if name == "iterations" else -1, 5))
    if draw(st.booleans()):
        values["age_hard_cap_iterations"] = draw(st.integers(0, 8))
    values["age_repeats"] = draw(st.booleans())
    return values


@dataclass(frozen=True, slots=True)
class In:
    """What is in force at a call."""

    preset: str
    policy: Mapping[str, Any]
    limit: int
    recall: bool = True

    def fields(self) -> dict[str, Any]:
        """As fields of a call."""
        return {
            "preset": self.preset,
            "policy": self.policy,
            "context_window": self.limit,
            "recall_unavailable": not self.recall,
        }


inputs = st.builds(
    In,
    preset=st.sampled_from(["lean", "lean", "cache_first", "fit_only", "cap_only"]),
    policy=ageing(),
    limit=budgets(),
    recall=st.sampled_from([True, True, True, False]),
)


@st.composite
def sayings(draw: st.DrawFn, history: History) -> dict[int, Annotation]:
    """What an agent says of its messages: all of its feedback or none, some snapshots."""
    annotations = history.annotations() if draw(st.booleans()) else {}
    if draw(st.booleans()):
        some = history.places(Part.SNAPSHOT)[::2]
        annotations |= dict.fromkeys(some, Annotation.SNAPSHOT)
    return annotations


def up_to(annotations: Mapping[int, Annotation], length: int) -> dict[int, Annotation]:
    """Annotations of the first so many messages."""
    return {at: annotation for at, annotation in annotations.items() if at < length}


# -- what is checked -------------------------------------------------------------------------------------------------


def plain(history: History, raw: bytes) -> Any:
    """A message as the oracles read it: its JSON, a typed one as OpenAI's format would have it."""
    if history.format != CONVERSATION:
        return json.loads(raw)
    message = pb.Message.FromString(raw)
    role = {1: "system", 2: "user", 3: "assistant", 4: "tool"}[message.role]
    made: dict[str, Any] = {"role": role}
    content: list[dict[str, Any]] = []
    for part in message.parts:
        kind = part.WhichOneof("kind")
        if kind == "text":
            content.append({"type": "text", "text": part.text})
        elif kind == "image":
            content.append({"type": "image_url", "image_url": MessageToDict(part.image)})
        elif kind == "tool_call":
            function = {"name": part.tool_call.name, "arguments": part.tool_call.arguments_json}
            call = {"id": part.tool_call.id, "type": "function", "function": function}
            made.setdefault("tool_calls", []).append(call)
        elif kind == "tool_result":
            made["tool_call_id"] = part.tool_result.call_id
            content.append({"type": "text", "text": part.tool_result.text})
    return made | {"content": content or None}


def shape_of(history: History) -> str:
    """The format that the oracles read a history's plain messages as."""
    return history.run.format


def leading(history: History) -> int:
    """System messages at the start, which messages of trims are not counted with."""
    return 0 if history.format == ANTHROPIC_MESSAGES else history.run.leading


@dataclass(frozen=True, slots=True)
class Shown:
    """One answer, seen from the untrimmed history."""

    answer: TrimAnswer
    matched: Alignment
    slices: Mapping[int, bytes]
    """The bytes of each message that stays, by its place in the untrimmed history."""
    trims: Mapping[tuple[int, int], Trim]
    """By place in the untrimmed history and item."""


def look(history: History, slices: Sequence[bytes], answer: TrimAnswer) -> Shown:
    """Match an answer with the untrimmed history.

    Placeholders look alike, so the answer's own word is taken for what went; the oracle then looks at every pair.
    """
    got = returned(answer)
    own = {piece.message_index for piece in answer.prompt.own_text if piece.message_index >= 0}
    trims = {(trim.message_index + leading(history), trim.item_index): trim for trim in answer.trimmed.trims}
    gone = {place for (place, _), trim in trims.items() if trim.action is Action.DROPPED}
    for (place, _), trim in trims.items():
        if trim.action is Action.COLLAPSED:
            texts = [each for each in texts_of(plain(history, slices[place]).get("content")) if each != "text"]
            if len(texts) == 1 and trim.tokens_saved == counter().count(texts[0], "o200k_base"):
                gone.add(place)  # all of it is saved: not even a placeholder stands for it
    stay = [place for place in range(len(slices)) if place not in gone]
    shown = [place for place in range(len(got)) if place not in own]
    pairs = [
        (new, old)
        for new, old in zip(shown, stay, strict=False)
        if may_stand_for(shape_of(history), plain(history, slices[old]), plain(history, got[new]))
    ]
    strangers = {*shown} - {new for new, _ in pairs}
    matched = Alignment(tuple(pairs), tuple(sorted(strangers)))
    return Shown(answer, matched, {old: got[new] for new, old in pairs}, trims)


def wrong(history: History, slices: Sequence[bytes], shown: Shown, *, as_bytes: bool) -> list[str]:
    """Say what is wrong with an answer next to the untrimmed history that it stands for."""
    answer, format = shown.answer, shape_of(history)
    got = [plain(history, raw) for raw in returned(answer)]
    before = [plain(history, raw) for raw in slices]
    found = [f"message {place} stands for none that was sent" for place in shown.matched.strangers]
    places = {NOWHERE: NOWHERE, **dict(shown.matched.pairs)}
    old = defects(format, before)
    found += [
        f"new defect: {defect}"
        for defect, count in defects(format, got).items()
        if count > old[replace(defect, message=places.get(defect.message, STRANGE))]
    ]
    other = independent_defects(format, before)
    found += [
        f"new defect, second opinion: {code} at {message}"
        for (code, message, call_id), count in independent_defects(format, got).items()
        if count > other[code, places.get(message, STRANGE), call_id]
    ]
    named = {place for place, _ in shown.trims}
    may_go = {place for (place, _), trim in shown.trims.items() if RANKS[trim.action] >= 2}
    for place in range(leading(history), len(slices)):
        if place not in shown.slices:
            if place not in may_go or any(
                trim.action not in (Action.DROPPED, Action.COLLAPSED)
                for (at, _), trim in shown.trims.items()
                if at == place
            ):
                found.append(f"message {place} is gone, and no trim says so")
        elif place not in named:
            same = shown.slices[place] == slices[place]
            if not same and (as_bytes or plain(history, shown.slices[place]) != before[place]):
                found.append(f"message {place} has other bytes, and no trim says so")
    if answer.fits != (answer.tokens.after <= answer.tokens.limit):
        found.append(f"fits is {answer.fits} at {answer.tokens.after} of {answer.tokens.limit}")
    return found


def lost(history: History, slices: Sequence[bytes], shown: Shown, engine: Engine) -> list[str]:
    """Say which originals do not come back, byte for byte."""
    found = []
    for (place, item), trim in shown.trims.items():
        original = engine.original(trim.stash_id)
        name = f"original {trim.kind} {item} of message {place}"
        if original is None:
            found.append(f"{name} is not found")
        elif not _is_of(history, slices[place], trim.kind, original):
            found.append(f"{name} is no part of it")
    return found


def _is_of(history: History, raw: bytes, kind: ItemKind, original: bytes) -> bool:
    if history.format == CONVERSATION and kind in (ItemKind.IMAGE, ItemKind.OPAQUE):
        return bool(json.loads(original))
    message = plain(history, raw)
    if kind is ItemKind.OPAQUE:  # the whole message, as it was when it went: an agent may have sent it trimmed
        return may_stand_for(shape_of(history), message, json.loads(original))
    return original in item_bytes(shape_of(history), message) or original in raw


def grown(before: Shown, after: Shown, common: int, *, rewound: bool) -> list[str]:
    """Say which items grew between two answers to histories that have the first `common` messages in common.

    `rewound`: whether the later one is shorter. What was dropped may come back then, and reasoning whose turn is no
    longer finished: providers need it.
    """
    found = []
    for (place, item), old in before.trims.items():
        if place >= common:
            continue
        new = after.trims.get((place, item))
        counts = old.action is Action.COLLAPSED  # a placeholder that counts more may be longer
        saved_less = new is not None and new.tokens_saved < old.tokens_saved and not counts
        if new is None or RANKS[new.action] < RANKS[old.action] or saved_less:
            back = old.action in (Action.DROPPED, Action.COLLAPSED) or (new is None and old.reason is Reason.REASONING)
            if not (rewound and back):
                found.append(f"item {item} of message {place} grew: {old} then {new}")
        elif new.stash_id != old.stash_id:
            found.append(f"item {item} of message {place} has another id")
    if not rewound:
        there = [place for place in after.slices if place < common and place not in before.slices]
        found += [f"message {place} is there again" for place in there]
    return found


def disturbed(before: Shown, after: Shown) -> list[str]:
    """Say which old bytes changed between two answers to the same growing history, with no batch point."""
    if after.answer.cache.batch_point:
        return []
    return [
        f"message {place} changed with no batch point"
        for place, raw in before.slices.items()
        if after.slices.get(place) != raw
    ]


def differ(history: History, one: TrimAnswer, other: TrimAnswer, *, own: bool = True) -> list[str]:
    """Say in what two answers differ; without `own`, what the sidecar's own text says and takes is left out."""
    ours, theirs = (_comparable(history, each, own=own) for each in (one, other))
    found = []
    if ours != theirs:
        at = next((i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), "the end")
        found.append(f"messages: {len(ours)} and {len(theirs)}, from {at} on")
    names = ("trimmed.trims", "trimmed.stash_entries", "prompt.own_text") if own else ("trimmed.trims",)
    found += [name for name in names if list(attrgetter(name)(one)) != list(attrgetter(name)(other))]
    if own and (one.fits, one.tokens.after) != (other.fits, other.tokens.after):
        found.append(f"tokens: {one.tokens.after} and {other.tokens.after}")
    return found


def _comparable(history: History, answer: TrimAnswer, *, own: bool) -> list[bytes]:
    ours = set() if own else {piece.message_index for piece in answer.prompt.own_text}
    return [canonical(plain(history, raw)) for at, raw in enumerate(returned(answer)) if at not in ours]


# -- any sequence ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Agent:
    """An agent with one run: its untrimmed history, and the messages that it would send in their place."""

    history: History
    slices: list[bytes]
    annotations: dict[int, Annotation]
    engine: Engine
    held: list[bytes] = field(default_factory=list)
    """What an agent that adopts answers holds: the last answer's messages and those that came since."""
    last: Shown | None = None
    length: int = 0

    def send(self, messages: Sequence[bytes], force: In, **fields: Any) -> TrimAnswer:
        """Send these messages."""
        prompt = prompt_of(self.history, messages)
        return self.engine.trim(**prompt, **force.fields(), **fields)

    def go(self, length: int, force: In, how: str, chance: random.Random) -> list[str]:
        """Send the first so many messages of the history in this way; complaints."""
        fresh = self.slices[self.length : length]
        whole = self.slices[:length]
        fields: dict[str, Any] = {}
        if how == "untrimmed" or self.last is None or length < self.length:
            messages, fields = whole, {"annotations": up_to(self.annotations, length)}
        else:
            held = self.held if how == "adopted" else self.mixed(chance)
            messages = [*held, *fresh]
            first = len(held) - self.length  # annotations name places among those sent
            fields = {
                "annotations": {
                    at + first: each for at, each in up_to(self.annotations, length).items() if at >= self.length
                }
            }
        answer = self.send(messages, force, **fields)
        shown = look(self.history, whole, answer)
        found = wrong(self.history, whole, shown, as_bytes=messages is whole)
        found += lost(self.history, whole, shown, self.engine)
        again = self.send(messages, force, **fields)
        found += [f"the same again: {each}" for each in differ(self.history, answer, again)]
        back = self.send(returned(answer), force)
        found += [f"what was returned sent again: {each}" for each in differ(self.history, answer, back)]
        if self.last is not None:
            common, rewound = min(length, self.length), length < self.length
            found += grown(self.last, shown, common, rewound=rewound)
            if not rewound and messages is whole:
                found += disturbed(self.last, shown)
        own = {piece.message_index for piece in answer.prompt.own_text}
        keep_own = chance.random() < 0.5
        self.held = [raw for at, raw in enumerate(returned(answer)) if keep_own or at not in own]
        self.last, self.length = shown, length
        return [f"{how}, {length} messages: {each}" for each in found]

    def mixed(self, chance: random.Random) -> list[bytes]:
        """Some messages as they were, some as they were returned; dropped ones all or none."""
        assert self.last is not None
        whole = chance.random() < 0.5
        kept = self.last.slices
        return [
            kept[place] if place in kept and chance.random() < 0.5 else raw
            for place, raw in enumerate(self.slices[: self.length])
            if whole or place in kept or place < leading(self.history)
        ]

    def branch(self, length: int, other: History, at: int) -> None:
        """Go on from the first so many messages with those of another run."""
        self.slices = [*self.slices[:length], *other.slices[at:]]
        self.annotations = up_to(self.annotations, length)
        messages = [*self.history.run.messages[:length], *other.run.messages[at:]]
        run = replace(self.history.run, messages=messages)
        parts = [*self.history.parts[:length], *other.parts[at:]]
        self.history = History(self.history.format, run, self.slices, parts)


def begun(data: st.DataObject, format: str) -> Agent:
    """An agent with a random run, not sent yet."""
    history = data.draw(histories(format))
    return Agent(history, list(history.slices), data.draw(sayings(history)), Engine(limit=1))
