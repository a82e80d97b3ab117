"""`replay` next to real bills: recorded sessions of Claude Code and Codex, billed here by another calculator.

The calculator shares nothing with the project but Python: it reads the files' own counts, and its prices are typed in
by hand, each with its source.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from prompt_sidecar.config.settings import Settings
from prompt_sidecar.report.figures import ReportedRun, ReportRequest
from prompt_sidecar.report.measuring import measure, settings_for_replay
from prompt_sidecar.report.transcripts.reading import read_transcripts
from prompt_sidecar.tokens.loading import lazy_counter
from tests.oracle import data

MILLION: Final = 1_000_000
MOST_OFF: Final = 0.05
"""What `replay` may differ from the bill."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Dollars for a million tokens."""

    plain: float
    cached: float
    written: float
    written_hour: float
    output: float


PRICES: Final = {
    # platform.claude.com, "Pricing" (Base input, Cache hits, 5m writes, 1h writes, Output), read on 2026-11-27; of Opus
    # 5.5 input and output, its cache prices as others quote that page in September 2026.
    "claude-opus-4-6": Rates(5.0, 0.50, 6.25, 10.0, 25.0),
    "claude-fable-5": Rates(10.0, 1.0, 12.5, 20.0, 50.0),
    "claude-opus-5-5": Rates(4.0, 0.20, 5.0, 8.0, 20.0),
    # OpenAI's API pricing (input, cached input, output; writing costs as input does), as several trackers quote its
    # page of June 2026; the page itself could not be read here.
    "gpt-5.4": Rates(2.5, 0.25, 2.5, 2.5, 15.0),
    "gpt-5.5": Rates(5.0, 0.50, 5.0, 5.0, 30.0),
}
LONG: Final = {
    # The same page: requests with more than 272,000 input tokens cost twice the input and 1.5 times the output.
    "gpt-5.4": (272_000, Rates(5.0, 0.50, 5.0, 5.0, 22.5)),
    "gpt-5.5": (272_000, Rates(10.0, 1.0, 10.0, 10.0, 45.0)),
}
SESSIONS: Final = tuple(
    path.name
    for path in data.present("runs/*.json.gz")
    if "usage" in data.document(path) and "model" in data.document(path)
)
"""All recorded runs with their provider's counts and their model; none is left out."""


def bill(model: str, calls: Any) -> float:
    """What calls cost; each has its input, of it cached, output, and of the rest what was written for an hour."""
    total = 0.0
    for whole, cached, output, hour in calls:
        rates = PRICES[model]
        if model in LONG and whole > LONG[model][0]:
            rates = LONG[model][1]
        written = whole - cached - hour  # Claude Code writes all that is new; OpenAI takes no more for it
        total += cached * rates.cached + written * rates.written + hour * rates.written_hour + output * rates.output
    return total / MILLION


def measured(path: Path, limit: float = 0) -> ReportedRun:
    """A file's run, measured as `replay` does."""
    settings = settings_for_replay(Settings())
    (run,) = read_transcripts(path, None)
    counter = lazy_counter(fast=False, report=lambda _: None)
    return measure(run, ReportRequest(limit, ["cache_first"]), settings, counter)


@pytest.mark.parametrize("name", SESSIONS or ["none"])
def test_replay_agrees_with_the_bills_of_recorded_sessions(name: str) -> None:
    """Never trimming costs what the provider's counts cost, within a twentieth, and trimming is a share of it."""
    path = data.need("runs") / name
    file = data.document(path)
    real = bill(file["model"], [(*one, 0) for one in file["usage"] if one])
    found = measured(path)
    assert found.counted is not None
    assert real == pytest.approx(found.counted.money, rel=1e-6)
    assert real == pytest.approx(found.never.money, rel=MOST_OFF)
    assert found.head > 0
    assert found.settings[0].whole_window
    assert 0.95 < found.settings[0].share < 1.005  # results are condensed, and nothing is cut
    assert 0 == found.settings[0].cost.cuts
    assert all(one.limit > found.head for one in found.settings)
    assert found.counted.input == pytest.approx(found.counted.estimated, rel=MOST_OFF)


def session(head: int, model: str, *, hour: bool = False) -> list[dict[str, Any]]:
    """Lines of a session of Claude Code, whose prompts have a head that the file lacks; a token a word, roughly."""
    lines: list[dict[str, Any]] = []
    sent = head
    lines.append(
        {"type": "user", "uuid": "u0", "sessionId": "s", "message": {"role": "user", "content": "Look. " * 50}}
    )
    cached = 0
    for turn in range(12):
        sent += 100 if not turn else 2_040
        written = sent - 3 - cached
        usage = {
            "input_tokens": 3,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": written,
            "cache_creation": {
                "ephemeral_5m_input_tokens": 0 if hour else written,
                "ephemeral_1h_input_tokens": written if hour else 0,
            },
            "output_tokens": 40,
        }
        cached = sent - 3
        call = {"type": "tool_use", "id": f"t{turn}", "name": "read", "input": {"path": f"file-{turn}"}}
        answer = {"id": f"m{turn}", "role": "assistant", "model": model, "content": [call], "usage": usage}
        lines.append({"type": "assistant", "uuid": f"a{turn}", "sessionId": "s", "message": answer})
        result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": f"file {turn}:" + " a" * 2_000}
        lines.append(
            {"type": "user", "uuid": f"u{turn + 1}", "sessionId": "s", "message": {"role": "user", "content": [result]}}
        )
    return lines


@pytest.mark.parametrize("hour", [False, True], ids=["five minutes", "an hour"])
def test_a_session_costs_what_it_says(tmp_path: Path, *, hour: bool) -> None:
    """The head that the file lacks is on the bill, by the first call's count; writes by how long they are kept."""
    path = tmp_path / "session.jsonl"
    lines = session(30_000, "claude-opus-5-5", hour=hour)
    path.write_text("\n".join(map(json.dumps, lines)))
    usages = [line["message"]["usage"] for line in lines if line["type"] == "assistant"]
    calls = [
        (
            one["input_tokens"] + one["cache_read_input_tokens"] + one["cache_creation_input_tokens"],
            one["cache_read_input_tokens"],
            one["output_tokens"],
            one["cache_creation"]["ephemeral_1h_input_tokens"],
        )
        for one in usages
    ]
    real = bill("claude-opus-5-5", calls)
    found = measured(path)
    assert found.never.money is not None
    assert real == pytest.approx(found.never.money, rel=0.001)
    assert 30_000 == pytest.approx(found.head, rel=0.01)
    assert found.settings[0].whole_window


def test_a_limit_lies_above_what_the_file_lacks(tmp_path: Path) -> None:
    """A share is of what can be trimmed at all; with less than the head nothing fits, which is marked."""
    path = tmp_path / "session.jsonl"
    path.write_text("\n".join(map(json.dumps, session(30_000, "claude-opus-5-5"))))
    found = measured(path, 0.5)
    largest = max(turn.counted for turn in found.turns)
    assert found.head + 0.5 * (largest - found.head) == pytest.approx(found.limit, rel=0.02)
    assert found.fits
    assert found.presets[0].cost.cuts > 0
    assert found.presets[0].share > found.control_share * 0.5
    small = measured(path, 20_000)
    assert small.presets[0].cost.over_limit == len(small.turns)
