"""`prompt-sidecar replay`: a recorded run through a server of its own, turn by turn."""

from __future__ import annotations

import gzip
import json
import os
import socket
from pathlib import Path

import pytest

from prompt_sidecar.cli.commands import main
from prompt_sidecar.report.replay import NO_FIT
from prompt_sidecar.v1 import trim_pb2
from tests.cli.running import ROOT, run

DATA = Path(os.environ.get("PROMPT_SIDECAR_DATA") or ROOT.parent / "shared" / "data")
MESSAGES = [
    {"role": "system", "content": "You help."},
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": "I do."},
    {"role": "user", "content": "And?"},
    {"role": "assistant", "content": "Nothing."},
]


@pytest.mark.parametrize("zipped", [False, True])
def test_replay_tells_each_turn(tmp_path: Path, *, zipped: bool) -> None:
    """A run file is replayed turn by turn through a server of its own; JSON lines can be read by machines."""
    content = json.dumps({"format": "openai_chat", "messages": MESSAGES}).encode()
    path = tmp_path / "run.json"
    path.write_bytes(gzip.compress(content) if zipped else content)
    ended = run("replay", str(path), "--limit", "4000", "--json")
    assert 0 == ended.returncode, ended.stderr
    *turns, summary = (json.loads(line) for line in ended.stdout.splitlines())
    assert [2, 4, 5] == [turn["messages"] for turn in turns]
    assert [True] * 3 == [turn["fits"] and turn["before"] <= turn["after"] <= turn["limit"] for turn in turns]
    assert (3, 0) == (summary["summary"]["turns"], summary["summary"]["over_limit"])


def test_replay_shows_what_the_provider_counted(tmp_path: Path) -> None:
    """Where the file has it: the whole, what of it was cached, its cost, and how often the cache was cold."""
    path = tmp_path / "run.json"
    usage = [[2_000, 0, 9], [3_000, 0, 9], [4_000, 3_900, 9]]
    path.write_text(json.dumps({"format": "openai_chat", "messages": MESSAGES, "usage": usage}))
    ended = run("replay", str(path), "--limit", "4000")
    assert 0 == ended.returncode, ended.stderr
    cost = 0.1 * 3_900 + 1.25 * 5_100
    line = f"the provider counted 9,000 tokens in 3 calls, 3,900 of them cached, at a cost of {cost:,.0f}"
    assert line in ended.stdout
    assert "; calls that found the cache cold: 1\n" in ended.stdout


