"""`prompt-sidecar condense`: the smaller text on stdout, what was taken on stderr."""

from __future__ import annotations

from pathlib import Path

import pytest

from prompt_sidecar.cli.commands import main

LINE = "waiting for the server\n"


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """What the command prints, and what it tells."""
    assert 0 == main(["condense", *arguments])
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_what_would_be_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each reduction is told, with whether it can be read back."""
    file = tmp_path / "build.log"
    file.write_text(f"\x1b[31mred\x1b[0m\n{LINE * 200}")
    sent, summary = shown(capsys, str(file), "--tool", "bash", "--arguments", '{"command": "make"}')
    assert f"red\n{LINE}[the line above 200 times]\n" == sent
    first, codes, identical = summary.splitlines()
    assert "saved (9" in first
    assert ["codes", "9", "cannot"] == [codes.split()[place] for place in (0, 1, 3)]
    assert ["identical_lines", "can"] == [identical.split()[place] for place in (0, 3)]


def test_what_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that was read is printed as it is."""
    file = tmp_path / "a.py"
    file.write_text(LINE * 200)
    sent, summary = shown(
        capsys, str(file), "--tool", "bash", "--arguments", '{"command": "cat a.py"}', "--level", "full"
    )
    assert sent == LINE * 200
    assert summary.startswith("unchanged")


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told in a line."""
    assert 1 == main(["condense", str(tmp_path / "none"), "--tool", "bash"])
    assert "none" in capsys.readouterr().err
