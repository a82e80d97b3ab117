"""The rules for a prompt that the sidecar does not trim: one that fits, as far as can be estimated.

A long run's untrimmed history is more than its model takes, so sending it would end the run. Instead:

1. *The last prompt and the messages since.* The history is compared with the one that the last prompt was made from, or
   with the prompt itself if the agent continued from that. The common beginning is replaced by its trimmed form. The
   provider has this prefix in its cache, and thinking that is bound to it stays valid.
2. *The oldest iterations left out*, calls and results together, if that prompt is too long: by the sidecar's own
   figures for the last prompt, or because the provider refused it. Messages of users and the system stay, as do pinned
   ones and those that have loaded deferred tools.
3. *As it was given*, if the run is unknown.

The result is remembered as the prompt that the next one builds on, so each iteration is left out once and does not
return. Where the model binds its thinking to what precedes it (see `thinking.py`), thinking is removed from the first
message on at which a prompt differs from the one sent before it. The same is done with the first prompts after the
sidecar is available again, which it makes without knowing what was sent meanwhile.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from prompt_sidecar.client import native
from prompt_sidecar.client.sent import LastPrompt, Piece, decoded
from prompt_sidecar.providers.messages import FormatMessages, Message, leads, unmarked

LAST_PROMPT: Final = "last_prompt"
LEFT_OUT: Final = "left_out"
AS_GIVEN: Final = "as_given"
KEPT_SHARE: Final = 0.7
"""A prompt that is too long is reduced to this share of the maximum in bytes. After that most prompts only grow, which
keeps the provider's cache and thinking valid, and no more than a third is given up at a time."""


@dataclass(frozen=True, slots=True)
class JsonPrompt:
    """A prompt as JSON: a body, or its bare list of messages."""

    whole: Any
    messages: list[Message]
    shape: FormatMessages

    @classmethod
    def of(cls, value: Any, shape: FormatMessages) -> JsonPrompt | None:
        """Split a prompt; None if it has no list of messages, or one of them is not an object."""
        messages = value.get(shape.messages) if isinstance(value, dict) else value
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            return None
        return cls(value, messages, shape)

    def json(self) -> Any:
        """The prompt as JSON types."""
        return {**self.whole, self.shape.messages: self.messages} if isinstance(self.whole, dict) else self.messages

    def before(self, *, marks: bool = True) -> list[Any]:
        """Return the members before its messages; None for one that is missing."""
        members = self.whole if isinstance(self.whole, dict) else {}
        found = [members.get(name) for name in self.shape.before]
        return found if marks else [unmarked(each) for each in found]

    def lead(self) -> int:
        """Return how many messages at the beginning are the system prompt."""
        return next((at for at, message in enumerate(self.messages) if not leads(message)), len(self.messages))


@dataclass(frozen=True, slots=True)
class Fallback:
    """A prompt made without the sidecar."""

    prompt: Any
    """As JSON types."""
    kind: str
    left_out: int = 0
    thinking_removed: int = 0
    sent: LastPrompt | None = None
    """The state to remember for the next prompt."""


def fall_back(
    given: Any, sent: LastPrompt | None, *, format: str, shape: FormatMessages, bound: bool, pinned: Iterable[int]
) -> Fallback:
    """Make the prompt to send.

    Args:
        given: the untrimmed prompt, as JSON types.
        sent: the last prompt, or None if unknown.
        format: the prompt's format; if it is not the last one's, the last one is ignored.
        shape: how its messages are read.
        bound: whether the model binds its thinking.
        pinned: indices of messages that must not be left out.
    """
    body = JsonPrompt.of(given, shape)
    if body is None:
        return Fallback(given, AS_GIVEN)
    last = None if sent is None or sent.format != format else sent
    before = None if last is None else JsonPrompt.of(last.prompt(), shape)
    if last is None or before is None:
        raw = native.dumped(given)
        return Fallback(given, AS_GIVEN, sent=LastPrompt(format, (raw,), made=raw, covered=(raw,), fell_back=True))
    before = without(before, last.removed)
    made = _continued(body, before, last)
    most, left = _most_bytes(before, last), 0
    if most and len(native.dumped(made.json())) >= most:
        kept = [body.messages[index] for index in pinned if 0 <= index < len(body.messages)]
        made, left = leave_out(made, int(KEPT_SHARE * most), kept)
    made = without(made, last.removed)
    new = changed_thinking(made, before) if bound else frozenset()
    made = without(made, new)
    total = last.left_out + left
    kind = LEFT_OUT if total else AS_GIVEN if made.json() == given else LAST_PROMPT
    remembered = LastPrompt(
        format,
        (native.dumped(given),),
        made=native.dumped(made.json()),
        revision=last.revision,
        covered=last.covered,
        most_bytes=most,
        removed=last.removed | new,
        left_out=total,
        fell_back=True,
    )
    return Fallback(made.json(), kind, total, len(new), remembered)


