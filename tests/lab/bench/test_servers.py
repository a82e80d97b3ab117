"""The bench against real servers, on a run so short that it measures nothing."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.lab.bench import __main__ as bench
from tests.lab.bench.inprocess import floor
from tests.lab.bench.wire import PHASES, measure, phases, wire
from tests.lab.harness.prompts import run


def test_a_run_goes_through_both_servers() -> None:
    """Every call is timed at the real program and at the no-op, and its phases are told."""
    made = run(7, 6, 60_000)
    found = measure(made, 8_000, 2)

    assert [[len(made)] * 2] * 3 == [[len(calls) for calls in found.real], [len(calls) for calls in found.noop],
                                     [len(calls) for calls in found.inside]]  # fmt: skip
    assert ["wire", "phases"] == [wire(made, 8_000, found).name, phases(made, found).name]
    assert list(PHASES) == [row[0] for row in phases(made, found).rows]


def test_the_floor_reads_any_body() -> None:
    """Its parts add up."""
    *_, body = run(8, 3, 20_000).bodies()
    found = floor(body)

    assert found.scan + found.hash + found.copy == found.total
    assert 0 < found.total


def test_facts_are_written_beside_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` holds what the tables show, under each part's name."""
    path = tmp_path / "facts.json"

    assert 0 == bench.main(["--quick", "--only", "stash", "--json", str(path)])
    assert ["stash"] == list(orjson.loads(path.read_bytes()))
    assert "Stash" in capsys.readouterr().out


def test_a_file_that_is_not_there_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, with exit code 2."""
    assert 2 == bench.main(["--run", str(tmp_path / "none.json")])
    assert "none.json" in capsys.readouterr().err
