"""A file's transcripts, whatever its kind: the kind is recognised by the content, not by the name."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from prompt_sidecar.report.transcripts import claude_code, codex, request_logs, run_files
from prompt_sidecar.report.transcripts.files import TranscriptLine, content, lines, members_of
from prompt_sidecar.report.transcripts.model import Transcript, TranscriptError

_LOOKED_AT: Final = 1_000
"""Lines by which a kind is recognised: sessions begin with some dozen lines without messages."""


def read_transcripts(path: Path, named: str | None = None) -> list[Transcript]:
    """Read all runs of a file; `named`: the messages' format if the file does not give it.

    Raises:
        TranscriptError: it cannot be read, is damaged, or is of no known kind.
    """
    raw = content(path)
    start = raw.lstrip()
    if not start:
        raise TranscriptError(f"{path} is empty: it {run_files.NOT_A_RUN}")
    if start[:1] == b"[":
        return [run_files.read(path, raw, named)]
    if start[:1] != b"{":
        raise TranscriptError(f"{path} {run_files.NOT_A_RUN}")
    if not _several_lines(start) and (members := members_of(raw)) is not None:
        return _of_lines(path, [TranscriptLine(1, members)], named, "")
    found, cut = lines(path, raw)
    return _of_lines(path, found, named, cut)


def _several_lines(start: bytes) -> bool:
    """Whether the first line is an object by itself, and others follow."""
    first, _, rest = start.partition(b"\n")
    return bool(rest.strip()) and members_of(first) is not None


def _of_lines(path: Path, found: Sequence[TranscriptLine], named: str | None, cut: str) -> list[Transcript]:
    looked = list(islice(found, _LOOKED_AT))
    if codex.fits(looked):
        read = codex.read(path, found)
    elif claude_code.fits(looked):
        read = claude_code.read(path, found)
    elif len(found) == 1 and any(name in found[0].members for name in run_files.LISTS):
        read = [run_files.of_messages(path, _messages(path, found[0]), found[0].members, named)]
    elif request_logs.fits(looked):
        read = request_logs.read(path, found, named)
    elif all({"role", "type"} & line.members.keys() for line in looked):
        read = [run_files.of_messages(path, [_raw(line) for line in found], {}, named)]
    else:
        raise TranscriptError(f"{path} {run_files.NOT_A_RUN}")
    if not read:
        raise TranscriptError(f"{path} holds no call of a model: the session ended before one was answered")
    if not cut:
        return read
    return [Transcript(run.name, run.source, run.form, run.prompts, (*run.missing, cut)) for run in read]


def _messages(path: Path, line: TranscriptLine) -> list[bytes]:
    messages = request_logs.messages_of(line.members)
    if messages is None:
        raise TranscriptError(f"{path} {run_files.NOT_A_RUN}")
    return messages


def _raw(line: TranscriptLine) -> bytes:
    return msgspec.json.encode(line.members)
