"""The agent's tools stay inside the source tree and answer whatever happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from prompt_sidecar.engine.tools.definitions import definitions
from tests.lab.demo.investigation import SIDECAR_TOOLS
from tests.lab.demo.tools import GREP_LINES, Tools, schemas


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    """Tools over a small tree, with a secret beside it and a link that leads there."""
    (tmp_path / "secret.py").write_text("token = 1\n")
    tree = tmp_path / "tree"
    (tree / "package").mkdir(parents=True)
    (tree / "package" / "a.py").write_text("one\ntwo — zwei\nthree")
    (tree / "way_out").symlink_to(tmp_path)
    return Tools(tree)


@pytest.mark.parametrize("path", ["../secret.py", "way_out/secret.py", "package/../../secret.py", "/etc/hosts"])
@pytest.mark.parametrize(("name", "more"), [("read_file", {}), ("list_dir", {}), ("grep", {"pattern": "token"})])
def test_no_tool_reads_outside_the_tree(tools: Tools, name: str, more: dict[str, str], path: str) -> None:
    """No tool reaches a file outside the tree, by whatever spelling or link."""
    assert f"error: {path} lies outside the source tree" == tools.call(name, {"path": path} | more)


def test_lines_have_their_numbers(tools: Tools) -> None:
    """Lines come with the numbers that they have in the file."""
    assert "    2  two — zwei\n    3  three\n" == tools.call("read_file", {"path": "package/a.py", "first": 2})
    assert "    2  two — zwei\n" == tools.call("read_file", {"path": "package/a.py", "first": 2, "last": 2})


def test_errors_are_answers(tools: Tools) -> None:
    """What cannot be done is told in words, without the tree's place on this machine."""
    assert "error: package/b.py: No such file or directory" == tools.call("read_file", {"path": "package/b.py"})
    assert "error: package/a.py has no line 9" == tools.call("read_file", {"path": "package/a.py", "first": 9})
    assert "error: there is no tool rm" == tools.call("rm", {})


def test_matches_have_file_and_line(tools: Tools) -> None:
    """Matches come with file and line; a search that finds too much is cut, and says by how much."""
    assert "package/a.py:1:one" == tools.call("grep", {"pattern": "^one", "path": "package"})
    (tools.root / "package" / "b.py").write_text("x\n" * (GREP_LINES + 7))
    found = tools.call("grep", {"pattern": "x", "path": "package"}).splitlines()
    assert (GREP_LINES + 1, "… 7 more") == (len(found), found[-1])


def test_output_comes_with_the_exit_code(tools: Tools) -> None:
    """The interpreter's output comes with its exit code."""
    assert "2\n[exit code 0]" == tools.call("run_python", {"arguments": ["-c", "print(1 + 1)"]})
    assert "[exit code 3]" == tools.call("run_python", {"arguments": ["-c", "raise SystemExit(3)"]})


def test_schemas_name_the_tools(tools: Tools) -> None:
    """Each tool of the agent's that is offered to the model can be called; none has the name of a sidecar's."""
    names = {schema["function"]["name"] for schema in schemas()}
    assert {"list_dir", "grep", "read_file", "run_python"} == names
    assert all(hasattr(tools, name) for name in names)
    assert not names & set(SIDECAR_TOOLS)


def test_sidecar_tools() -> None:
    """The script uses the sidecar's tools by the names that it gives them."""
    assert [tool.name for tool in definitions("openai_chat", ())] == list(SIDECAR_TOOLS)
