"""Rows of peers: what an adapter writes is read; a peer that fails is a row that says so. No peer, no network."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.lab.harness import environments
from tests.lab.harness.environments import (
    REQUIREMENTS,
    Environment,
    Unavailable,
    first_line,
    prepared,
    variables,
    vocabularies,
)
from tests.lab.peers.adapters.chat import Back, to_chat
from tests.lab.peers.cells import Cell, Line, add_peers, cell_of, row_of
from tests.lab.peers.contenders import Outcome
from tests.lab.peers.material import Material
from tests.lab.peers.peers import AT_FIRST_SIGHT, PEERS, Peer, read_prompts, run_peer
from tests.lab.peers.table import cell_table, demands, failures, grid_table
from tests.oracle.runs import Run
from tests.oracle.shapes import ANTHROPIC_MESSAGES, OPENAI_CHAT

TASK = {"role": "user", "content": "Fix it."}
ANSWER = {"role": "assistant", "content": "Done."}
NOBODY = Peer("nobody", "nobody", "no_such_adapter")


@pytest.fixture
def material() -> Material:
    """Two prompts."""
    return Material(Run("tiny", OPENAI_CHAT, [TASK, ANSWER]))


@pytest.fixture
def home(tmp_path: Path) -> Environment:
    """An environment whose interpreter is this one."""
    made = Environment(tmp_path / "nobody")
    made.python.parent.mkdir(parents=True)
    made.python.symlink_to(sys.executable)
    return made


def _line(**found: Any) -> bytes:
    return json.dumps(found).encode()


END = {"version": "peer 1.0", "recallable": 0.5, "seconds": [], "remarks": ["a remark"]}


def test_prompts_are_read(material: Material) -> None:
    """A message is written once, and prompts name it by its place."""
    lines = [
        _line(seconds=0.1, new=[TASK], places=[0], system=0),
        _line(seconds=0.3, new=[ANSWER], places=[0, 1], system=0),
        _line(end=END),
    ]
    outcome = read_prompts(lines, material)
    assert outcome is not None
    assert [material.sent(1), material.sent(2)] == list(outcome.turns)
    assert ([0.1, 0.3], 0.5, ("peer 1.0", "a remark")) == (outcome.seconds, outcome.recallable, outcome.remarks)


def test_an_unfinished_adapter_is_noticed(material: Material) -> None:
    """Prompts without an end are no outcome, and an end after too few prompts is an error."""
    first = _line(seconds=0.1, new=[TASK], places=[0], system=0)
    assert read_prompts([first], material) is None
    with pytest.raises(ValueError, match="1 prompts of 2"):
        read_prompts([first, _line(end=END)], material)


def test_vocabularies_are_made_ahead_of_the_threads(material: Material, tmp_path: Path) -> None:
    """Peers are measured at the same time: none has to make, or find half made, what all of them read."""
    add_peers([cell_of(material, 0.5)], [NOBODY], tmp_path)
    assert 2 == len(list((tmp_path / "tiktoken").iterdir()))


def test_a_peer_that_was_not_installed(material: Material) -> None:
    """Its row says why."""
    outcome = run_peer(NOBODY, Unavailable("the installation failed: no such wheel"), material, 1_000)
    row = row_of(NOBODY.name, outcome, material, 1_000)
    assert (None, "the installation failed: no such wheel") == (row.figures, row.failure)


def test_a_peer_that_dies(material: Material, home: Environment) -> None:
    """Its row holds its last words."""
    outcome = run_peer(NOBODY, home, material, 1_000)
    assert "it died" in outcome.failure
    assert "no_such_adapter" in outcome.failure


def test_a_peer_without_an_interpreter(material: Material, tmp_path: Path) -> None:
    """It is a row too."""
    assert run_peer(NOBODY, Environment(tmp_path / "none"), material, 1_000).failure


def test_a_run_that_is_left_out(material: Material) -> None:
    """A peer that would take minutes says that it was left out."""
    slow = Peer("slow", "nobody", "no_such_adapter", most_prompts=1)
    assert "left out above 1 prompts" in run_peer(slow, Unavailable("unasked"), material, 1_000).failure


def test_no_requirements(tmp_path: Path) -> None:
    """An unknown peer has no environment, and the others are not kept from theirs."""
    assert "no requirements" in str(prepared(["nobody"], tmp_path)["nobody"])


def test_a_failed_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the installer complained of is told, and nothing is taken for ready."""
    (tmp_path / "broken.txt").write_text("no-hash==1.0\n")
    monkeypatch.setattr(environments, "REQUIREMENTS", tmp_path)
    monkeypatch.setenv("UV_OFFLINE", "1")
    found = prepared(["broken"], tmp_path / "cache")["broken"]
    assert isinstance(found, Unavailable)
    assert "the installation failed" in str(found)
    assert not list((tmp_path / "cache").rglob("ready"))


