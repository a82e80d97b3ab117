"""Whether a revision is newer than this process's memory of a run, and whether others have answered its prompts since.

A run may move between processes that share its key. The one that it comes back to knows the history as far as it has
answered prompts of it, and what it would decide from there on may differ from what the others have decided: they have
had other reports of usage. So the decisions of a revision hold where it covers more of the prompt's own history than
this process has answered. A revision of another branch of the history, which the prompt does not go on from, is not
ahead, however long that branch is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from prompt_sidecar.engine.steps.alignment import align, carried_rows
from prompt_sidecar.engine.steps.opening import OpenedPrompt
from prompt_sidecar.engine.steps.received import SentMessage
from prompt_sidecar.prompt.items import Role
from prompt_sidecar.trim.revision import COMPACTED, Revision

OWN_CALL: Final = 1
"""Model calls that a prompt shows beyond what this process knows, where it has returned the prompt before."""


def others_may_have_answered(opened: OpenedPrompt) -> bool:
    """Whether a prompt has more calls of the model than one beyond what it shares with the last one here.

    Looks at no more than what is new, so that a run which stays where it is need not be aligned for this.
    """
    if opened.memory.received is None:
        return True
    return _calls(opened.reads, opened.body.same) > OWN_CALL


def _calls(reads: Sequence[SentMessage], begin: int) -> int:
    """Calls of the model among the messages from `begin` on: messages of its own that follow another one's."""
    speaker, calls = reads[begin - 1].role if begin else None, 0
    for read in reads[begin:]:
        calls += read.role is Role.ASSISTANT and speaker is not Role.ASSISTANT
        speaker = read.role
    return calls


@dataclass(frozen=True, slots=True)
class Standing:
    """How far this process knows the history of a prompt. Counts of its records."""

    opened: OpenedPrompt
    known: int
    """With which the prompt begins as the run's history does."""
    answered: int
    """Of these, those that a prompt which this process returned ended with."""
    first_new: int
    """Index among the messages that were sent of the first one that is not known."""
    whole: bool
    """Whether the agent has sent all that is known as it first came; only then a revision can be taken for it."""

    @classmethod
    def of(cls, opened: OpenedPrompt) -> Standing:
        """Find it; changes nothing."""
        memory, reads = opened.memory, opened.reads
        ledger, before = memory.ledger, memory.received
        carried = carried_rows(before, opened.body.same, reads, ledger.records) if before is not None else []
        rows = align(
            reads,
            carried,
            ledger,
            lambda index: memory.rendered.known_forms(index, opened.format),
            memory.own.is_own,
            leading_system=opened.format.leading_system,
            unseen=opened.unseen,
        )
        known = min(rows[-1].next, len(ledger)) if rows else 0
        answered = max(min(known, memory.answered.length), 0)
        return cls(opened, known, answered, len(rows), bool(rows) and rows[-1].whole == known)

    def calls_since(self, length: int) -> int:
        """Model calls that the prompt shows behind its first `length` records, which are those that are known at least.

        More than one: another process has returned prompts of the run since.
        """
        reads, calls = self.opened.reads, 0
        speaker = self.opened.memory.ledger.records[self.known - 1].role if self.known else None
        for place, index in enumerate(range(self.first_new, len(reads)), self.known):
            role = reads[index].role
            calls += place >= length and role is Role.ASSISTANT and speaker is not Role.ASSISTANT
            speaker = role
        return calls

    def is_behind(self, revision: Revision, *, returned_here: bool) -> bool:
        """Whether a revision covers more of the prompt's history than this process has answered.

        One that covers as much is that of another answer to the same prompt, unless it was `returned_here`: it is the
        one that the agent got.
        """
        opened = self.opened
        least = self.answered + 1 if returned_here else max(self.answered, 1)
        if not self.whole or revision.length < least or not revision.state:
            return False
        if revision.version < COMPACTED and opened.unseen:
            return False
        last = self.first_new + revision.length - self.known - 1
        return opened.compaction <= last < len(opened.reads) and self._chain(revision.length) == revision.chain

    def _chain(self, length: int) -> bytes:
        """The digest of the prompt's history up to a length that it has."""
        records, recorder = self.opened.memory.ledger.records, self.opened.memory.recorder
        if length <= self.known:
            return records[length - 1].chain
        chain = records[self.known - 1].chain if self.known else b""
        for read in self.opened.reads[self.first_new : self.first_new + length - self.known]:
            chain = recorder.chain(chain, read.identity)
        return chain
