"""`prompt-sidecar replay` with a report: real files through the real program."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path

import pytest

from prompt_sidecar.cli.commands import main
from prompt_sidecar.config.settings import load
from prompt_sidecar.report.figures import ReportRequest
from prompt_sidecar.report.output import MARK
from prompt_sidecar.report.work import Measurement, measured
from tests.cli.running import run
from tests.report.transcripts.samples import bodies, jsonl, rollout, session


def _folder(path: Path) -> Path:
    path.mkdir()
    jsonl(path / "claude.jsonl", session(calls=14, size=200))
    jsonl(path / "codex.jsonl", rollout(calls=9, size=200))
    jsonl(path / "log.jsonl", bodies(6, size=200))
    return path


def test_a_folder_becomes_a_page_and_figures(tmp_path: Path) -> None:
    """Every kind in it, sorted by cost, measured in several processes; what is no transcript is left out and told."""
    folder = _folder(tmp_path / "runs")
    (folder / "notes.json").write_text('{"a": 1}')
    html, figures = tmp_path / "r.html", tmp_path / "r.json"
    ended = run("replay", str(folder), "--html", str(html), "--json", str(figures), "--limit", "3000")
    assert 0 == ended.returncode, ended.stderr
    assert "left out: " in ended.stderr
    assert "notes.json is not a run" in ended.stderr
    made = json.loads(figures.read_text())
    assert 2 == made[MARK]
    runs = {one["name"]: one for one in made["runs"]}
    assert {"claude.jsonl": 15, "codex.jsonl": 10, "log.jsonl": 6} == {
        name: len(one["turns"]) for name, one in runs.items()
    }
    costs = [one["never"]["cost"] for one in made["runs"]]
    assert sorted(costs, reverse=True) == costs
    assert ["cache_first", "lean", "cap_only", "fit_only"] == [one["preset"] for one in made["runs"][0]["presets"]]
    assert runs["codex.jsonl"]["counted"]["cached"] == 50 * sum(range(1, 11))
    assert html.read_text().startswith("<!DOCTYPE html>")
    assert "all together: cache_first costs" in ended.stdout


def test_a_reports_figures_are_those_of_the_server(tmp_path: Path) -> None:
    """The core in this process and a server give the same prompts, and the same money for them."""
    path = jsonl(tmp_path / "s.jsonl", session(calls=14, size=200))
    # No prompt comes within 40 tokens of where it would be cut: ids are random, so one token must not matter.
    flags = ("--limit", "2700", "--prices", "3,0.3,3.75,15")
    assert 0 == run("replay", str(path), *flags, "--json", str(tmp_path / "r.json")).returncode
    served = run("replay", str(path), *flags, "--json")
    assert 0 == served.returncode, served.stderr
    *turns, last = map(json.loads, served.stdout.splitlines())
    (report,) = json.loads((tmp_path / "r.json").read_text())["runs"]
    first = report["presets"][0]
    assert [turn["before"] for turn in turns] == [turn["before"] for turn in report["turns"]]
    # Ids are minted for another run there, and may take some tokens more or less.
    assert sum(turn["after"] for turn in turns) == pytest.approx(sum(first["after"]), rel=0.05)
    summary = last["summary"]
    assert report["counted"] == summary["counted"]
    assert summary["untrimmed_cost"] == pytest.approx(report["never"]["cost"])
    assert summary["untrimmed_money"] == pytest.approx(report["never"]["money"])
    assert summary["control_share"] == pytest.approx(report["control_share"])
    assert summary["share"] == pytest.approx(first["share"], rel=0.15)
    assert 0 < summary["money"] < summary["untrimmed_money"]


def test_prompts_past_the_window_are_refused_and_no_saving(tmp_path: Path) -> None:
    """In the summary of one run as in a report."""
    path = jsonl(tmp_path / "log.jsonl", bodies(8, size=300))
    flags = ("--limit", "2500", "--window", "4000")
    shown = run("replay", str(path), *flags)
    assert "would be refused: they are no saving" in shown.stdout
    assert 0 == run("replay", str(path), *flags, "--json", str(tmp_path / "r.json")).returncode
    (report,) = json.loads((tmp_path / "r.json").read_text())["runs"]
    refused = [turn["turn"] for turn in report["turns"] if turn["refused"]]
    assert len(refused) == report["never"]["refused"] > 0
    assert all(turn["before"] > 4_000 for turn in report["turns"] if turn["turn"] in refused)
    assert report["presets"][0]["cost"]["comparable_cost"] < report["presets"][0]["cost"]["cost"]


def test_prices_come_from_the_settings(tmp_path: Path) -> None:
    """By model; --prices wins over them."""
    path = jsonl(tmp_path / "log.jsonl", bodies(4))
    config = tmp_path / "settings.toml"
    config.write_text('[prices."gpt-4o"]\ninput = 2\noutput = 8\ncached = 1\n')
    flags = ("--config", str(config), "--limit", "4000", "--json")
    priced, doubled = (
        json.loads(run("replay", str(path), *flags, *more).stdout.splitlines()[-1])["summary"]["untrimmed_money"]
        for more in ((), ("--prices", "4,2,4,16"))
    )
    assert 0 < priced == pytest.approx(doubled / 2)


def test_sessions_are_found_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --find, and no file named."""
    place = tmp_path / ".claude/projects/p"
    place.mkdir(parents=True)
    jsonl(place / "s.jsonl", session(calls=3))
    figures = tmp_path / "r.json"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert 0 == main(["replay", "--find", "--json", str(figures)])
    assert ["s.jsonl"] == [one["name"] for one in json.loads(figures.read_text())["runs"]]


