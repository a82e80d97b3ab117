"""`prompt-sidecar guard`: lines and rules of a user's files, never the value."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
from pathlib import Path

import pytest

from prompt_sidecar.cli import guard_files
from prompt_sidecar.cli.commands import main
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.guard.rules import RULES
from tests.cli.running import run

_TOKEN = RULES["github_token"].example
_PASSWORD = RULES["named_secret"].example.partition("=")[2]


def _file(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def _shown(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[str]:
    assert code == main(["guard", *arguments])
    return capsys.readouterr().out.splitlines()


def test_lines_and_rules_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line of output has file, line, rule and action; the summary counts by rule; no value is in either."""
    file = _file(tmp_path, "a.log", f"one\nclone {_TOKEN} {_TOKEN}\r\nDB_PASSWORD={_PASSWORD}\nmail to a@example.org\n")
    *lines, total, first, second, third = _shown(capsys, file)
    assert [
        f"{file}:2: github_token (mask, 2 times)",
        f"{file}:3: named_secret (mask)",
        f"{file}:4: email (observe)",
    ] == lines
    assert total.endswith(": 4 finds")
    assert ["2", "github_token", "(mask)"] == first.split()
    assert {"named_secret", "email"} == {second.split()[1], third.split()[1]}
    assert not any(_TOKEN in line or _PASSWORD in line for line in [*lines, total, first])


@pytest.mark.parametrize("packed", [False, True])
def test_json_is_read_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str], packed: bool) -> None:
    """In JSON lines a value is found behind escapes, and by the name of its member, gzipped or not."""
    escaped = json.dumps({"text": f"x\n{_TOKEN}"}).replace("ghp_", "\\u0067hp_")
    named = json.dumps({"password": _PASSWORD})
    content = f"{{}}\n{escaped}\n{named}\n".encode()
    file = _file(tmp_path, "a.jsonl", gzip.compress(content) if packed else content)
    assert [f"{file}:2: github_token (mask)", f"{file}:3: named_secret (mask)"] == _shown(capsys, file)[:2]


def test_json_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json each line is an object, and the last is the summary."""
    file = _file(tmp_path, "a.txt", f"{_TOKEN}\n")
    found, last = map(json.loads, _shown(capsys, "--json", file))
    expected = {"file": file, "line": 1, "rule": "github_token", "kind": "github_token", "group": "secrets"}
    assert {**expected, "action": "mask", "count": 1} == found
    assert {"files": 1, "bytes": 41, "finds": 1, "rules": {"github_token": 1}} == last["summary"]


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1 only where something was found and --fail was given; 2 where a file or a name is wrong."""
    found, clean = _file(tmp_path, "a", _TOKEN), _file(tmp_path, "b", "nothing\n")
    assert (1, 0, 0) == (main(["guard", "--fail", found]), main(["guard", found]), main(["guard", "--fail", clean]))
    assert 0 == main(["guard", "--fail", "--only", "personal", "--only", "lookalikes", found])
    capsys.readouterr()
    damaged = _file(tmp_path, "c.gz", gzip.compress(b"text" * 100)[:20])
    for arguments, words in (
        (["none"], "cannot be read"),
        ([damaged], "damaged gzip"),
        ([], "needs a FILE"),
        (["--only", "nonsense", clean], "neither a rule"),
        (["--set", "guard.actions=nonsense=mask", clean], "neither a rule nor a group"),
    ):
        assert 2 == main(["guard", *arguments])
        assert words in capsys.readouterr().err


def test_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """--rules lists every rule with its action under these settings; --json has patterns too."""
    rows = {
        line.split()[0]: line.split()[1:] for line in _shown(capsys, "--set", "guard.actions=email=mask", "--rules")
    }
    assert {*RULES, "rule"} == set(rows)
    assert ["personal", "mask", "⟦email:…⟧"] == rows["email"]
    assert ["lookalikes", "observe"] == rows["bidi_control"]
    objects = [json.loads(line) for line in _shown(capsys, "--rules", "--json")]
    assert [rule.pattern for rule in RULES.values()] == [each["pattern"] for each in objects]


def test_lines_are_counted_over_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is read in many pieces has the finds of one that is read at once."""
    lines = [f"{_TOKEN}" if number % 7 == 0 else "x" * (number % 90) for number in range(300)]
    file = _file(tmp_path, "a", "\n".join(lines))
    rules = guard_files.chosen(GuardOptions(), ())
    shown = []
    for size in (guard_files.PIECE_BYTES, 100, 1):
        monkeypatch.setattr(guard_files, "PIECE_BYTES", size)
        out = io.StringIO()
        assert 43 == guard_files.look(rules, [file], as_json=True, out=out, progress=io.StringIO())
        shown.append(out.getvalue())
    assert shown[0] == shown[1] == shown[2]
    assert [number + 1 for number in range(0, 300, 7)] == [
        json.loads(line)["line"] for line in shown[0].splitlines()[:-1]
    ]


def test_progress_is_shown_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal a long work shows how far it is; elsewhere nothing."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(guard_files, "PIECE_BYTES", 1_000)
    monkeypatch.setattr(guard_files, "_PROGRESS_SECONDS", 0.0)
    file = _file(tmp_path, "a", "line\n" * 2_000)
    rules = guard_files.chosen(GuardOptions(), ["secrets"])
    terminal, other = Terminal(), io.StringIO()
    for progress in (terminal, other):
        guard_files.look(rules, [file], as_json=False, out=io.StringIO(), progress=progress)
    assert f"\r{file}: 0 of 0 MB" in terminal.getvalue()
    assert "" == other.getvalue()


@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str], packed: bool) -> None:
    """As the shell's `<(...)` makes one, packed or not."""
    content = f"first\n{_TOKEN}\n".encode()
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(gzip.compress(content) if packed else content,))
    writer.start()
    try:
        line, *_ = _shown(capsys, str(path))
    finally:
        writer.join()
    assert f"{path}:2: github_token (mask)" == line


def test_the_program_reads_the_standard_input(tmp_path: Path) -> None:
    """A file given as - is what comes in; the whole program, in a process of its own."""
    file = _file(tmp_path, "a", f"{_TOKEN}\n")
    done = run("guard", "--fail", file)
    assert (1, f"{file}:1: github_token (mask)") == (done.returncode, done.stdout.splitlines()[0])
    assert "examples:" in run("guard", "--help").stdout
