"""A provider that wants the signatures of the current turn's calls back, as Gemini 3 does.

The rules, each from the provider's guides (ai.google.dev/gemini-api/docs/thought-signatures and /gemini-3, read in
November 2026):

- "Function Calling (Strict): The API enforces strict validation on the 'Current Turn'. Missing signatures will result
  in a 400 error." "The 'Current Turn' includes all Model (functionCall) and User (functionResponse) steps that occurred
  since the last standard User `text` message."
- "Parallel Function Calls: Only the first functionCall part in the list will contain the signature. You must return
  the parts in the exact order received." Of several steps each call has a signature, and all of them are returned.
- "Text/Chat: Validation is not strictly enforced."

The 400 says "Function call is missing a thought_signature in functionCall parts". A signature that was altered is
refused as "Corrupted thought signature"; of a call that never had one, `PLACEHOLDER` is taken. Arguments beside a
signature may have become shorter: no page says that a signature is bound to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import orjson

from tests.conformance.gemini_contents import member, parts_of
from tests.conformance.providers import Cause, Refusal, Reply

PLACEHOLDER = "skip_thought_signature_validator"
"""What may stand in place of a signature (thought-signatures, FAQ)."""
LENGTH = 600
"""Characters of a signature, about as long as real ones."""


class ThoughtSignatures:
    """A provider of one conversation. It remembers what it has signed."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}
        """The function called beside each signature."""

    def ask(self, body: bytes, recorded: Sequence[bytes]) -> Reply:
        """Judge a request and answer it with the recorded contents, the first call of each signed."""
        contents = orjson.loads(body)["contents"]
        found = [part for content in contents for part in parts_of(content) if member(part, "thoughtSignature")]
        before = len(self._given)
        answer = self._sign(recorded)
        return Reply(list(self._current(contents)), answer, carried=len(found), given=len(self._given) - before)

    def _current(self, contents: Sequence[Mapping[str, Any]]) -> Iterator[Refusal]:
        start = max((place for place, content in enumerate(contents) if says(content)), default=-1)
        before = ""
        for place in range(start + 1, len(contents)):
            content = contents[place]
            role, first = content.get("role"), before != "model"
            before = str(role)
            if role != "model":
                continue
            for index, part in enumerate(parts_of(content)):
                signature = member(part, "thoughtSignature")
                call = member(part, "functionCall")
                where = f"contents.{place}.parts.{index}"
                if signature == PLACEHOLDER and call is not None:
                    first = False
                    continue
                if signature is not None and signature not in self._given:
                    yield Refusal(Cause.FORGED, where, "corrupted thought signature")
                if call is not None and first:
                    if signature is None:
                        yield Refusal(Cause.SIGNATURE, where, "the function call is missing its thought signature")
                    elif self._given.get(signature) != call["name"]:
                        yield Refusal(Cause.SIGNATURE, where, "the signature is another call's")
                    first = False

    def _sign(self, recorded: Sequence[bytes]) -> list[bytes]:
        signed = []
        done = False
        for raw in recorded:
            content = orjson.loads(raw)
            parts = []
            for part in parts_of(content):
                call = member(part, "functionCall")
                whole = part
                if call is not None and not done:
                    signature = blake2b(raw + str(len(self._given)).encode()).hexdigest() * (LENGTH // 128 + 1)
                    self._given[signature[:LENGTH]] = call["name"]
                    whole, done = {**part, "thoughtSignature": signature[:LENGTH]}, True
                parts.append(whole)
            signed.append(orjson.dumps({**content, "parts": parts}))
        return signed


def says(content: Mapping[str, Any]) -> bool:
    """Whether a content is the user's words."""
    return content.get("role") != "model" and any(
        part.get("text") and not part.get("thought") for part in parts_of(content)
    )