def history(bodies: Sequence[Piece], shape: FormatMessages, newest: Any = None) -> Any:
    """Return one prompt for a history that was sent in pieces: all messages, and the newest piece's other members.

    Args:
        bodies: the pieces, oldest first.
        shape: how their messages are read.
        newest: the last piece, as JSON types.
    """
    pieces = [JsonPrompt.of(decoded(body), shape) for body in bodies]
    last = JsonPrompt.of(newest, shape) if newest is not None else pieces[-1]
    if last is None:
        return newest
    messages = [message for piece in pieces if piece is not None for message in piece.messages]
    return replace(last, messages=[*messages, *last.messages] if newest is not None else messages).json()


def without(body: JsonPrompt, removed: frozenset[bytes]) -> JsonPrompt:
    """Return a prompt without the blocks of thinking that have these digests."""
    if not removed:
        return body
    shape = body.shape
    messages = [shape.thoughtless(message, lambda block: digest(block) in removed) for message in body.messages]
    return replace(body, messages=shape.settled([message for message in messages if message is not None]))


def changed_thinking(made: JsonPrompt, before: JsonPrompt) -> frozenset[bytes]:
    """Return digests of the thinking after the first difference from the prompt that was sent before."""
    first = 0
    if made.before(marks=False) == before.before(marks=False):
        first = _common(list(map(unmarked, made.messages)), list(map(unmarked, before.messages)))
        if first == len(before.messages):  # messages were only added
            return frozenset()
    return frozenset(digest(block) for message in made.messages[first:] for block in made.shape.thoughts(message))


