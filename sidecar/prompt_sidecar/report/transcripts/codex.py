"""Session files of Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`.

A line is `{"timestamp", "type", "payload"}`. `response_item` payloads are the items of OpenAI's responses, as they were
sent; files of 2025's first half hold the bare items. `session_meta` has the instructions, `turn_context` the model, and
an `event_msg` of the type `token_count` the provider's counts for the previous call: it is repeated if only rate limits
changed, so only those with changed totals are used. After `compacted` the history begins again, with
`replacement_history` or, in older files, with the users' words and a summary; after `thread_rolled_back` the last turns
are removed.

Sources: the Codex repository (codex-rs/protocol, RolloutItem; core/src/codex/rollout_reconstruction_tests.rs) and
toolpath-codex's description of the format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from prompt_sidecar.report.transcripts.files import (
    Members,
    TranscriptLine,
    array_of,
    count_in,
    object_in,
    text_in,
    value_in,
)
from prompt_sidecar.report.transcripts.model import CallUsage, RecordedPrompt, Transcript, date_of, project_of
from prompt_sidecar.report.transcripts.shapes import Head

FORMAT: Final = "openai_responses"
SOURCE: Final = "Codex session"
_ENVELOPES: Final = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_BARE: Final = frozenset({"message", "reasoning", "function_call", "function_call_output", "local_shell_call"})
"""Types of items in files without envelopes."""
_head: Final = msgspec.json.Decoder(Head)
_NOT_SENT: Final = frozenset({"ghost_snapshot", "other"})
"""Items that Codex does not send."""


def fits(lines: Sequence[TranscriptLine]) -> bool:
    """Whether these are lines of a session."""
    enveloped = any(line.text("type") in _ENVELOPES and "payload" in line.members for line in lines)
    return enveloped or (
        bool(lines)
        and {"id", "timestamp"} <= lines[0].members.keys()
        and any(line.text("type") in _BARE for line in lines[1:])
    )


def read(path: Path, lines: Sequence[TranscriptLine]) -> list[Transcript]:
    """Return the session's run; none if the model was never called."""
    session = _CodexSession()
    for line in lines:
        session.take(line)
    if not session.prompts:
        return []
    return [
        Transcript(path.name, SOURCE, FORMAT, session.prompts, session.missing(), True, session.project, session.date)
    ]


@dataclass(slots=True)
class _CodexSession:
    """A session while its lines are read."""

    history: list[bytes] = field(default_factory=list)
    prompts: list[RecordedPrompt] = field(default_factory=list)
    model: str = ""
    instructions: str = ""
    answering: bool = False
    """Whether the last item is the model's, from the call of the last prompt."""
    total: Any = None
    compactions: int = 0
    guessed: int = 0
    """Compactions after which the file does not show the new history."""
    rolled_back: int = 0
    project: str = ""
    date: str = ""

    def take(self, line: TranscriptLine) -> None:
        """Process a line."""
        kind, payload = line.text("type"), line.object("payload")
        self.date = self.date or date_of(line.text("timestamp"))
        if kind == "session_meta" or (line.number == 1 and not kind):
            meta = payload or line.members
            self.project = self.project or project_of(text_in(meta, "cwd"))
            instructions = text_in(object_in(meta, "base_instructions"), "text") or text_in(meta, "instructions")
            self.instructions = instructions or self.instructions
        elif kind == "turn_context":
            self.model = text_in(payload, "model") or self.model
        elif kind == "response_item" and payload:
            self._item(bytes(line.members["payload"]), payload)
        elif kind == "compacted":
            self._compacted(payload)
        elif kind == "event_msg":
            self._event(payload)
        elif kind in _BARE:
            self._item(msgspec.json.encode(line.members), line.members)

    def missing(self) -> tuple[str, ...]:
        """Return what was sent and is not in the file."""
        notes = ["the tools' definitions, which session files do not have"]
        if not self.instructions:
            notes.insert(0, "the instructions, which this file does not have")
        if self.compactions:
            notes.append(
                f"the prompts that asked for {self.compactions} summaries, after which the history began again"
            )
        if self.guessed:
            notes.append(
                f"what the history was after {self.guessed} summaries: taken for the users' words and the summary"
            )
        if self.rolled_back:
            notes.append(f"{self.rolled_back} times the user went back; the prompts are read as of then")
        return tuple(notes)

    def _item(self, raw: bytes, members: Members) -> None:
        kind = text_in(members, "type")
        if kind in _NOT_SENT:
            return
        of_model = Head(text_in(members, "role"), kind).of_model(FORMAT)
        if of_model and not self.answering and self.history:
            self.prompts.append(RecordedPrompt(tuple(self.history), self._head(), self.model))
        self.answering = of_model
        self.history.append(raw)

    def _head(self) -> bytes:
        members = {"model": self.model, "instructions": self.instructions}
        return msgspec.json.encode({name: text for name, text in members.items() if text})

    def _event(self, payload: Members) -> None:
        kind = text_in(payload, "type")
        if kind == "token_count":
            info = object_in(payload, "info")
            total = value_in(info, "total_token_usage")
            used = _usage(object_in(info, "last_token_usage"))
            if used and total != self.total and self.prompts and self.prompts[-1].usage is None:
                self.prompts[-1] = replace(self.prompts[-1], usage=used)
            if used and total != self.total:
                self.answering = False  # items that the model makes after its call was counted belong to another call
            self.total = total
        elif kind == "thread_rolled_back":
            self._roll_back(count_in(payload, "num_turns"))

    def _roll_back(self, turns: int) -> None:
        users = [place for place, raw in enumerate(self.history) if _of_user(raw)]
        if turns and users:
            del self.history[users[max(0, len(users) - turns)] :]
            self.answering = False
            self.rolled_back += 1

    def _compacted(self, payload: Members) -> None:
        replaced = array_of(bytes(payload["replacement_history"])) if "replacement_history" in payload else None
        if replaced is None:
            self.guessed += 1
            summary = {"type": "message", "role": "user", "content": _input(text_in(payload, "message"))}
            replaced = [*filter(_of_user, self.history), msgspec.json.encode(summary)]
        self.history = replaced
        self.answering = False
        self.compactions += 1


def _of_user(raw: bytes) -> bool:
    try:
        return _head.decode(raw).role == "user"
    except msgspec.DecodeError:
        return False


def _input(text: str) -> list[dict[str, str]]:
    return [{"type": "input_text", "text": text}]


def _usage(members: Members) -> CallUsage | None:
    whole = count_in(members, "input_tokens")
    return (
        CallUsage(whole, count_in(members, "cached_input_tokens"), 0, count_in(members, "output_tokens"))
        if whole
        else None
    )
