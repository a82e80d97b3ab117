"""Agents that send a conversation's prompts through a sidecar, each in its own way.

What an agent keeps is what it sent and what the provider answered: reasoning signed over the prompt that the provider
really got. So each of them shows a way in which a block can come under another prefix than its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import msgspec
import orjson

from prompt_sidecar.facts.trim_calls import TrimAnswer
from tests.conformance.conversations import ANTHROPIC, MEMBER, SYSTEM, Conversation
from tests.engine.steps.test_edits import apply
from tests.promises.engine import Engine

RESTARTS = (0.2, 0.45, 0.5, 0.75)
"""Where a process ends and another begins, as shares of the run."""
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])
_arrays = msgspec.json.Decoder(list[msgspec.Raw])


class Agent(Protocol):
    """One agent's way to send prompts."""

    def prompt(self, given: Sequence[bytes]) -> bytes:
        """Take new messages in; return the body to send to the provider."""
        ...  # pragma: no cover

    def took(self, answer: Sequence[bytes]) -> None:
        """Keep what the provider answered."""
        ...  # pragma: no cover

    def aside(self) -> Iterator[bytes]:
        """Further bodies that this agent sends now to a model, of the same history; their answers it does not keep."""
        return iter(())

    def close(self) -> None:
        """Give back what it holds."""


class Whole(Agent):
    """Sends its whole untrimmed history each time."""

    restarts: Sequence[float] = ()
    """Where the sidecar is another process from, as shares of the run."""
    sends_revision = False

    def __init__(self, run: Conversation, preset: str, limit: int) -> None:
        self.run, self.preset, self.limit = run, preset, limit
        self.history: list[bytes] = []
        self.engine = self.fresh()
        self.revision = b""
        self.turn = 0
        self.answer: TrimAnswer | None = None

    def fresh(self) -> Engine:
        """A process that has not seen the run; all have one key."""
        return Engine(limit=self.limit, preset=self.preset, model=self.run.model)

    def prompt(self, given: Sequence[bytes]) -> bytes:
        """Ask this turn's process."""
        self.history += given
        if self.turn in [int(share * len(self.run.steps)) for share in self.restarts]:
            self.engine = self.fresh()
        self.turn += 1
        fields = {"revision": self.revision} if self.sends_revision else {}
        self.answer = self.trim(**fields)
        self.revision = self.answer.prompt.revision
        return self.received(self.answer)

    def trim(self, **fields: Any) -> TrimAnswer:
        """Ask the sidecar."""
        return self.engine.trim(self.run.format, self.run.body(self.history), **fields)

    def received(self, answer: TrimAnswer) -> bytes:
        """The prompt that came back."""
        assert answer.prompt.body is not None
        return answer.prompt.body

    def took(self, answer: Sequence[bytes]) -> None:
        """Append it."""
        self.history += answer


class Restarted(Whole):
    """The same, and the sidecar is killed and started anew; a fresh process has the key and nothing else."""

    restarts = RESTARTS


class Revised(Restarted):
    """The same with the revision sent back."""

    sends_revision = True


class Edited(Whole):
    """Patches its own objects with the edits that come back."""

    def trim(self, **fields: Any) -> TrimAnswer:
        """Ask for edits."""
        self.sent = self.run.body(self.history)
        return self.engine.trim(self.run.format, self.sent, edits=True, **fields)

    def received(self, answer: TrimAnswer) -> bytes:
        """Patch what was sent."""
        return orjson.dumps(apply(self.sent, answer.prompt.edits))


class Deltas(Whole):
    """Sends only what is new, on top of the last answer's revision."""

    def trim(self, **fields: Any) -> TrimAnswer:
        """Send what is new."""
        body = self.run.body(self.history)
        self.history = []
        if self.revision:
            fields["base_revision"] = self.revision
        return self.engine.trim(self.run.format, body, **fields)


class Adopted(Whole):
    """Keeps the trimmed prompt as its history, the sidecar's own text included."""

    own_text = True

    def __init__(self, run: Conversation, preset: str, limit: int) -> None:
        super().__init__(run, preset, limit)
        self.system: bytes | None = None

    def trim(self, **fields: Any) -> TrimAnswer:
        """Send what was kept."""
        return self.engine.trim(self.run.format, self.run.body(self.history, self.system), **fields)

    def received(self, answer: TrimAnswer) -> bytes:
        """Keep it."""
        body = super().received(answer)
        members = _objects.decode(body)
        self.history = [bytes(each) for each in _arrays.decode(members[MEMBER[self.run.format]])]
        if self.own_text:
            self.system = bytes(members.get(SYSTEM[self.run.format], b"null"))
        else:
            own = {piece.message_index for piece in answer.prompt.own_text if piece.message_index >= 0}
            self.history = [each for place, each in enumerate(self.history) if place not in own]
        return body


class AdoptedPlain(Adopted):
    """Keeps the trimmed prompt without the sidecar's own text."""

    own_text = False


class AdoptedRevised(Adopted):
    """Keeps the trimmed prompt, and the sidecar is another process now and then; the revision is sent back."""

    restarts = RESTARTS
    sends_revision = True


class Switching(Whole):
    """Sends its whole history, in the middle third of the run to a model that binds no thinking."""

    other = "claude-opus-4-8"

    def trim(self, **fields: Any) -> TrimAnswer:
        """Ask for the model of this turn."""
        middle = len(self.run.steps) / 3 <= self.turn < len(self.run.steps) * 2 / 3
        run = replace(self.run, model=self.other) if middle and self.run.format == ANTHROPIC else self.run
        fields["model"] = run.model
        return self.engine.trim(run.format, run.body(self.history), **fields)


class Aside(Whole):
    """Sends its whole history, and lets other models look at parts of it, as side calls."""

    every = 9
    """Turns."""

    def aside(self) -> Iterator[bytes]:
        """The first half of the history, and its end from words of the user on."""
        if self.turn % self.every:
            return
        for start, end in ((0, len(self.history) // 2), (len(self.history) - 7, len(self.history))):
            part = self.history[max(0, start) : end]
            while part and not self._begins(part[0]):
                del part[0]
            while part and self._calls(part[-1]):
                del part[-1]
            if part:
                answer = self.engine.trim(self.run.format, self.run.body(part), side_call=True)
                assert answer.prompt.body is not None
                yield answer.prompt.body

    def _begins(self, raw: bytes) -> bool:
        """Whether a part of the history may begin with a message: the user's words."""
        value = orjson.loads(raw)
        blocks = value.get("content", value.get("parts"))
        return value.get("role") == "user" and (
            isinstance(blocks, str)
            or all(block.get("type") != "tool_result" and "functionResponse" not in block for block in blocks)
        )

    def _calls(self, raw: bytes) -> bool:
        """Whether a message may not be the last: calls without their results, or reasoning."""
        value = orjson.loads(raw)
        return value.get("role") in {"assistant", "model"} or value.get("type", "message") != "message"


STYLES: Mapping[str, Callable[[Conversation, str, int], Agent]] = {
    "whole": Whole,
    "restarted": Restarted,
    "revised": Revised,
    "edits": Edited,
    "deltas": Deltas,
    "adopted": Adopted,
    "adopted-plain": AdoptedPlain,
    "adopted-revised": AdoptedRevised,
    "switching": Switching,
    "aside": Aside,
}
"""These agents by name."""
