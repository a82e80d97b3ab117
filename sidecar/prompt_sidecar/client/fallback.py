"""The prompt to send where the sidecar does not trim it: one that fits, as far as can be told without it.

A long run's untrimmed history is more than its model takes, so sending it would end the run. Instead:

1. *The last prompt and what came since.* The history is compared with the one that the last prompt was made of, or,
   where the agent went on from that prompt, with the prompt itself; what follows the common beginning is added to what
   became of that beginning. The provider has this prefix in its cache, and thinking that is bound to it stays valid.
2. *The oldest iterations left out*, calls and answers together, where that is too long: by the sidecar's own figures
   for the last prompt, or since the provider refused it. What users and the system said stays, as do pinned messages.
3. *As it was given*, where nothing is known of the run.

The result is remembered as the prompt that the next one builds on, so that what was left out stays out, and each
iteration is left out once. From the first message on at which a prompt differs from the one sent before, thinking is
removed where the model binds it to what stands before (see `thinking.py`); the same is done with the first prompts that
the sidecar answers again, which it makes without knowing what was sent meanwhile.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from prompt_sidecar.client import native
from prompt_sidecar.client.sent import Sent
from prompt_sidecar.client.shapes import Message, Shape, leads, unmarked

LAST_PROMPT: Final = "last_prompt"
LEFT_OUT: Final = "left_out"
AS_GIVEN: Final = "as_given"
KEPT_SHARE: Final = 0.7
"""Share of the bytes known to be too many that a prompt is brought down to. Most prompts only grow then, which keeps
the provider's cache warm and thinking valid, and no more than a third is given up at a time."""


@dataclass(frozen=True, slots=True)
class Body:
    """A prompt as JSON: a body, or its bare list of messages."""

    whole: Any
    messages: list[Message]
    shape: Shape

    @classmethod
    def of(cls, value: Any, shape: Shape) -> Body | None:
        """Take a prompt apart; None: it holds no list of messages, each an object."""
        messages = value.get(shape.messages) if isinstance(value, dict) else value
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            return None
        return cls(value, messages, shape)

    def json(self) -> Any:
        """The prompt."""
        return {**self.whole, self.shape.messages: self.messages} if isinstance(self.whole, dict) else self.messages

    def before(self, *, marks: bool = True) -> list[Any]:
        """What stands before its messages: None for a member that is not there."""
        members = self.whole if isinstance(self.whole, dict) else {}
        found = [members.get(name) for name in self.shape.before]
        return found if marks else [unmarked(each) for each in found]

    def lead(self) -> int:
        """How many messages at its beginning are its system prompt."""
        return next((at for at, message in enumerate(self.messages) if not leads(message)), len(self.messages))


@dataclass(frozen=True, slots=True)
class Fallback:
    """A prompt that was made without the sidecar."""

    prompt: Any
    """As JSON."""
    kind: str
    left_out: int = 0
    thinking_removed: int = 0
    sent: Sent | None = None
    """What to remember of it."""


def fall_back(
    given: Any, sent: Sent | None, *, format: str, shape: Shape, bound: bool, pinned: Iterable[int]
) -> Fallback:
    """Make the prompt to send.

    Args:
        given: the untrimmed prompt, as JSON.
        sent: what went to the model last; None: nothing is known.
        format: the prompt's format; of another than the last one's nothing is known.
        shape: what its messages are.
        bound: whether the model binds its thinking.
        pinned: indices of messages that must not be left out.
    """
    body = Body.of(given, shape)
    if body is None:
        return Fallback(given, AS_GIVEN)
    last = None if sent is None or sent.format != format else sent
    before = None if last is None else Body.of(last.prompt(), shape)
    if last is None or before is None:
        raw = native.dumped(given)
        return Fallback(given, AS_GIVEN, sent=Sent(format, (raw,), made=raw, told=(raw,), fell_back=True))
    before = without(before, last.gone)
    made = _continued(body, before, last)
    most, left = _most_bytes(before, last), 0
    if most and len(native.dumped(made.json())) >= most:
        kept = [body.messages[index] for index in pinned if 0 <= index < len(body.messages)]
        made, left = leave_out(made, int(KEPT_SHARE * most), kept)
    made = without(made, last.gone)
    new = changed_thinking(made, before) if bound else frozenset()
    made = without(made, new)
    total = last.left_out + left
    kind = LEFT_OUT if total else AS_GIVEN if made.json() == given else LAST_PROMPT
    remembered = Sent(
        format,
        (native.dumped(given),),
        made=native.dumped(made.json()),
        revision=last.revision,
        told=last.told,
        most_bytes=most,
        gone=last.gone | new,
        left_out=total,
        fell_back=True,
    )
    return Fallback(made.json(), kind, total, len(new), remembered)


def history(bodies: Sequence[bytes], shape: Shape, newest: Any = None) -> Any:
    """One prompt of a history that was sent in pieces: the messages of all, and else what the newest says.

    Args:
        bodies: the pieces, oldest first.
        shape: of their messages.
        newest: the last piece, as JSON.
    """
    pieces = [Body.of(json.loads(body), shape) for body in bodies]
    last = Body.of(newest, shape) if newest is not None else pieces[-1]
    if last is None:
        return newest
    messages = [message for piece in pieces if piece is not None for message in piece.messages]
    return replace(last, messages=[*messages, *last.messages] if newest is not None else messages).json()


def without(body: Body, gone: frozenset[bytes]) -> Body:
    """A prompt without the blocks of thinking with these digests."""
    if not gone:
        return body
    shape = body.shape
    messages = [shape.thoughtless(message, lambda block: digest(block) in gone) for message in body.messages]
    return replace(body, messages=shape.settled([message for message in messages if message is not None]))


