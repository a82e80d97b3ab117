"""From cells to summaries, choices, tables and the picture."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import orjson
import pytest
from rich.console import Console

from tests.lab.evidence import __main__ as program
from tests.lab.evidence.making import filler, made
from tests.lab.evidence.measuring import Cell, Sums
from tests.lab.evidence.recordings import CHAT, paths
from tests.lab.evidence.summary import Board, agent_of, chosen, estimate, left_out, of_hidden
from tests.lab.evidence.table import (
    band_table,
    board_table,
    cell_table,
    choice_table,
    gain_table,
    group_table,
    picture,
)

RUNS = ("one", "two", "three")


def _cell(run: str, contender: str, visible: float, cost: float, *, limit: int = 40_000, over: int = 0) -> Cell:
    cell = Cell(run, 0.3, limit, contender, turns=9, counted=5, cost=cost, over=over)
    cell.sums = Sums(total=5.0, visible=5 * visible, sourced=4.0, source=4 * visible)
    return cell


def _board() -> Board:
    """`dear` shows most and costs too much, `wild` is best on two runs and over the limit on the third."""
    cells = []
    for run in RUNS:
        cells += [_cell(run, "control", 0.8, 1_000), _cell(run, "plain", 0.7, 900), _cell(run, "good", 0.9, 930)]
        cells += [_cell(run, "dear", 0.99, 1_000), _cell(run, "wild", 0.95, 900, over=int(run == "three"))]
    return Board(cells)


def test_the_mean_lies_within_its_interval() -> None:
    """The mean lies within its interval, which is nothing for equal values and there is none of nothing."""
    found = estimate([0.1, 0.5, 0.9])
    assert found is not None
    assert 0.1 <= found.low < found.mean < found.high <= 0.9
    same = estimate([0.5, 0.5])
    assert same is not None
    assert (0.5, 0.5, 0.5) == (same.low, same.mean, same.high)
    assert estimate([]) is None


def test_a_cell_that_hides_little_counts_little() -> None:
    """Shares of what is hidden are weighed by how much that is; a cell that hides nothing changes nothing."""
    cells = []
    for run, hidden, found in (("one", 4.0, 2.0), ("two", 1.0, 1.0), ("three", 0.0, 0.0)):
        cell = _cell(run, "plain", 0.5, 1)
        cell.searched = True
        cell.sums = Sums(total=10.0, hidden=hidden, askable=found, asked=hidden, by_name=found)
        cells.append(cell)
    for part in ("askable", "by_name"):
        found_of = of_hidden(cells, part)
        assert found_of is not None
        assert pytest.approx(0.6) == found_of.mean
        assert 2 == found_of.runs
    assert of_hidden(cells[2:], "by_name") is None


def test_groups_by_agent_and_limit() -> None:
    """Each kind of agent has its figures at each limit, and all together last."""
    names = ("cc-one", "claude-code-two", "codex-three", "opencode-four", "pi-five")
    kinds = ["Claude Code", "Claude Code", "Codex", "OpenCode", "other"]
    assert kinds == [agent_of(name) for name in names]
    board = Board([_cell(name, who, 0.5, cost) for name in names for who, cost in (("control", 1_000), ("plain", 900))])
    found = board.groups("plain")
    assert [*dict.fromkeys(kinds), ""] == [group.agent for group in found]
    assert [2, 1, 1, 1, 5] == [group.runs for group in found]
    assert all(group.cost and pytest.approx(0.9) == group.cost.mean for group in found)


def test_a_run_counts_once() -> None:
    """Two limits of a run are one figure."""
    board = Board([_cell("one", "plain", 0.5, 1), _cell("one", "plain", 0.7, 1), _cell("two", "plain", 1.0, 1)])
    found = board.summary("plain").visible
    assert found is not None
    assert pytest.approx(0.8) == found.mean
    assert 2 == found.runs


def test_against_the_control() -> None:
    """Costs and gains are told against the control on the same run at the same limit."""
    one = _board().summary("good")
    assert one.cost is not None
    assert one.visible_gain is not None
    assert pytest.approx(0.93) == one.cost.mean
    assert pytest.approx(0.1) == one.visible_gain.mean
    assert (3, 0) == (one.better, _board().summary("plain").better)


def test_small_limits_are_distinguished() -> None:
    """A cost at a limit below 16,000 tokens is not in the mean."""
    cells = [_cell("one", "control", 0.8, 1_000, limit=9_000), _cell("one", "plain", 0.7, 2_000, limit=9_000)]
    one = Board(cells).summary("plain")
    assert one.cost is None
    assert one.small_cost is not None
    assert pytest.approx(2.0) == one.small_cost.mean


def test_chosen_is_sound_and_cheap_enough() -> None:
    """Of what is never over and costs little enough, what shows most; else the cheapest."""
    board = _board()
    names = ["plain", "good", "dear", "wild"]
    assert "good" == chosen(board, names, RUNS, 0.94)
    assert "wild" == chosen(board, names, RUNS[:2], 0.94)
    assert "plain" == chosen(board, names, RUNS, 0.5)


def test_left_out() -> None:
    """Each run is reported with what was chosen without it, which may not do there what it did elsewhere."""
    found = {one.run: one for one in left_out(_board(), ["plain", "good", "wild"])}
    assert ["good", "good", "wild"] == [found[run].chosen for run in RUNS]
    assert 1 == found["three"].over


def test_lost_is_unknown_without_a_search() -> None:
    """A strategy that can be searched and was not has no figure for what is lost; one that cannot has."""
    plain, other = _cell("one", "plain", 0.5, 1), _cell("one", "other", 0.5, 1)
    plain.searchable = True
    other.sums.lost = 2.5
    board = Board([plain, other])
    assert board.summary("plain").lost is None
    lost = board.summary("other").lost
    assert lost is not None
    assert 0.5 == lost.mean


def test_picture_and_tables() -> None:
    """The picture is an image with every strategy's name, and the tables print."""
    board = _board()
    summaries = [board.summary(name) for name in board.contenders]
    drawn = picture(summaries)
    ET.fromstring(drawn)
    assert all(f">{name}<" in drawn for name in board.contenders)
    console = Console(width=200, record=True)
    for table in (
        board_table(summaries),
        gain_table(summaries),
        band_table(summaries),
        group_table([group for one in summaries for group in board.groups(one.contender)]),
        cell_table(board),
        choice_table(left_out(board, ["good"])),
    ):
        console.print(table)
    assert "good" in console.export_text()