def test_replay_takes_prices(tmp_path: Path) -> None:
    """Where nothing is cached, a token costs what it costs, and the sum is of what was sent."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps(MESSAGES))
    ended = run("replay", str(path), "--limit", "4000", "--json", "--price-cached", "1", "--price-written", "1")
    assert 0 == ended.returncode, ended.stderr
    summary = json.loads(ended.stdout.splitlines()[-1])["summary"]
    assert {"cached": 1.0, "written": 1.0} == summary["prices"]
    assert (summary["tokens_before"], summary["tokens_after"]) == (summary["untrimmed_cost"], summary["cost"])


@pytest.mark.parametrize("price", ["-0.1", "nan", "cheap", "1e9"])
def test_replay_refuses_bad_prices(price: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A price that is none ends with exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main(["replay", "run.json", f"--price-cached={price}"])
    assert 2 == ended.value.code
    assert "--price-cached" in capsys.readouterr().err


def test_replay_prints_a_table(tmp_path: Path) -> None:
    """Without --json there is a line for each turn and a summary; a bare array needs no format."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps(MESSAGES))
    ended = run("replay", str(path), "--preset", "fit_only")
    assert 0 == ended.returncode, ended.stderr
    lines = ended.stdout.splitlines()
    assert "recommended: no ceiling was tried: the preset ignores it. Replay with --preset cache_first" in lines[0]
    assert lines[1].startswith("setting tried ")
    head = next(place for place, line in enumerate(lines) if line.startswith("turn "))
    assert ["1", "2", "3"] == [line.split()[0] for line in lines[head + 1 : head + 4]]
    at = next(place for place, line in enumerate(lines) if "3 turns, limit" in line)
    assert lines[at + 2].endswith("down to half of the limit: 1.00")
    assert lines[at + 3].startswith("cost at 0.1 for a cached token and 1.25 for any other: ")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "not a run"),
        (b"not json", "not a run"),
        (b'{"messages": [1]}', "not a run"),
        (b'{"messages": [{"no": "role"}]}', "not a run"),
        (b"[]", "no messages"),
        (b'{"format": "morse", "messages": [{"role": "user"}]}', "morse"),
        (b"\x1f\x8bjunk", "gzip"),
        (gzip.compress(b"[" * 100, mtime=0)[:-9], "gzip"),
    ],
)
def test_replay_refuses_bad_files(
    tmp_path: Path, content: bytes, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is no run is told with its path and exit code 2, without its text."""
    path = tmp_path / "run.json"
    path.write_bytes(content)
    assert 2 == main(["replay", str(path)])
    shown = capsys.readouterr().err
    assert str(path) in shown
    assert word in shown
    assert "not json" not in shown


@pytest.mark.parametrize("limit", ["0", "0%", "100%", "many", "-5", "255", "nan%", "1e400%"])
def test_replay_refuses_bad_limits(limit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A limit that is no number of tokens and no share ends with exit code 2."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps(MESSAGES))
    assert 2 == main(["replay", str(path), f"--limit={limit}"])
    assert "--limit is" in capsys.readouterr().err


def test_replay_says_why_a_prompt_does_not_fit(tmp_path: Path) -> None:
    """Each such turn names its reason, and the summary what it means; as JSON, too."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps([{"role": "user", "content": "word " * 2_000}, *MESSAGES[1:]]))
    shown = run("replay", str(path), "--limit", "1000").stdout
    *turns, summary = map(json.loads, run("replay", str(path), "--limit", "1000", "--json").stdout.splitlines())

    assert [["NO", "protected_text"]] * len(turns) == [
        [word for word in line.split() if word in ("NO", "protected_text")]
        for line in shown.partition("\nturn ")[2].splitlines()[1 : len(turns) + 1]
    ]
    assert f"  {len(turns)} protected_text: what is never trimmed is more than the limit by itself" in shown
    assert {"protected_text"} == {turn["no_fit_reason"] for turn in turns}
    assert {"protected_text": len(turns)} == summary["summary"]["no_fit_reasons"]


def test_every_reason_is_explained() -> None:
    """A reason of the protocol that replay does not know would be told as a bare name."""
    names = {name.removeprefix("NO_FIT_REASON_").lower() for name, number in trim_pb2.NoFitReason.items() if number}
    assert names == set(NO_FIT)


def test_replay_of_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not there is told."""
    assert 2 == main(["replay", "no-such-run.json"])
    assert "No such file" in capsys.readouterr().err


def test_replay_through_no_server(tmp_path: Path) -> None:
    """A server that nobody finds is told at once, with exit code 1 and nothing on the standard output."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps(MESSAGES))
    ended = run("replay", str(path), "--limit", "4000", "--address", f"unix:{tmp_path}/none", "--timeout", "3600")
    assert (1, "") == (ended.returncode, ended.stdout)
    assert "none: UNAVAILABLE" in ended.stderr


def test_replay_serves_nobody_else(tmp_path: Path) -> None:
    """With the settings of a server that runs, its addresses, store and collector are left alone."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps(MESSAGES))
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(6)]
    settings = ("SERVER__HEALTH_LISTEN", "ADMIN__LISTEN", "HTTP__LISTEN", "ENVOY__LISTEN", "TELEMETRY__METRICS_LISTEN")
    addresses = ["{}:{}".format(*each.getsockname()) for each in taken]
    given = dict(zip(settings, addresses, strict=False))
    store, collector = taken[5], socket.create_server(("127.0.0.1", 0))
    given |= {"STORE__URL": f"valkey://{addresses[5]}", "STORE__DURABILITY": "acknowledged", "KEY": "0123456789abcdef"}
    given["TELEMETRY__OTLP_ENDPOINT"] = "http://{}:{}".format(*collector.getsockname())
    try:
        ended = run("replay", str(path), "--limit", "4000", **given)
        assert (0, "") == (ended.returncode, ended.stderr)
        for each in (store, collector):
            each.setblocking(False)
            with pytest.raises(BlockingIOError):  # nobody has connected
                each.accept()
    finally:
        for each in (*taken, collector):
            each.close()


@pytest.mark.skipif(not (DATA / "runs").is_dir(), reason="the recorded runs are not on this machine")
@pytest.mark.parametrize("name", ["tau-airline-0.openai_chat", "swe-pandas-53856.anthropic"])
def test_replay_of_recorded_runs(name: str) -> None:
    """Recorded runs of both formats replay within 30 % of their size."""
    ended = run("replay", str(DATA / "runs" / f"{name}.json.gz"), "--json")
    assert 0 == ended.returncode, ended.stderr
    *turns, summary = (json.loads(line) for line in ended.stdout.splitlines())
    assert len(turns) == summary["summary"]["turns"]
    assert turns[-1]["limit"] == pytest.approx(0.3 * turns[-1]["before"], rel=0.01, abs=256)


RESPONSES = [
    {"role": "user", "content": "How is the weather?"},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "sunny " * 40},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sunny."}]},
]
GEMINI = [
    {"role": "user", "parts": [{"text": "How is the weather?"}]},
    {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"result": "sunny " * 40}}}]},
    {"role": "model", "parts": [{"text": "Sunny."}]},
]


@pytest.mark.parametrize(("messages", "turns"), [(RESPONSES, [1, 4, 5]), (GEMINI, [1, 3, 4])])
def test_replay_reads_other_formats(messages: list[object], turns: list[int], tmp_path: Path) -> None:
    """The format is seen from the messages; a turn ends where the model's next block begins."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps(messages))
    ended = run("replay", str(path), "--limit", "4000", "--json")
    assert 0 == ended.returncode, ended.stderr
    *reports, _ = (json.loads(line) for line in ended.stdout.splitlines())
    assert turns == [turn["messages"] for turn in reports]