def test_reasons_hold_no_address() -> None:
    """An installer names the registry that it could not reach; a table must not."""
    line = first_line("error: failed to fetch\n  × https://registry.example/simple/\n")
    assert "error: failed to fetch (an address)" == line


def test_nothing_of_ours_reaches_a_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter's process gets no variable of this one, and a vocabulary in place of a download."""
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    given = variables(tmp_path, tmp_path)
    assert "secret" not in given.values()
    assert "True" == given["LITELLM_LOCAL_MODEL_COST_MAP"]
    assert 2 == len(list(vocabularies(tmp_path).iterdir()))


def test_every_peer_is_pinned() -> None:
    """Each has requirements with hashes, an adapter, and no address of a registry."""
    for peer in (*PEERS, *AT_FIRST_SIGHT):
        pins = (REQUIREMENTS / f"{peer.key}.txt").read_text()
        assert "--hash=sha256:" in pins
        assert "://" not in pins
        assert (REQUIREMENTS.parent / "adapters" / f"{peer.adapter}.py").is_file()


def test_the_way_to_chat_and_back() -> None:
    """An Anthropic run comes back as it was sent; a changed result changes its message only."""
    use = {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "é"}}
    answer = {"role": "assistant", "content": [{"type": "text", "text": "I look."}, use]}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "one"}]}
    messages: list[Any] = [TASK, answer, {"role": "user", "content": [result, {"type": "text", "text": "Well?"}]}]
    chat = to_chat(ANTHROPIC_MESSAGES, "Be careful.", messages)
    assert ["system", "user", "assistant", "tool", "user"] == [message["role"] for message in chat]
    back = Back(ANTHROPIC_MESSAGES, messages)
    system, again = back.messages(chat)
    assert ["Be careful."] == system
    assert answer == again[1]
    assert [{"type": "tool_result", "tool_use_id": "a", "content": "one"}] == again[2]["content"][:1]
    _, changed = back.messages([*chat[:3], chat[3] | {"content": "[cleared]"}, chat[4]])
    assert again[:2] == changed[:2]
    assert "[cleared]" == changed[2]["content"][0]["content"]


def test_the_table_names_a_failed_peer(material: Material) -> None:
    """A failed row stands in the table, with its reason below; the demands are held against the others."""
    cell = cell_of(material, 1.0)
    cell.rows.append(row_of("nobody", Outcome(failure="it died: of boredom"), material, cell.budget))
    shown = _shown(cell)
    assert "nobody" in shown
    assert "not measured" in shown
    assert ["nobody: it died: of boredom"] == list(failures(cell))
    assert {"name": "nobody", "failure": "it died: of boredom", "remarks": []} in cell.facts()["rows"]  # type: ignore[operator]
    assert all(not demand.broken for demand in demands([cell], []))


def test_a_cheaper_peer_breaks_the_demand(material: Material) -> None:
    """A sound row that costs less than ours is named, and what it loses; one that is over the budget is not."""
    cell = cell_of(material, 1.0)
    over = Outcome([material.sent(1), material.sent(2) * 2], [0.1])
    lossy = Outcome([material.sent(1), material.sent(2)[1:]], [0.1])
    cell.rows += [row_of(name, made, material, cell.budget) for name, made in (("over", over), ("lossy", lossy))]
    over_all, there = [text for demand in demands([cell], []) for text in demand.broken]
    assert over_all.startswith("lossy 0.")
    assert there.startswith("tiny 100%: lossy 0.")
    assert there.endswith("loses the first user message")
    cell.rows.append(row_of("lossy", over, material, cell.budget))  # as in another cell, where it is not sound
    assert [there] == [text for demand in demands([cell], []) for text in demand.broken]


def test_the_grid() -> None:
    """The mean of costs is geometric; costs and what stands are held against what is demanded of the run."""
    even, less = {0.3: (0.5, 0.4), 0.6: (0.4, 0.5)}, {0.3: (0.1, 0.4), 0.6: (0.6, 0.5)}
    lines = [Line("long", True, {0.3: 0.5, 0.6: 2.0}, even), Line("short", False, {0.3: 1.0, 0.6: 1.0}, less)]
    assert [1.0, 1.0] == [line.mean for line in lines]
    assert [("long 1.000",), ()] == [tuple(demand.broken) for demand in demands([], lines)]
    shown = [replace(lines[0], ratios={0.3: 0.9}, shown=less)]
    assert [(), ("long 35.0% and 45.0%",)] == [tuple(demand.broken) for demand in demands([], shown)]
    console = Console(width=160)
    with console.capture() as capture:
        console.print(grid_table(lines))
    assert "0.95" in capture.get()


def _shown(cell: Cell) -> str:
    console = Console(width=150)
    with console.capture() as capture:
        console.print(cell_table(cell))
    return capture.get()
