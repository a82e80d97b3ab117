"""Assembles the response to TrimPrompt from encoded pieces.

In protobuf the concatenated encodings of a message's parts are the encoding of the message. So the prompt is sent as
the core returned it, after a few bytes, and the encoded `trims` and `stash_entries`, which grow with the run and change
only when a decision does, are kept from one response of a run to the next. The core returns the same object until they
change, so its identity shows whether the kept piece is still valid.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from cachetools import LRUCache
from google.protobuf.message import Message

from prompt_sidecar.doors.grpc.conversion.responses import message
from prompt_sidecar.doors.grpc.conversion.wire import length_delimited, tag, varint, write_slices
from prompt_sidecar.facts.trim_calls import Edit, EditOperation, StashEntry, Trim, TrimAnswer
from prompt_sidecar.v1 import trim_pb2

KEPT_BOUND = "server.answer_parts"
KEPT_BYTES = 16 * 1024 * 1024
"""Bytes of encoded pieces that are kept for all runs together; a run with a thousand trims needs 440 KB."""
BYTES_PER_TRIM = 400
"""Memory of a trim and its own piece in addition to the run's piece, measured on CPython 3.11."""

Fact = TypeVar("Fact", Trim, StashEntry)
_OPERATIONS: Final[Mapping[EditOperation, bytes]] = {
    operation: trim_pb2.Edit(
        operation=trim_pb2.EditOperation.Value(f"EDIT_OPERATION_{operation.name}")
    ).SerializeToString()
    for operation in EditOperation
}
"""Each operation as the first field of an edit."""
_POINTER: Final = tag(trim_pb2.Edit.POINTER_FIELD_NUMBER)
_VALUE: Final = tag(trim_pb2.Edit.VALUE_FIELD_NUMBER)
_EDIT: Final = tag(trim_pb2.TrimPromptResponse.EDITS_FIELD_NUMBER)


@dataclass(frozen=True, slots=True)
class _Part(Generic[Fact]):
    """A repeated field: its facts, its encoding, and each fact's own encoding by the fact's identity."""

    facts: Sequence[Fact] = ()
    piece: bytes = b""
    pieces: Mapping[int, tuple[Fact, bytes]] = field(default_factory=dict)

    def of(self, facts: Sequence[Fact], number: int, kind: type[Message]) -> _Part[Fact]:
        """Return the part for these facts; facts that the core has kept unchanged are not encoded again.

        Args:
            facts: the field's facts now.
            number: the field's number.
            kind: the elements' message.
        """
        if facts is self.facts:
            return self

        def encoded(fact: Fact) -> bytes:
            return b"".join(length_delimited(number, message(kind, fact).SerializeToString()))

        each = {id(fact): self.pieces.get(id(fact)) or (fact, encoded(fact)) for fact in facts}
        return _Part(facts, b"".join([each[id(fact)][1] for fact in facts]), each)


@dataclass(frozen=True, slots=True)
class _KeptPiece:
    trims: _Part[Trim] = _Part()
    entries: _Part[StashEntry] = _Part()

    @property
    def size(self) -> int:
        """Estimated memory, in bytes."""
        return len(self.trims.piece) + len(self.entries.piece) + BYTES_PER_TRIM * len(self.trims.facts) + 1


class TrimAnswers:
    """Writes responses to TrimPrompt; keeps encoded pieces from one to the next. Thread-safe."""

    def __init__(self, kept_bytes: int = KEPT_BYTES, reached: Callable[[str], None] = lambda _: None) -> None:
        """`reached` is called with the limit's name when another run's pieces are evicted."""
        self._reached = reached
        self._lock = threading.Lock()
        self._kept: LRUCache[tuple[str, str], _KeptPiece] = LRUCache(kept_bytes, getsizeof=lambda kept: kept.size)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the pieces that are kept, estimated."""
        return int(self._kept.currsize)

    def write(self, caller: str, run_id: str, answer: TrimAnswer) -> bytes:
        """Return the encoded TrimPromptResponse."""
        kept = self._pieces((caller, run_id), answer)
        rest = message(trim_pb2.TrimPromptResponse, answer)
        edits = _edits(answer.prompt.edits)
        return b"".join((*_prompt(answer), *edits, kept.trims.piece, kept.entries.piece, rest.SerializeToString()))

    def forget(self, caller: str, run_id: str) -> None:
        """Drop a run's pieces."""
        with self._lock:
            self._kept.pop((caller, run_id), None)

    def forget_all(self, caller: str) -> None:
        """Drop the pieces of all runs of a caller."""
        with self._lock:
            for key in [key for key in self._kept if key[0] == caller]:
                del self._kept[key]

    def _pieces(self, key: tuple[str, str], answer: TrimAnswer) -> _KeptPiece:
        response = trim_pb2.TrimPromptResponse
        with self._lock:
            before = self._kept.get(key, _KeptPiece())
        kept = _KeptPiece(
            before.trims.of(answer.trimmed.trims, response.TRIMS_FIELD_NUMBER, trim_pb2.Trim),
            before.entries.of(answer.trimmed.stash_entries, response.STASH_ENTRIES_FIELD_NUMBER, trim_pb2.StashEntry),
        )
        same = kept.trims is before.trims and kept.entries is before.entries
        if same or not (kept.trims.piece or kept.entries.piece):
            return kept
        with self._lock:
            others = len(self._kept) - (key in self._kept)
            try:
                self._kept[key] = kept
                gave_way = len(self._kept) <= others
            except ValueError:  # larger than the limit by itself
                self._kept.pop(key, None)
                gave_way = True
        if gave_way:
            self._reached(KEPT_BOUND)
        return kept


def _prompt(answer: TrimAnswer) -> Sequence[bytes]:
    if answer.prompt.body is not None:
        return length_delimited(trim_pb2.TrimPromptResponse.JSON_BODY_FIELD_NUMBER, answer.prompt.body)
    if answer.prompt.messages is not None:
        conversation = write_slices(answer.prompt.messages)
        return length_delimited(trim_pb2.TrimPromptResponse.CONVERSATION_FIELD_NUMBER, conversation)
    return ()


def _edits(edits: Sequence[Edit]) -> list[bytes]:
    """Return the encoded edits, in pieces: at each call there may be one for each message that was ever trimmed."""
    pieces: list[bytes] = []
    for edit in edits:
        where = edit.pointer.encode()
        fields = [_OPERATIONS[edit.operation], _POINTER, varint(len(where)), where]
        if edit.value:
            fields += (_VALUE, varint(len(edit.value)), edit.value)
        made = b"".join(fields)
        pieces += (_EDIT, varint(len(made)), made)
    return pieces