def test_nothing_to_find_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the folders that were looked in, and exit code 2."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert 2 == main(["replay", "--find", "--html", str(tmp_path / "r.html")])
    assert "~/.codex/sessions" in capsys.readouterr().err


def test_a_transcript_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither one of the report's, nor any other file that is no report's figures."""
    path = jsonl(tmp_path / "s.jsonl", session())
    before = path.read_bytes()
    assert 2 == main(["replay", str(path), "--html", str(path)])
    assert 2 == main(["replay", "--json", str(path), str(path)])
    other = jsonl(tmp_path / "other.jsonl", session(calls=1))
    assert 2 == main(["replay", "--json", str(other), str(path)])
    assert "holds no figures of a report" in capsys.readouterr().err
    assert before == path.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "replay needs a RUN"),
        (["--json"], "replay needs a RUN"),
        (["RUN", "RUN", "--json"], "goes to a file"),
        (["RUN", "--html", "r.html", "--address", "127.0.0.1:1"], "--address is for one run alone"),
        (["none.jsonl"], "No such file"),
        (["none.jsonl", "--html", "r.html"], "nothing to report"),
        (["RUN", "--html", "no/such/folder/r.html"], "cannot be written"),
    ],
)
def test_what_cannot_be_asked_for_is_reported(
    tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit code 2."""
    path = str(jsonl(tmp_path / "s.jsonl", session(calls=1)))
    assert 2 == main(["replay", *(path if one == "RUN" else one for one in arguments)])
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("library", ["jinja2", "vl_convert"])
def test_a_page_without_the_extra_says_what_to_install(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line; figures need no extra."""
    path = str(jsonl(tmp_path / "s.jsonl", session(calls=1)))
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, "prompt_sidecar.report.page", raising=False)
    monkeypatch.delattr("prompt_sidecar.report.page", raising=False)
    assert 2 == main(["replay", path, "--html", str(tmp_path / "r.html")])
    errors = capsys.readouterr().err
    assert "needs the extra `report`" in errors
    assert "pip install '.[server,report]'" in errors
    assert 1 == errors.count("\n")
    assert 0 == main(["replay", path, "--json", str(tmp_path / "r.json")])


def test_a_file_that_was_named_and_is_none_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report of the others is made, and the exit code is 1."""
    good = jsonl(tmp_path / "s.jsonl", session(calls=2))
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"type": "user"}\nbroken\n')
    figures = tmp_path / "r.json"
    assert 1 == main(["replay", str(good), str(bad), "--json", str(figures)])
    assert "bad.jsonl, line 2" in capsys.readouterr().err
    assert 1 == len(json.loads(figures.read_text())["runs"])


@pytest.mark.parametrize("flag", ["--prices=1,2", "--prices=a,b,c,d", "--window=0", "--window=x"])
def test_bad_prices_and_windows(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They end with exit code 2 and the flag's name."""
    with pytest.raises(SystemExit) as ended:
        main(["replay", "run.json", flag])
    assert 2 == ended.value.code
    assert flag.partition("=")[0] in capsys.readouterr().err


def test_progress_is_shown_on_a_terminal_only(tmp_path: Path) -> None:
    """A bar that ends full; elsewhere nothing moves."""
    folder = _folder(tmp_path / "runs")
    ended = run("replay", str(folder), "--json", str(tmp_path / "r.json"))
    assert "" == ended.stderr
    job = Measurement(ReportRequest(limit=4_000, presets=["cache_first"]), load({}, config=None, flags={}))
    shown = _Terminal()
    measured([folder / "log.jsonl"], job, shown)
    assert shown.getvalue().endswith("] 1 of 1 files\n")


class _Terminal(StringIO):
    def isatty(self) -> bool:
        return True
