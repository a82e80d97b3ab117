"""Transcripts of a folder, and those that agents keep in the user's home.

Links are never followed, so that nothing outside the folder is read; depth and number are limited.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prompt_sidecar.report.transcripts.model import TranscriptError

MOST_FILES: Final = 1_000
"""Files read from a folder, the newest first: some months of work."""
DEEPEST: Final = 8
"""Levels of folders: Claude Code's subagents are five below, Codex's sessions four."""
_MOST_ENTRIES: Final = 200_000
"""Entries examined in one folder, so that a mistaken one, such as a whole disk, ends."""
_ENDS: Final = (".json", ".jsonl", ".json.gz", ".jsonl.gz")


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """Where an agent stores its sessions, in the user's home."""

    folder: str
    begins: str
    """Beginning of the files' names."""


PLACES: Final = (
    SessionFolder(".claude/projects", ""),
    SessionFolder(".codex/sessions", "rollout-"),
    SessionFolder(".codex/archived_sessions", "rollout-"),
)


def find_sessions(home: Path) -> list[Path]:
    """Return the newest session files in the usual folders of `home`. Raises TranscriptError if there are none."""
    found = [
        path
        for place in PLACES
        if not _through_link(home, place.folder)
        for path in files_of(home / place.folder)
        if path.name.startswith(place.begins) and path.name.endswith(".jsonl")
    ]
    if not found:
        raise TranscriptError(f"no session files: looked in {', '.join(f'~/{place.folder}' for place in PLACES)}")
    return newest(found)


def files_of(folder: Path) -> list[Path]:
    """Return the newest files in a folder whose names may be those of transcripts; none if it cannot be read."""
    return newest(list(_walk(folder)))


def newest(paths: Sequence[Path]) -> list[Path]:
    """Return at most `MOST_FILES` of the paths, the newest; in the order of their names."""
    taken = sorted(paths, key=_changed, reverse=True)[:MOST_FILES]
    return sorted(taken)


def _walk(folder: Path) -> Iterator[Path]:
    waiting = [(folder, 0)]
    seen = 0
    while waiting:
        inside, depth = waiting.pop()
        try:
            with os.scandir(inside) as entries:
                for entry in entries:
                    seen += 1
                    if seen > _MOST_ENTRIES:
                        return
                    if entry.is_dir(follow_symlinks=False) and depth < DEEPEST:
                        waiting.append((inside / entry.name, depth + 1))
                    elif entry.is_file(follow_symlinks=False) and entry.name.endswith(_ENDS):
                        yield inside / entry.name
        except OSError:
            continue  # a folder without read permission, or one that was removed


def _through_link(home: Path, folder: str) -> bool:
    """Whether a part of a folder's path below the home is a link."""
    parts = Path(folder).parts
    return any((home / Path(*parts[:count])).is_symlink() for count in range(1, len(parts) + 1))


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0
