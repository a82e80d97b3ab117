"""Session files of Claude Code: `~/.claude/projects/PROJECT/SESSION.jsonl`, and those of subagents next to them.

A line is an event. The model's output has one line for each block, with the same `message.id`; the results of parallel
calls are between them. So all lines with an id are one message, and the words of users and results of tools until the
next id are the message after it. Lines refer to their predecessors by `parentUuid`: a user's words whose parent already
has another answer continue from there, as after a rewind. After a `compact_boundary` the history begins again with a
summary.

Lines with `isSidechain` belong to a subagent, which has a history of its own. Lines without a part of a prompt
(`summary`, `queue-operation`, snapshots, progress, titles) are skipped; words that a user queued appear again as a
user's line, or as an attachment.

Sources: descriptions of the format by its users (S2thend/claude-code-history, ccusage, Jesse Vincent's "Claude Code
session continuation"), and issues 13326, 44597 and 45660 of anthropics/claude-code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from prompt_sidecar.report.transcripts.files import (
    Members,
    TranscriptLine,
    array_of,
    members_of,
    text_in,
    value_in,
)
from prompt_sidecar.report.transcripts.model import CallUsage, RecordedPrompt, Transcript, date_of, project_of
from prompt_sidecar.report.transcripts.request_logs import usage_in

FORMAT: Final = "anthropic_messages"
SOURCE: Final = "Claude Code session"
_SAYERS: Final = frozenset({"user", "assistant"})
_MAIN: Final = ""
_OWN_MODEL: Final = "<synthetic>"
"""Model of lines that Claude Code wrote itself, such as a provider's error."""


def fits(lines: Sequence[TranscriptLine]) -> bool:
    """Whether these are lines of a session: one from a speaker, with an id of its own or of the session."""
    return any(
        line.text("type") in _SAYERS and "message" in line.members and {"uuid", "sessionId"} & line.members.keys()
        for line in lines
    )


def read(path: Path, lines: Sequence[TranscriptLine]) -> list[Transcript]:
    """Return the session's run and those of its subagents; only runs in which the model was called."""
    session = _ClaudeCodeSession()
    for line in lines:
        session.take(line)
    return [
        Transcript(
            name=path.name if key == _MAIN or len(session.tracks) == 1 else f"{path.name}, subagent {number}",
            source=SOURCE if key == _MAIN else f"{SOURCE}, subagent",
            form=FORMAT,
            prompts=track.prompts,
            missing=track.missing(),
            lacks_head=True,
            project=project_of(session.folder),
            date=track.date,
        )
        for number, (key, track) in enumerate(session.tracks.items())
        if track.close()
    ]


@dataclass(slots=True)
class _ClaudeCodeSession:
    """The lines of one file, each assigned to its run."""

    tracks: dict[str, _Track] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    """Keys of runs by line id, for subagents' lines that do not name their agent."""
    folder: str = ""
    """The agent's working folder when it began."""

    def take(self, line: TranscriptLine) -> None:
        own, parent = line.text("uuid"), line.text("parentUuid")
        key = _MAIN
        if line.true("isSidechain"):
            key = line.text("agentId") or self.owners.get(parent) or own or "sidechain"
        self.owners[own] = key
        self.folder = self.folder or line.text("cwd")
        track = self.tracks.setdefault(key, _Track())
        track.date = track.date or date_of(line.text("timestamp"))
        kind = line.text("type")
        if kind in _SAYERS:
            track.say(line, of_model=kind == "assistant")
        elif kind == "attachment":
            track.attach(line)
        elif kind == "system" and line.text("subtype") == "compact_boundary":
            track.restart()
        elif kind == "system" and line.text("subtype") == "microcompact_boundary":
            track.cleared += 1
        track.place(line)


