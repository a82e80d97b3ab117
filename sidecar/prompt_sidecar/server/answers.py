"""Facts to answers, for prompts and figures of runs. The answer to TrimPrompt is put together from encoded pieces.

Protobuf's encodings of parts of a message, one after another, are the encoding of the whole. So the prompt goes out as
it came from the core, with a few bytes before it, and the encoded `trims` and `stash_entries`, which grow with the run
and change only when a decision does, are kept from one answer of a run to the next. The core gives the same object
until they change, so identity tells whether the kept piece still holds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cachetools import LRUCache
from google.protobuf.timestamp_pb2 import Timestamp

from prompt_sidecar.facts.figures import RunFigures
from prompt_sidecar.facts.trim_calls import (
    CacheFigures,
    EditOperation,
    NoFit,
    OwnTextKind,
    OwnTextPlace,
    RevisionUse,
    StashEntry,
    TokenFigures,
    Trim,
    TrimAnswer,
)
from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.prompt.provider_edits import ProviderEdit
from prompt_sidecar.server.fields import enum_numbers
from prompt_sidecar.server.recall_answers import history_figures, task_items
from prompt_sidecar.server.size_answers import add_figures, add_size
from prompt_sidecar.server.wire import length_delimited, write_slices
from prompt_sidecar.trim.entries import Action, Reason
from prompt_sidecar.v1 import run_pb2, trim_pb2

KEPT_BOUND = "server.answer_parts"
KEPT_BYTES = 16 * 1024 * 1024
"""Encoded pieces kept for all runs together; a run with a thousand trims needs 440 KB."""
BYTES_PER_TRIM = 400
"""What a trim and its own piece take in memory beside the run's piece, measured on CPython 3.11."""

_KIND = enum_numbers(trim_pb2.ItemKind, "ITEM_KIND_", ItemKind)
_ACTION = enum_numbers(trim_pb2.TrimAction, "TRIM_ACTION_", Action)
_REASON = enum_numbers(trim_pb2.TrimReason, "TRIM_REASON_", Reason)
_NO_FIT = enum_numbers(trim_pb2.NoFitReason, "NO_FIT_REASON_", NoFit)
_OWN_KIND = enum_numbers(trim_pb2.OwnTextKind, "OWN_TEXT_KIND_", OwnTextKind)
_OWN_PLACE = enum_numbers(trim_pb2.OwnTextPlace, "OWN_TEXT_PLACE_", OwnTextPlace)
_EDIT = enum_numbers(trim_pb2.EditOperation, "EDIT_OPERATION_", EditOperation)
_REVISION_USE = enum_numbers(trim_pb2.RevisionUse, "REVISION_USE_", RevisionUse, RevisionUse.NONE)

_PROVIDER_EDIT = enum_numbers(trim_pb2.ProviderEdit, "PROVIDER_EDIT_", ProviderEdit)

Fact = TypeVar("Fact", Trim, StashEntry)

Pieces = Mapping[int, tuple[Fact, bytes]]
"""Each fact's own piece, by the identity of the fact; the core keeps those that have not changed."""


@dataclass(frozen=True, slots=True)
class _Kept:
    trims: Sequence[Trim]
    trims_piece: bytes
    trim_pieces: Pieces[Trim]
    entries: Sequence[StashEntry]
    entries_piece: bytes
    entry_pieces: Pieces[StashEntry]


class TrimAnswers:
    """Writes answers to TrimPrompt; keeps what it can from one to the next. Safe for threads."""

    def __init__(self, kept_bytes: int = KEPT_BYTES, reached: Callable[[str], None] = lambda _: None) -> None:
        """`reached` is told the name of the bound when what is kept of another run has to go."""
        self._reached = reached
        self._lock = threading.Lock()
        self._kept: LRUCache[tuple[str, str], _Kept] = LRUCache(
            kept_bytes,
            getsizeof=lambda kept: (
                len(kept.trims_piece) + len(kept.entries_piece) + BYTES_PER_TRIM * len(kept.trims) + 1
            ),
        )

    @property
    def kept_bytes(self) -> int:
        """What is kept, estimated."""
        return int(self._kept.currsize)

    def write(self, caller: str, run_id: str, answer: TrimAnswer) -> bytes:
        """Return the encoded TrimPromptResponse."""
        kept = self._pieces((caller, run_id), answer)
        return b"".join((*_prompt(answer), kept.trims_piece, kept.entries_piece, _rest(answer).SerializeToString()))

    def forget(self, caller: str, run_id: str) -> None:
        """Drop what is kept of a run."""
        with self._lock:
            self._kept.pop((caller, run_id), None)

    def _pieces(self, key: tuple[str, str], answer: TrimAnswer) -> _Kept:
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and kept.trims is answer.trims and kept.entries is answer.stash_entries:
            return kept
        if kept is None:
            kept = _Kept((), b"", {}, (), b"", {})
        trims, trim_pieces = kept.trims_piece, kept.trim_pieces
        if kept.trims is not answer.trims:
            trims, trim_pieces = _joined(answer.trims, trim_pieces, _trim)
        entries, entry_pieces = kept.entries_piece, kept.entry_pieces
        if kept.entries is not answer.stash_entries:
            entries, entry_pieces = _joined(answer.stash_entries, entry_pieces, _entry)
        kept = _Kept(answer.trims, trims, trim_pieces, answer.stash_entries, entries, entry_pieces)
        if kept.trims_piece or kept.entries_piece:
            with self._lock:
                others = len(self._kept) - (key in self._kept)
                try:
                    self._kept[key] = kept
                    gave_way = len(self._kept) <= others
                except ValueError:  # Larger than all that may be kept.
                    self._kept.pop(key, None)
                    gave_way = True
            if gave_way:
                self._reached(KEPT_BOUND)
        return kept