@pytest.mark.parametrize(
    "wrong", ["--policy=age_keep_text", "--policy=no_such_knob=1", "--grid=fit_low", "--policy=x:a=1"]
)
def test_a_policy_that_cannot_be_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message says what was wrong, before anything is measured."""
    with pytest.raises(SystemExit):
        program.main([wrong])
    assert "error:" in capsys.readouterr().err


def test_without_data_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is one plain line and an exit code."""
    monkeypatch.setenv("PROMPT_SIDECAR_DATA", str(tmp_path))
    assert 1 == program.main([])
    assert "PROMPT_SIDECAR_DATA" in capsys.readouterr().err


def test_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The shortest recorded run is measured with a policy and a grid; the files are there and agree."""
    if "tau-airline-0" not in paths():
        pytest.skip("recorded data runs not found; PROMPT_SIDECAR_DATA names the folder that holds them")
    json, svg = tmp_path / "facts.json", tmp_path / "picture.svg"
    options = ["--runs", "tau-airline-0", "--quick", "--jobs", "1", "--cells", "--ask", "2"]
    options += ["--policy", "lean:age_keep_text=5", "--grid", "fit_low=0.3,0.4", "--shares", "60", "80"]
    assert 0 == program.main([*options, "--json", str(json), "--picture", str(svg)])
    facts = orjson.loads(json.read_bytes())
    names = [one["contender"] for one in facts["summaries"]]
    expected = [
        "control",
        "cache_first",
        "lean, age_keep_text=5",
        "cache_first, fit_low=0.3",
        "cache_first, fit_low=0.4",
    ]
    assert expected == names
    assert 10 == len(facts["cells"])
    assert facts["cells"] == [Cell.of(cell).facts() for cell in facts["cells"]]
    # What is known is not measured again.
    assert 0 == program.main([*options, "--known", str(json), "--json", str(tmp_path / "again.json")])
    assert facts["cells"] == orjson.loads((tmp_path / "again.json").read_bytes())["cells"]
    ET.fromstring(svg.read_text())
    assert "Next-action evidence" in capsys.readouterr().out


def test_several_processes_measure_as_one(tmp_path: Path) -> None:
    """The command as `make evidence` starts it measures in several processes what it measures in one."""
    (tmp_path / "runs").mkdir()
    made_run = made(CHAT, [filler(number) for number in range(40)])
    file = tmp_path / "runs" / f"made.{CHAT}.json.gz"
    file.write_bytes(gzip.compress(orjson.dumps({"format": "openai_chat", "messages": made_run.messages})))
    outputs = []
    for jobs in ("1", "2"):
        json = tmp_path / f"{jobs}.json"
        command = [sys.executable, "-m", "tests.lab.evidence", "--contenders", "cache_first", "--ask", "0"]
        ended = subprocess.run(
            [*command, "--jobs", jobs, "--json", str(json)],
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PROMPT_SIDECAR_DATA": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert 0 == ended.returncode, ended.stderr
        cells = orjson.loads(json.read_bytes())["cells"]
        outputs.append([{key: value for key, value in cell.items() if key != "seconds"} for cell in cells])
    assert outputs[0] == outputs[1]
    assert 6 == len(outputs[0])
