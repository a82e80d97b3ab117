"""Tokens of a run's untrimmed prompts, message by message, and what each prompt shares with the previous one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final

import msgspec

from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.items import Message, Role
from prompt_sidecar.providers.messages import CACHE_MARKS
from prompt_sidecar.report.transcripts.files import members_of
from prompt_sidecar.report.transcripts.model import RecordedPrompt, Transcript
from prompt_sidecar.tokens.count import Counter
from prompt_sidecar.tokens.encodings import encoding_for
from prompt_sidecar.tokens.weigh import Weight, weigh

_CACHED_MEMBERS: Final = frozenset(
    {"model", "system", "instructions", "tools", "systemInstruction", "system_instruction", "toolConfig", "thinking"}
)
"""Members of a body that precede its messages in a provider's cache, or that separate its caches."""


@dataclass(frozen=True, slots=True)
class Sized:
    """A message of a run, decoded and counted."""

    message: Message
    weight: Weight


@dataclass(slots=True)
class Sizes:
    """Decodes and counts each message of a run once."""

    transcript: Transcript
    counter: Counter
    model: str
    known: dict[int, Sized] = field(default_factory=dict)

    def of(self, raw: bytes) -> Sized:
        """Return a message's size. Raises SidecarError if it cannot be read."""
        found = self.known.get(id(raw))  # the transcript keeps the message, so that no other object gets its id
        if found is None:
            form = FORMATS[self.transcript.form]
            message = form.read(raw, "messages")
            encoding, _ = encoding_for(self.model)
            weight = weigh([message], lambda texts: self.counter.count_many(texts, encoding), form.call_tokens)[0]
            found = self.known[id(raw)] = Sized(message, weight)
        return found

    def tokens(self, prompt: RecordedPrompt) -> list[int]:
        """Return the tokens of a prompt's messages, before any factor."""
        return [self.of(raw).weight.total for raw in prompt.messages]

    def leading(self, prompt: RecordedPrompt) -> int:
        """Return the number of a prompt's leading system messages, which the sidecar's indices do not count."""
        if not FORMATS[self.transcript.form].leading_system:
            return 0
        roles = (self.of(raw).message.role for raw in prompt.messages)
        return sum(1 for _ in takewhile(Role.SYSTEM.__eq__, roles))

    def distinct(self) -> list[tuple[bytes, Sized]]:
        """Return every message of the run once, in the order in which they were first sent."""
        seen: dict[int, bytes] = {}
        for prompt in self.transcript.prompts:
            for raw in prompt.messages[_begin(prompt, seen) :]:
                seen.setdefault(id(raw), raw)
        return [(raw, self.of(raw)) for raw in seen.values()]


def _begin(prompt: RecordedPrompt, seen: Mapping[int, bytes]) -> int:
    """Return where a prompt's unseen messages begin, if all of them are at its end; else 0."""
    start = len(prompt.messages)
    while start and id(prompt.messages[start - 1]) not in seen:
        start -= 1
    return start if start <= len(seen) and all(id(raw) in seen for raw in prompt.messages[:start]) else 0


@dataclass(frozen=True, slots=True)
class Step:
    """One untrimmed prompt, compared with the previous one. Tokens, in the units of `before`."""

    before: int
    head: int
    """Those of them that are the system prompt and the tools, if they are members of the body."""
    messages: Sequence[int]
    opens: Sequence[int]
    """Indices in `messages` at which the model's answers begin."""
    common: int
    """Number of messages shared with the beginning of the previous prompt; 0 if the part before them has changed."""
    same_head: bool
    output: int
    """Tokens of the model's answer: the provider's count, else those of the next prompt's messages with it."""

    @property
    def kept(self) -> int:
        """Tokens shared with the beginning of the previous prompt."""
        return self.head + sum(self.messages[: self.common]) if self.same_head else 0


def steps(sizes: Sizes, before: Sequence[int], factor: float, head: int = 0) -> list[Step]:
    """Return the steps of the run's prompts.

    Args:
        sizes: the sizes of its messages.
        before: tokens of each prompt, by the provider's count or the sidecar's.
        factor: the sidecar's, for counts of messages.
        head: tokens before the messages, if known; the rest then belongs to the messages. 0 if unknown.
    """
    made: list[Step] = []
    prompts = sizes.transcript.prompts
    for place, prompt in enumerate(prompts):
        raw = sizes.tokens(prompt)
        if head and (whole := sum(raw)):
            factor = max(0, before[place] - head) / whole
        messages = [round(tokens * factor) for tokens in raw]
        last = prompts[place - 1] if place else None
        following = prompts[place + 1] if place + 1 < len(prompts) else None
        made.append(
            Step(
                before=before[place],
                head=max(0, before[place] - sum(messages)),
                messages=messages,
                opens=_opens(sizes, prompt.messages),
                common=_common(last.messages, prompt.messages) if last else 0,
                same_head=last is not None and _fixed(last.head) == _fixed(prompt.head),
                output=prompt.usage.output if prompt.usage else _answered(sizes, prompt, following),
            )
        )
    return made


def _opens(sizes: Sizes, messages: Sequence[bytes]) -> list[int]:
    """Return where the model's answers begin; an answer of several items, as in OpenAI's responses, is one."""
    of_model = [sizes.of(raw).message.role is Role.ASSISTANT for raw in messages]
    return [at for at, own in enumerate(of_model) if own and not (at and of_model[at - 1])]


def _common(old: Sequence[bytes], new: Sequence[bytes]) -> int:
    pairs = zip(old, new, strict=False)
    return next(
        (at for at, (one, other) in enumerate(pairs) if one is not other and one != other), min(len(old), len(new))
    )


def _answered(sizes: Sizes, prompt: RecordedPrompt, following: RecordedPrompt | None) -> int:
    if following is None or _common(prompt.messages, following.messages) < len(prompt.messages):
        return 0
    tokens = 0
    for raw in following.messages[len(prompt.messages) :]:
        sized = sizes.of(raw)
        if sized.message.role is not Role.ASSISTANT:
            break
        tokens += sized.weight.total
    return tokens


@lru_cache(8)
def _fixed(head: bytes) -> dict[str, Any]:
    """Return the members of a body that a provider caches, without cache marks."""
    members = members_of(head) or {} if head else {}
    return {name: _unmarked(msgspec.json.decode(raw)) for name, raw in members.items() if name in _CACHED_MEMBERS}


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unmarked(one) for name, one in value.items() if name not in CACHE_MARKS}
    return [_unmarked(one) for one in value] if isinstance(value, list) else value