@dataclass(slots=True)
class _Track:
    """One run while its lines are read."""

    date: str = ""
    """The date of its first line."""
    history: list[bytes] = field(default_factory=list)
    prompts: list[RecordedPrompt] = field(default_factory=list)
    answer: list[bytes] = field(default_factory=list)
    """Blocks of the model's message that is being read."""
    answer_id: str = ""
    user_blocks: list[bytes] = field(default_factory=list)
    """Blocks of the user's message that follows it."""
    places: dict[str, int] = field(default_factory=dict)
    """Number of messages in the history up to a line, by line id."""
    usage: CallUsage | None = None
    compactions: int = 0
    cleared: int = 0
    rewinds: int = 0
    attachments: int = 0

    def say(self, line: TranscriptLine, *, of_model: bool) -> None:
        """Add a line of the model, of the user or of tools."""
        message = line.object("message")
        if line.true("isVisibleInTranscriptOnly") or line.true("isApiErrorMessage"):
            return
        if of_model and text_in(message, "model") != _OWN_MODEL:
            self._answered(message, text_in(message, "id") or line.text("requestId") or line.text("uuid"))
        elif not of_model:
            blocks = _blocks(message)
            if not all(map(_is_result, blocks)):
                self._rewind(line.text("parentUuid"))
            self.user_blocks += blocks

    def attach(self, line: TranscriptLine) -> None:
        """Add what was sent in addition to the messages: queued words as the user's, of anything else the number."""
        attached = line.object("attachment")
        prompt = value_in(attached, "prompt")
        if text_in(attached, "type") == "queued_command" and isinstance(prompt, str):
            self.user_blocks.append(_text(prompt))
        else:
            self.attachments += 1

    def restart(self) -> None:
        """Begin the history again, after a compaction."""
        self._flush()
        self.history, self.user_blocks = [], []
        self.compactions += 1

    def place(self, line: TranscriptLine) -> None:
        """Record where in the history a line is."""
        self.places[line.text("uuid")] = len(self.history) + bool(self.answer) + bool(self.user_blocks)

    def close(self) -> bool:
        """Finish the last answer. Returns whether there is a prompt."""
        self._flush()
        return bool(self.prompts)

    def missing(self) -> tuple[str, ...]:
        """Return what was sent and is not in the file."""
        notes = ["the system prompt and the tools' definitions, which session files do not have"]
        if self.attachments:
            notes.append(f"{self.attachments} attachments, whose wording in the prompt the file does not have")
        if self.compactions:
            notes.append(
                f"the prompts that asked for {self.compactions} summaries, after which the history began again"
            )
        if self.cleared:
            notes.append(f"{self.cleared} times Claude Code itself had cleared old results; they are whole here")
        if self.rewinds:
            notes.append(f"{self.rewinds} times the user went back; the prompts are read as of then")
        return tuple(notes)

    def _answered(self, message: Members, message_id: str) -> None:
        if message_id != self.answer_id or not self.answer:
            self._flush()
            self.answer_id = message_id
            model = text_in(message, "model")
            if self.history:
                self.prompts.append(RecordedPrompt(tuple(self.history), b"", model))
        self.answer += _blocks(message)
        used = usage_in(message)
        if used and self.prompts and self.history:
            last = self.prompts[-1]
            self.prompts[-1] = RecordedPrompt(last.messages, last.head, last.model, used)

    def _rewind(self, parent: str) -> None:
        """Go back to the line that a user's words answer, if the model has given it another answer since."""
        place = self.places.get(parent)
        if place is not None and place < len(self.history) + bool(self.answer):
            self._flush()
            del self.history[place:]
            self.rewinds += 1

    def _flush(self) -> None:
        """Write the two messages at the end."""
        if self.answer:
            self.history.append(_message("assistant", self.answer))
        if self.user_blocks:
            # The provider requires results before other blocks.
            self.history.append(_message("user", sorted(self.user_blocks, key=lambda block: not _is_result(block))))
        self.answer, self.user_blocks, self.answer_id = [], [], ""


def _blocks(message: Members) -> list[bytes]:
    if "content" not in message:
        return []
    content = bytes(message["content"])
    if content.lstrip()[:1] == b"[":
        return array_of(content) or []
    text = value_in(message, "content")
    return [_text(text)] if isinstance(text, str) and text else []


def _is_result(block: bytes) -> bool:
    return text_in(members_of(block) or {}, "type") == "tool_result"


def _text(text: str) -> bytes:
    return msgspec.json.encode({"type": "text", "text": text})


def _message(role: str, blocks: Sequence[bytes]) -> bytes:
    return b'{"role":"' + role.encode() + b'","content":[' + b",".join(blocks) + b"]}"