def changed_thinking(made: Body, before: Body) -> frozenset[bytes]:
    """Digests of the thinking that stands after the first difference from the prompt that was sent before."""
    first = 0
    if made.before(marks=False) == before.before(marks=False):
        first = _common(list(map(unmarked, made.messages)), list(map(unmarked, before.messages)))
        if first == len(before.messages):  # it only goes on
            return frozenset()
    return frozenset(digest(block) for message in made.messages[first:] for block in made.shape.thoughts(message))


def digest(block: Any) -> bytes:
    """A name for a block, by its content."""
    raw = json.dumps(unmarked(block), sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(raw.encode(), digest_size=16).digest()


def leave_out(body: Body, most_bytes: int, pinned: Sequence[Message]) -> tuple[Body, int]:
    """Leave out the oldest iterations until the prompt has at most so many bytes, or nothing more may go.

    What stands before the first iteration stays, and so do the newest one, pinned messages with the rest of their
    iteration, and what users and the system said in between. An iteration is what the model says and what answers it;
    one whose call is answered in a later one goes with that.

    Returns:
        The prompt, and how many iterations were left out.
    """
    shape, messages = body.shape, body.messages
    total, out, left = len(native.dumped(body.json())), set[int](), 0
    for unit in _units(messages, shape)[:-1]:
        if total <= most_bytes:
            break
        if any(messages[at] in pinned for at in unit):
            continue
        for at in unit:
            words = shape.words(messages[at])
            total -= len(native.dumped(messages[at])) - (0 if words is None else len(native.dumped(words)))
        out.update(unit)
        left += sum(at == 0 or not shape.speaks(messages[at - 1]) for at in unit if shape.speaks(messages[at]))
    kept = [shape.words(message) if at in out else message for at, message in enumerate(messages)]
    return replace(body, messages=shape.settled([message for message in kept if message is not None])), left


def _units(messages: Sequence[Message], shape: Shape) -> list[range]:
    """The iterations, as indices; those between a call and its answer are one."""
    speaking = [shape.speaks(message) for message in messages]
    starts = [at for at, speaks in enumerate(speaking) if speaks and (at == 0 or not speaking[at - 1])]
    opened: dict[str, int] = {}  # an id may come again: an answer is to the newest call of that id
    joined: dict[int, int] = {}  # first message of a unit → its last that has to go with it
    number = -1
    first: list[int] = []
    for at, message in enumerate(messages):
        if number + 1 < len(starts) and at == starts[number + 1]:
            number += 1
        first.append(number)
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


def _most_bytes(before: Body, last: Sent) -> int:
    """Bytes from which on a prompt is too long, by what is known of the last one; 0: nothing is known."""
    size = len(native.dumped(before.json()))
    known = [last.most_bytes] if last.most_bytes else []
    if 0 < last.tokens <= last.limit:  # one that did not fit tells nothing: it may have been taken all the same
        known.append(size * last.limit // last.tokens)
    if last.refused:
        known.append(size)
    return min(known, default=0)


def _continued(body: Body, before: Body, last: Sent) -> Body:
    """The last prompt, and what the history holds since."""
    asked = Body.of(history(last.asked, body.shape), body.shape)
    assert asked is not None  # a prompt was made of it
    prompt = replace(before, messages=[each for at, each in enumerate(before.messages) if at not in last.notes])
    return replace(body, whole=_members(body, asked, prompt), messages=_messages(body, asked, prompt))


def _members(body: Body, asked: Body, prompt: Body) -> Any:
    """The agent's members; the sidecar's in the place of those that the agent has not changed since."""
    if not (isinstance(body.whole, dict) and isinstance(prompt.whole, dict)):
        return body.whole
    old = asked.whole if isinstance(asked.whole, dict) else {}
    ours = {
        name: value
        for name, value in prompt.whole.items()
        if name in body.shape.before and old.get(name) != value and body.whole.get(name) in (old.get(name), value)
    }
    return {**body.whole, **ours}


def _messages(body: Body, asked: Body, prompt: Body) -> list[Message]:
    lead, asked_lead, prompt_lead = body.lead(), asked.lead(), prompt.lead()
    system, rest = body.messages[:lead], body.messages[lead:]
    if system in (asked.messages[:asked_lead], prompt.messages[:prompt_lead]):
        system = prompt.messages[:prompt_lead]  # the sidecar's own among them
    old, new = asked.messages[asked_lead:], prompt.messages[prompt_lead:]
    # The sidecar's own messages inside the history stand in neither.
    theirs = [at for at, message in enumerate(new) if not leads(message) or message in old]
    kept = _common(rest, old)
    went_on, bare = _common(rest, new), _common(rest, [new[at] for at in theirs])
    if kept and kept >= max(went_on, bare):
        # The newest messages of the history stand at the prompt's end, one for one: what is dropped is old.
        cut = len(theirs) - (len(old) - kept)
        tail = [new[at] for at in theirs[max(cut, 0) :]]
        if cut < 0 or [body.shape.speaks(each) for each in tail] != [body.shape.speaks(each) for each in old[kept:]]:
            return [*system, *rest]
        return [*system, *new[: theirs[cut] if cut < len(theirs) else len(new)], *rest[kept:]]
    if went_on >= bare:  # or all are 0: another history
        return [*system, *rest]
    return [*system, *new[: theirs[bare] if bare < len(theirs) else len(new)], *rest[bare:]]


def _common(one: Sequence[Message], other: Sequence[Message]) -> int:
    """How many messages both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (ours, theirs) in pairs if ours != theirs), min(len(one), len(other)))