def digest(block: Any) -> bytes:
    """Return a digest of a block's content."""
    raw = json.dumps(unmarked(block), sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(raw.encode(), digest_size=16).digest()


def leave_out(body: JsonPrompt, most_bytes: int, pinned: Sequence[Message]) -> tuple[JsonPrompt, int]:
    """Leave out the oldest iterations until the prompt has at most `most_bytes`, or no other may be left out.

    What precedes the first iteration stays, and so do the newest one, all up to a provider's compaction, pinned
    messages and those that have loaded tools with the rest of their iteration, and messages of users and the system in
    between. An iteration is the model's messages and the results for them; one whose call has its result in a later
    iteration is left out together with that.

    Returns:
        The prompt, and how many iterations were left out.
    """
    shape, messages = body.shape, body.messages
    compacted = max((at for at, message in enumerate(messages) if shape.compaction(message)), default=-1)
    total, out, left = len(native.dumped(body.json())), set[int](), 0
    for unit in _units(messages, shape)[:-1]:
        if total <= most_bytes:
            break
        if unit[0] <= compacted or any(messages[at] in pinned or shape.loads_tools(messages[at]) for at in unit):
            continue
        for at in unit:
            words = shape.words(messages[at])
            total -= len(native.dumped(messages[at])) - (0 if words is None else len(native.dumped(words)))
        out.update(unit)
        left += sum(at == 0 or not shape.from_model(messages[at - 1]) for at in unit if shape.from_model(messages[at]))
    kept = [shape.words(message) if at in out else message for at, message in enumerate(messages)]
    return replace(body, messages=shape.settled([message for message in kept if message is not None])), left


def _units(messages: Sequence[Message], shape: FormatMessages) -> list[range]:
    """Return the iterations as ranges of indices; those between a call and its result are joined."""
    from_model = [shape.from_model(message) for message in messages]
    starts = [at for at, models in enumerate(from_model) if models and (at == 0 or not from_model[at - 1])]
    opened: dict[str, int] = {}  # ids repeat: a result belongs to the newest call with its id
    joined: dict[int, int] = {}  # an iteration → the last one that must be left out with it
    number = -1
    for at, message in enumerate(messages):
        if number + 1 < len(starts) and at == starts[number + 1]:
            number += 1
        if number < 0:
            continue
        for call in shape.calls(message):
            opened[call] = number
        for call in shape.answers(message):
            since = opened.get(call, number)
            joined[since] = max(joined.get(since, since), number)
    units: list[range] = []
    at = 0
    while at < len(starts):
        end = at
        reached = at
        while reached <= end:
            end = max(end, joined.get(reached, reached))
            reached += 1
        units.append(range(starts[at], starts[end + 1] if end + 1 < len(starts) else len(messages)))
        at = end + 1
    return units


def _most_bytes(before: JsonPrompt, last: LastPrompt) -> int:
    """Return the bytes from which on a prompt is too long, estimated from the last one; 0 if unknown."""
    size = len(native.dumped(before.json()))
    known = [last.most_bytes] if last.most_bytes else []
    if 0 < last.tokens <= last.limit:  # a provider may have accepted one over the limit
        known.append(size * last.limit // last.tokens)
    if last.refused:
        known.append(size)
    return min(known, default=0)


def _continued(body: JsonPrompt, before: JsonPrompt, last: LastPrompt) -> JsonPrompt:
    """Return the last prompt with the messages added to the history since."""
    asked = JsonPrompt.of(history(last.asked, body.shape), body.shape)
    assert asked is not None  # a prompt was made from that history
    prompt = replace(before, messages=[each for at, each in enumerate(before.messages) if at not in last.notes])
    return replace(body, whole=_members(body, asked, prompt), messages=_messages(body, asked, prompt))


def _members(body: JsonPrompt, asked: JsonPrompt, prompt: JsonPrompt) -> Any:
    """Return the agent's members; those that the agent has not changed since, in the sidecar's form."""
    if not (isinstance(body.whole, dict) and isinstance(prompt.whole, dict)):
        return body.whole
    old = asked.whole if isinstance(asked.whole, dict) else {}
    ours = {
        name: value
        for name, value in prompt.whole.items()
        if name in body.shape.before and old.get(name) != value and body.whole.get(name) in (old.get(name), value)
    }
    return {**body.whole, **ours}


def _messages(body: JsonPrompt, asked: JsonPrompt, prompt: JsonPrompt) -> list[Message]:
    lead, asked_lead, prompt_lead = body.lead(), asked.lead(), prompt.lead()
    system, rest = body.messages[:lead], body.messages[lead:]
    if system in (asked.messages[:asked_lead], prompt.messages[:prompt_lead]):
        system = prompt.messages[:prompt_lead]  # with the sidecar's own messages
    old, new = asked.messages[asked_lead:], prompt.messages[prompt_lead:]
    # The sidecar's own messages inside the history belong to neither.
    theirs = [at for at, message in enumerate(new) if not leads(message) or message in old]
    kept = _common(rest, old)
    went_on, bare = _common(rest, new), _common(rest, [new[at] for at in theirs])
    if kept and kept >= max(went_on, bare):
        # The prompt ends with the newest messages of the history, one for one: only old ones are dropped.
        cut = len(theirs) - (len(old) - kept)
        tail = [new[at] for at in theirs[max(cut, 0) :]]
        if cut < 0 or [body.shape.from_model(each) for each in tail] != [
            body.shape.from_model(each) for each in old[kept:]
        ]:
            return [*system, *rest]
        return [*system, *new[: theirs[cut] if cut < len(theirs) else len(new)], *rest[kept:]]
    if went_on >= bare:  # or all are 0: another history
        return [*system, *rest]
    return [*system, *new[: theirs[bare] if bare < len(theirs) else len(new)], *rest[bare:]]


def _common(one: Sequence[Message], other: Sequence[Message]) -> int:
    """Return how many messages both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (ours, theirs) in pairs if ours != theirs), min(len(one), len(other)))
