"""Reading the files that settings name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prompt_sidecar.files import MOST_BYTES, read_file

_SHORT = 0.01
"""Seconds; nothing comes in them, however slow the machine is."""


def test_files_are_read_whole(tmp_path: Path) -> None:
    """All bytes come back, also of a file as large as one may be."""
    file = tmp_path / "file"
    file.write_bytes(bytes(MOST_BYTES))
    assert bytes(MOST_BYTES) == read_file(str(file))


def test_a_pipe_that_is_written_to_is_read() -> None:
    """As the shell's `<(...)` makes one."""
    read, written = os.pipe()
    os.write(written, b"of a pipe")
    os.close(written)
    try:
        assert b"of a pipe" == read_file(f"/dev/fd/{read}")
    finally:
        os.close(read)


def test_a_silent_pipe_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    """Whether it has a writer or none."""
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    with pytest.raises(OSError, match="did not end within"):
        read_file(fifo, seconds=_SHORT)
    kept = os.open(fifo, os.O_RDWR)
    try:
        with pytest.raises(OSError, match="did not end within"):
            read_file(fifo, seconds=_SHORT)
    finally:
        os.close(kept)


def test_what_must_be_a_file_is_one(tmp_path: Path) -> None:
    """A pipe can be read once, and some files are read by a library, too."""
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    with pytest.raises(OSError, match="not a regular file"):
        read_file(fifo, pipes=False)


def test_what_never_ends_is_left(tmp_path: Path) -> None:
    """A device, and a file of gigabytes, are not read to their end."""
    large = tmp_path / "large"
    with large.open("wb") as opened:
        opened.truncate(MOST_BYTES + 1)
    for path in ("/dev/zero", str(large)):
        with pytest.raises(OSError, match="more than 16,777,216 bytes"):
            read_file(path)


def test_what_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    """A folder, and nothing at all."""
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(OSError, match=r"Is a directory|No such file"):
            read_file(str(path))
