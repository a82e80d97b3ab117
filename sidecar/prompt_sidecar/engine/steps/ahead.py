"""Whether a revision is newer than this process's memory of a run, and others have answered its prompts since.

A run may move between processes that share its key. A process to which it returns knows the history up to its own last
answer, and may decide differently from there on than the others did: they have received other usage reports. So the
decisions of a revision are used if it covers more of the prompt's own history than this process has answered. A
revision of another branch of the history, which the prompt does not continue, is not ahead, however long that branch
is.
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
"""Model calls that a prompt shows beyond this process's memory if this process returned the previous prompt."""


def others_may_have_answered(opened: OpenedPrompt) -> bool:
    """Whether a prompt has more than one model call beyond what it shares with this process's last prompt.

    Only new messages are examined, so that a run that stays in one process need not be aligned for this.
    """
    if opened.memory.received is None:
        return True
    return _calls(opened.reads, opened.body.same) > OWN_CALL


def _calls(reads: Sequence[SentMessage], begin: int) -> int:
    """Count the model calls among the messages from `begin` on: messages of the model that follow another's."""
    speaker, calls = reads[begin - 1].role if begin else None, 0
    for read in reads[begin:]:
        calls += read.role is Role.ASSISTANT and speaker is not Role.ASSISTANT
        speaker = read.role
    return calls


@dataclass(frozen=True, slots=True)
class Standing:
    """How much of a prompt's history this process knows, in numbers of its records."""

    opened: OpenedPrompt
    known: int
    """Records that the prompt and the run's history have in common, from the beginning."""
    answered: int
    """How many of these the last prompt returned by this process had."""
    first_new: int
    """Index of the first sent message that is not known."""
    whole: bool
    """Whether the agent has sent all known messages untrimmed; only then a revision can be applied."""

    @classmethod
    def of(cls, opened: OpenedPrompt) -> Standing:
        """Compare a prompt with the run's history; changes nothing."""
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
        """Count the prompt's model calls after its first `length` records, which include at least the known ones.

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

        A revision that covers equally much belongs to another answer to the same prompt, the one that the agent got,
        unless it was `returned_here`.
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
        """Return the digest of the prompt's history up to a length that it has."""
        records, recorder = self.opened.memory.ledger.records, self.opened.memory.recorder
        if length <= self.known:
            return records[length - 1].chain
        chain = records[self.known - 1].chain if self.known else b""
        for read in self.opened.reads[self.first_new : self.first_new + length - self.known]:
            chain = recorder.chain(chain, read.identity)
        return chain
