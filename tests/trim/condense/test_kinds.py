"""What a result holds: told by the tool, by its command, and by the text."""

from __future__ import annotations

import json

import pytest

from prompt_sidecar.trim.condense.calls import KEPT_CHARACTERS, SourceCall, UnreadCall, call_of, kept_call
from prompt_sidecar.trim.condense.kinds import ResultKind, is_run, kind_of
from prompt_sidecar.trim.condense.output import Output


def shell(command: str) -> SourceCall:
    """A call of a shell."""
    return call_of("Bash", json.dumps({"command": command}))


@pytest.mark.parametrize(
    "tool",
    [
        *("Read", "read_file", "read_text_file", "NotebookRead", "view", "str_replace_editor", "get_file_contents"),
        *("Edit", "MultiEdit", "write_file", "apply_patch", "mcp__fs__read_multiple_files", "openDocument", "fs-view"),
    ],
)
def test_tools_that_show_files(tool: str) -> None:
    """By a word of the name, however it is written."""
    assert call_of(tool, "{}").reads


@pytest.mark.parametrize(
    "tool", ["Bash", "exec_command", "write_stdin", "Grep", "search_file_content", "list_directory", "Glob", "get_jobs"]
)
def test_tools_that_do_not(tool: str) -> None:
    """Shells, searches, lists, and whatever has another name."""
    assert not call_of(tool, "{}").reads


def test_a_command_with_half_an_emoji() -> None:
    """JavaScript cuts one in two; the rest of the command is looked at all the same."""
    call = call_of("Bash", r'{"command": "make test # \ud83d"}')
    assert (True, True, False) == (call.shell, call.runs, call.reads)
    assert call_of("Bash", r'{"command": "cat a.py # \ud83d"}').reads


@pytest.mark.parametrize(
    "command",
    [
        *("cat a.py", "sed -n '1,9p' a.py", "nl -ba a.py", "head a.py", "tail -n 9 a.py", "/usr/bin/cat a.py"),
        *("type a.txt", "Get-Content a.txt", 'powershell -Command "Get-Content a.txt"', "bash -lc 'sed -n 1,9p a.py'"),
        *("cd src && cat a.py", "ls; cat a.py", "ls\ncat a.py", "test -f a || cat b", "for f in *; do cat $f; done"),
        *("A=1 cat a.py", "sudo cat a.py", "find . -exec cat {} +", "ls | xargs cat", "(cat a.py)", "jq . a.json"),
        *(
            "git diff",
            "git -C x show HEAD:a.py",
            "git --no-pager diff --cached",
            "gh pr diff 3",
            "diff a b",
            "git blame a",
        ),
    ],
)
def test_commands_that_show_files(command: str) -> None:
    """Wherever in the command it stands."""
    assert shell(command).reads


@pytest.mark.parametrize(
    "command",
    [
        *("make | head -50", "pytest 2>&1 | tail -20", "rg -n 'type Foo struct'", "ls category", "npm test"),
        *("git diff --stat", "git log --oneline", "echo concatenate", "git status", "./cat-tool run"),
    ],
)
def test_commands_that_do_not(command: str) -> None:
    """Behind a pipe a reader shows what a program wrote."""
    assert not shell(command).reads


@pytest.mark.parametrize(
    ("text", "call", "kind"),
    [
        ("x", None, ResultKind.OTHER),
        ("x", shell("cat a.py"), ResultKind.SOURCE),
        ("--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y", shell("make"), ResultKind.SOURCE),
        ("     1→a\n     2→b\n     3→c", SourceCall("get"), ResultKind.SOURCE),
        ("Result:\n    98\ta\n    99\tb\n   100\tc", SourceCall("get"), ResultKind.SOURCE),
        ("   12\t34\n   99\t35\n    7\t36", shell("make"), ResultKind.OTHER),
        ("<html>", SourceCall("fetch"), ResultKind.PAGE),
    ],
)
def test_what_a_result_holds(text: str, call: SourceCall | None, kind: ResultKind) -> None:
    """A diff is one whatever made it; numbers of lines follow each other."""
    assert kind is kind_of(Output(text, call), ["fetch"])


@pytest.mark.parametrize(
    ("text", "command", "whether"),
    [
        ("x", "npm run build", True),
        ("x", "git commit -m 'fix the build'", False),
        ("✓ a\n✓ b", "git push", True),
        ("✓ a\n✓ b", "rg works", False),
        ("2026-01-01T10:00:00 up\n2026-01-01T10:00:01 down\nend", "./serve", True),
        ("x", "./serve", False),
    ],
)
def test_what_programs_wrote(text: str, command: str, whether: bool) -> None:
    """Tests, builds and services, but not searches and commits."""
    assert whether == is_run(Output(text, shell(command)))


def test_which_tools_are_shells() -> None:
    """By a command, or by a word of the name."""
    assert call_of("anything", '{"cmd": "ls"}').shell
    assert call_of("exec", '{"command": ["bash", "-lc", "ls"]}').shell
    assert call_of("run_tests", "{}").shell
    assert not call_of("list_jobs", "{}").shell
    assert not call_of("list_jobs", "no JSON [").reads


@pytest.mark.parametrize("arguments", ["", "{}", '{"command": "cat a.py"}', "free text", '{"command": "make \\ud83d"}'])
def test_a_call_that_is_read_later(arguments: str) -> None:
    """A call says the same whenever it is read; long arguments are not kept."""
    kept = kept_call("Bash", arguments)
    assert isinstance(kept, UnreadCall)
    assert call_of("Bash", arguments) == kept.read()


def test_long_arguments_are_not_kept() -> None:
    """A call with long arguments is read where it is there."""
    arguments = json.dumps({"command": f"cat a.py # {'x' * KEPT_CHARACTERS}"})
    kept = kept_call("Bash", arguments)
    assert isinstance(kept, SourceCall)
    assert kept.reads
