"""The guard's scanner: megabytes a second of processor time, over text as tools return it and over near misses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from time import thread_time
from typing import Final

import re2

from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.guard.rules import RULES, RuleSet, default_rules
from tests.lab.evidence.recordings import paths, recorded, texts_of
from tests.lab.harness.figures import Section
from tests.lab.harness.prompts import Writer

TARGETS: Final = {"ASCII": 150.0, "other": 60.0}
"""Megabytes a second on one core."""
_HOSTILE: Final = ("password=", "secret: A1b2C3d4", "4242 4242 4242 ", "a@b.", "eyJhbGciOiJub25lIn0.", "[content clipp")


def guard(rounds: int) -> Section:
    """Tell how fast texts are scanned; a text with finds is read again for each rule that may have found something."""
    rules = default_rules(GuardOptions(ENFORCE))
    rows: list[list[str]] = []
    facts: dict[str, object] = {}
    for name, texts in _texts().items():
        size = sum(len(text.encode(errors="replace")) for text in texts) / 1e6
        cold = size / _seconds(default_rules(GuardOptions(ENFORCE)), texts)
        speeds, literal = [], []
        for _ in range(rounds):
            speeds.append(size / _seconds(rules, texts))
            literal.append(size / _one_literal(texts))
        finds = sum(map(len, rules.scan(texts)))
        target = next((f"{least:.0f}" for kind, least in TARGETS.items() if name.endswith(kind)), "")
        speed = median(speeds)
        rows.append(
            [name, f"{len(texts):,}", f"{size:.2f}", f"{finds:,}", f"{cold:,.0f}", f"{speed:,.0f}", target,
             f"{speed / median(literal):.2f}"]
        )  # fmt: skip
        facts[name] = {"mb": round(size, 3), "mb_per_second": round(speed, 1), "finds": finds}
    return Section(
        "guard",
        f"Guard: {len(RULES)} rules over new text, megabytes a second of processor time, medians of {rounds}",
        ["text", "texts", "MB", "finds", "first time", "then", "aim", "of one literal"],
        rows,
        facts,
        [
            "of one literal: the same passes for a single word, by the same library; what the rules add to reading",
            "first time: the automaton is built as texts need it, once for a process",
        ],
    )


def _texts() -> Mapping[str, Sequence[str]]:
    runs = map(recorded, paths().values())
    texts = (text.text for run in runs for message in run.messages for text in texts_of(run.format, message))
    scanned = list(dict.fromkeys(texts))  # identifiers of calls, which no rule looks at, are not among them
    made = [Writer(number).text(20_000) for number in range(100)]
    found = {
        "tool output, ASCII": [text for text in scanned if text.isascii()] or made,
        "tool output, other": [text for text in scanned if not text.isascii()] or [f"{text} é" for text in made],
        "made of log lines, ASCII": made,
        "made, one emoji each, other": [f"{text} \U0001f642" for text in made],
    }
    return found | {f"a megabyte of {unit!r}": [unit * (1_000_000 // len(unit))] for unit in _HOSTILE}


def _seconds(rules: RuleSet, texts: Sequence[str]) -> float:
    began = thread_time()
    rules.scan(texts)
    return thread_time() - began


def _one_literal(texts: Sequence[str]) -> float:
    """Seconds that the same library takes to look for one word."""
    word = re2.compile(b"no[ ]such[ ]word[ ]as[ ]this")
    began = thread_time()
    word.search("\n".join(texts).encode(errors="replace"))
    return thread_time() - began
