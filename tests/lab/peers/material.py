"""A recorded run as all strategies meet it: its prompts, and the one ruler that is laid to whatever they make of them.

Each distinct message is looked at once. Its tokens are the sidecar's own count (o200k_base), so that the budget means
the same for everybody; what it still shows of tool results is found by comparing it with what was sent.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prompt_sidecar.errors import SidecarError
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.tokens.weigh import PRIMING, count_opaque, weigh
from tests.oracle.baselines import Sized
from tests.oracle.runs import Run, dumps, turns
from tests.oracle.shapes import blocks_of, results_of, role_of, texts_of, typed_blocks
from tests.promises.engine import counter

ENCODING = "o200k_base"
QUOTED = 40
"""Characters from which a result that stands whole within another text is taken for it, and not for chance."""

Turn = tuple[bytes, ...]
"""A prompt: the digests of its pieces, those of the system prompt first."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A message, or a block of the system prompt, as the ruler sees it."""

    tokens: int
    message: Any
    """Decoded; None for a block of the system prompt."""
    verbatim: int
    """Characters of sent tool results that it shows."""


@dataclass(slots=True)
class Material:
    """One run, and all pieces of prompts that were met so far."""

    run: Run
    slices: list[bytes] = field(init=False, repr=False)
    lengths: list[int] = field(init=False)
    """Messages that each prompt sends: those before each assistant message, then all."""
    _pieces: dict[bytes, Piece] = field(init=False, repr=False, default_factory=dict)
    _results: dict[str, list[str]] = field(init=False, repr=False, default_factory=dict)
    """Texts of the results sent, by call id."""
    _head: Turn = ()
    _sent: list[bytes] = field(init=False, repr=False, default_factory=list)
    _characters: list[int] = field(init=False, repr=False, default_factory=list)

    def __post_init__(self) -> None:
        self.slices = self.run.slices()
        self.lengths = turns(self.run.messages)
        self._characters = [0]
        for message in self.run.messages:
            found = result_texts(self.run.format, message)
            for call_id, text in found:
                self._results.setdefault(call_id, []).append(text)
            self._characters.append(self._characters[-1] + sum(len(text) for _, text in found))
        if self.run.system is not None:
            self._head = (self.piece(dumps(self.run.system), system=True),)
        for place, raw in enumerate(self.slices):
            digest = hashlib.sha256(raw).digest()
            shown = self._characters[place + 1] - self._characters[place]
            self._pieces[digest] = Piece(self._weigh(raw), self.run.messages[place], shown)
            self._sent.append(digest)

    @property
    def final(self) -> int:
        """Tokens of the last prompt, untrimmed."""
        return self.tokens(self.sent(len(self.slices)))

    @property
    def first_user(self) -> bytes:
        """Digest of the first user message: the task."""
        return next(
            digest for digest, message in zip(self._sent, self.run.messages, strict=True) if role_of(message) == "user"
        )

    def sent(self, length: int) -> Turn:
        """Return the prompt as the agent sends it."""
        return self._head + tuple(self._sent[:length])

    def sized(self, length: int) -> list[Sized]:
        """Return the prompt as the plain strategies take it."""
        return [
            Sized((digest, self._pieces[digest].tokens), opens=role_of(self._pieces[digest].message) == "assistant")
            for digest in self.sent(length)
        ]

    def turn(self, system: Sequence[Any], messages: Sequence[Any]) -> Turn:
        """Return a prompt from decoded pieces."""
        head = tuple(self.piece(dumps(text), system=True) for text in system)
        return head + tuple(self.piece(dumps(message)) for message in messages)

    def piece(self, raw: bytes, *, system: bool = False) -> bytes:
        """Take in a piece of a prompt as JSON, and return its digest."""
        digest = hashlib.sha256(raw).digest()
        if digest not in self._pieces:
            decoded = json.loads(raw)
            if system:
                self._pieces[digest] = Piece(self._count("\n".join(texts_of(decoded))), None, 0)
            else:
                self._pieces[digest] = Piece(self._weigh(raw), decoded, self._verbatim(decoded))
        return digest

    def tokens(self, turn: Turn) -> int:
        """Return the tokens of a prompt, with what opens the answer."""
        return PRIMING + sum(self._pieces[digest].tokens for digest in turn)

    def entries(self, turn: Turn) -> list[tuple[bytes, int]]:
        """Return the prompt as `baselines.cost` takes it."""
        return [(digest, self._pieces[digest].tokens) for digest in turn]

    def messages(self, turn: Turn) -> list[Any]:
        """Return the prompt's decoded messages, system blocks left out."""
        return [piece.message for piece in map(self._pieces.__getitem__, turn) if piece.message is not None]

    def verbatim(self, turn: Turn, length: int) -> float | None:
        """Return the share of the characters of tool results sent that a prompt shows; None if none were sent."""
        whole = self._characters[length]
        return min(sum(self._pieces[digest].verbatim for digest in turn) / whole, 1.0) if whole else None

    def _weigh(self, raw: bytes) -> int:
        try:
            message = FORMATS[self.run.format].read(raw, "messages")
        except SidecarError:
            return count_opaque(raw.decode(), self._count)
        return weigh([message], lambda texts: counter().count_many(texts, ENCODING))[0].total

    def _count(self, text: str) -> int:
        return counter().count(text, ENCODING)

    def _verbatim(self, message: Any) -> int:
        """Count what a message that was not sent like this shows of the results that were sent."""
        found = result_texts(self.run.format, message)
        shown = sum(max((shared(sent, text) for sent in self._results.get(id_, [])), default=0) for id_, text in found)
        if found:
            return shown
        text = "\n".join(texts_of(message.get("content"))) if isinstance(message, Mapping) else ""
        # Not a result, but a result may stand in it: some strategies retell results in a message of their own.
        sent = {result for results in self._results.values() for result in results if len(result) >= QUOTED}
        return sum(len(result) for result in sent if result in text)


def result_texts(format: str, message: Any) -> list[tuple[str, str]]:
    """Return the call id and the text of each tool result in a message."""
    ids = results_of(format, message)
    if role_of(message) == "tool":
        return [(ids[0], _text(message.get("content")))]
    blocks = typed_blocks(message, "tool_result") if ids else []
    return [(call_id, _text(block.get("content"))) for call_id, block in zip(ids, blocks, strict=True)]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text", "")) for block in blocks_of({"content": content}) if isinstance(block, dict))


def shared(sent: str, shown: str) -> int:
    """Return how many characters two texts share at the start and, beyond those, at the end."""
    head = _common(len(sent), len(shown), lambda size: sent[:size] == shown[:size])
    most = min(len(sent), len(shown)) - head
    tail = _common(most, most, lambda size: size == 0 or sent[-size:] == shown[-size:])
    return head + tail


def _common(one: int, other: int, same: Any) -> int:
    """Return the greatest size up to which two texts are the same; `same` holds up to there and not beyond."""
    sizes = range(min(one, other) + 1)
    return bisect_left(sizes, True, key=lambda size: not same(size)) - 1