def run_figures(figures: RunFigures) -> run_pb2.RunFigures:
    """Turn a run's figures into their message."""
    stash = figures.stash
    told = run_pb2.RunFigures(
        run_id=figures.run_id,
        started=_timestamp(figures.started),
        last_seen=_timestamp(figures.last_seen),
        calls=figures.calls,
        iteration=figures.iteration,
        messages=figures.messages,
        tokens=None if figures.tokens is None else _tokens(figures.tokens),
        cache=None if figures.cache is None else _cache(figures.cache),
        tokens_sent_total=figures.tokens_sent_total,
        tokens_returned_total=figures.tokens_returned_total,
        trimmed_items=figures.trimmed_items,
        stash=run_pb2.StashFigures(
            entries=stash.entries,
            held_bytes=stash.held_bytes,
            original_bytes=stash.original_bytes,
            expired=stash.expired,
            evicted=stash.evicted,
            retrievals=[
                run_pb2.OutcomeCount(outcome=outcome.name, count=count) for outcome, count in stash.retrievals.items()
            ],
        ),
        unfinished_tasks=task_items(figures.unfinished_tasks),
        history=history_figures(figures.history),
    )
    add_figures(told, figures)
    return told


def _prompt(answer: TrimAnswer) -> Sequence[bytes]:
    if answer.body is not None:
        return length_delimited(trim_pb2.TrimPromptResponse.JSON_BODY_FIELD_NUMBER, answer.body)
    if answer.messages is not None:
        conversation = write_slices(answer.messages)
        return length_delimited(trim_pb2.TrimPromptResponse.CONVERSATION_FIELD_NUMBER, conversation)
    return ()


def _rest(answer: TrimAnswer) -> trim_pb2.TrimPromptResponse:
    """All of the answer but the prompt, `trims` and `stash_entries`."""
    rest = trim_pb2.TrimPromptResponse(
        edits=[
            trim_pb2.Edit(operation=_EDIT[edit.operation], pointer=edit.pointer, value=edit.value)
            for edit in answer.edits
        ],
        tokens=_tokens(answer.tokens),
        fits=answer.fits,
        no_fit_reason=_NO_FIT[answer.no_fit] if answer.no_fit else trim_pb2.NO_FIT_REASON_UNSPECIFIED,
        revision=answer.revision,
        cache=_cache(answer.cache),
        own_text=[
            trim_pb2.OwnText(
                kind=_OWN_KIND[own.kind], place=_OWN_PLACE[own.place], message_index=own.message_index, text=own.text
            )
            for own in answer.own_text
        ],
        compacted=answer.compacted,
        iteration=answer.iteration,
        not_stashable=answer.not_stashable,
        revision_use=_REVISION_USE[answer.revision_use],
        thinking_invalid_from=answer.thinking_invalid_from,
        provider_edits=[_PROVIDER_EDIT[edit] for edit in answer.provider_edits],
    )
    add_size(rest, answer)
    return rest


def _joined(facts: Sequence[Fact], known: Pieces[Fact], encode: Callable[[Fact], bytes]) -> tuple[bytes, Pieces[Fact]]:
    """Encode facts, each only if it has not been; the whole piece, and each one's."""
    each = {id(fact): known.get(id(fact)) or (fact, encode(fact)) for fact in facts}
    return b"".join([each[id(fact)][1] for fact in facts]), each


def _trim(trim: Trim) -> bytes:
    encoded = trim_pb2.Trim(
        message_index=trim.message_index,
        item_index=trim.item_index,
        kind=_KIND[trim.kind],
        action=_ACTION[trim.action],
        reason=_REASON[trim.reason],
        tokens_saved=trim.tokens_saved,
        stash_id=trim.stash_id,
        decided_iteration=trim.decided_iteration,
    ).SerializeToString()
    return b"".join(length_delimited(trim_pb2.TrimPromptResponse.TRIMS_FIELD_NUMBER, encoded))


def _entry(entry: StashEntry) -> bytes:
    encoded = trim_pb2.StashEntry(
        stash_id=entry.stash_id,
        kind=_KIND[entry.kind],
        tool=entry.tool,
        arguments_summary=entry.arguments,
        iteration=entry.iteration,
        original_bytes=entry.original_bytes,
    ).SerializeToString()
    return b"".join(length_delimited(trim_pb2.TrimPromptResponse.STASH_ENTRIES_FIELD_NUMBER, encoded))


def _tokens(tokens: TokenFigures) -> trim_pb2.TokenFigures:
    return trim_pb2.TokenFigures(
        before=tokens.before,
        after=tokens.after,
        limit=tokens.limit,
        encoding=tokens.encoding,
        exact=tokens.exact,
        calibration_factor=tokens.factor,
        own_text=tokens.own_text,
        window_assumed=tokens.window_assumed,
    )


def _cache(cache: CacheFigures) -> trim_pb2.CacheFigures:
    return trim_pb2.CacheFigures(
        first_changed_message=cache.first_changed,
        kept_prefix_tokens=cache.kept,
        rewritten_tokens=cache.rewritten,
        batch_point=cache.batch_point,
        batch_points=cache.batch_points,
    )


def _timestamp(seconds: float) -> Timestamp:
    nanoseconds = round(seconds * 1e9)
    return Timestamp(seconds=nanoseconds // 10**9, nanos=nanoseconds % 10**9)
