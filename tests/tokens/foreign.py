"""Recorded runs counted in vocabularies that are not ours, to see how estimates correct themselves.

    python -m tests.tokens.foreign

prints the estimate's error before and after correction, for each vocabulary that is installed: cl100k_base always,
those of Mistral's models where mistral-common and sentencepiece are, Claude 2's where anthropic 0.8 and tokenizers are.
Each turn is estimated with the factor that the turns before it left, so none has been seen before. `frozen` takes the
factor as the first third of each run left it, and estimates the rest.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any

import tiktoken

from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.tokens import load
from prompt_sidecar.tokens.calibration import Calibration, CountedPrompt
from prompt_sidecar.tokens.weigh import weigh
from tests.oracle import data
from tests.oracle.runs import recorded, recorded_paths
from tests.oracle.runs import turns as lengths

CHUNK = 8_000
"""Characters encoded at once, as no tokenizer is linear on everything."""
FIRST = 5
"""Reports of each run before its estimates are judged."""
HIGH, LOW = 0.9, 0.5
"""Where a prompt that would pass its limit is cut, and down to where: the oldest turns go."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One prompt of a run, counted by us and by another vocabulary."""

    run: str
    place: int
    of: int
    ours: int
    theirs: int


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors as shares of the real tokens, one a turn, without a factor and with it; and how often the factor moved."""

    before: Sequence[float]
    after: Sequence[float]
    frozen: Sequence[float]
    moves: int


def turns(vocabulary: str, limit: int | None = None) -> list[Turn]:
    """Every prompt of every recorded run, whole or with its oldest turns cut to stay below a limit."""
    data.need("runs")
    return [turn for name, ours, theirs in _counts(vocabulary) for turn in _prompts(name, ours, theirs, limit)]


def errors(prompts: Iterable[Turn]) -> Errors:
    """Report turn by turn; each run is a caller of its own, so that it starts unknown."""
    calibration = Calibration()
    before: list[float] = []
    after: list[float] = []
    frozen: list[float] = []
    moves = 0
    factors: dict[str, float] = {}
    for turn in prompts:
        correction = calibration.report(turn.run, "model", "format", CountedPrompt(turn.ours, 0, turn.theirs))
        moves += correction.factor_after != correction.factor_before
        if turn.place >= FIRST:
            before.append(abs(turn.ours / turn.theirs - 1))
            after.append(abs(correction.error))
        if turn.place <= turn.of // 3:
            factors[turn.run] = correction.factor_after
        else:
            frozen.append(abs(turn.ours * factors[turn.run] / turn.theirs - 1))
    return Errors(before, after, frozen, moves)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the values lies."""
    return sorted(values)[int(share * (len(values) - 1))]


def _prompts(name: str, ours: Sequence[int], theirs: Sequence[int], limit: int | None) -> Iterator[Turn]:
    start = 0
    for place, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if limit is not None and mine - (ours[start - 1] if start else 0) > HIGH * limit:
            while start < place and mine - (ours[start - 1] if start else 0) > LOW * limit:
                start += 1
        cut = (ours[start - 1], theirs[start - 1]) if start else (0, 0)
        yield Turn(name, place, len(ours), mine - cut[0], other - cut[1])


@cache
def _counts(vocabulary: str) -> list[tuple[str, list[int], list[int]]]:
    """For each run the tokens of each turn's whole history: by o200k_base, and by another."""
    counters = [load("o200k_base").encode_ordinary, VOCABULARIES[vocabulary]()]
    found = []
    for path in recorded_paths():
        run = recorded(path)
        messages = [FORMATS[run.format].read(raw, "message") for raw in run.slices()]
        sums: list[list[int]] = []
        for encode in counters:
            weights = [weight.total for weight in weigh(messages, _many(encode))]
            sums.append([sum(weights[:length]) for length in lengths(run.messages)])
        found.append((run.name, sums[0], sums[1]))
    return found


def _many(encode: Callable[[str], Sequence[int]]) -> Callable[[Sequence[str]], list[int]]:
    def count(text: str) -> int:
        return sum(len(encode(text[start : start + CHUNK])) for start in range(0, len(text), CHUNK))

    return lambda texts: [count(text) for text in texts]


def _tekken() -> Callable[[str], Sequence[int]]:
    held: Any = json.loads((files("mistral_common") / "data" / "tekken_240911.json").read_bytes())
    config = held["config"]
    size = config["default_vocab_size"] - config["default_num_special_tokens"]
    ranks = {base64.b64decode(token["token_bytes"]): token["rank"] for token in held["vocab"][:size]}
    return tiktoken.Encoding(
        "tekken", pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={}
    ).encode_ordinary


def _claude() -> Callable[[str], Sequence[int]]:
    tokenizers: Any = import_module("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_str((files("anthropic") / "tokenizer.json").read_text())

    def encode(text: str) -> Sequence[int]:
        ids: Sequence[int] = tokenizer.encode(text).ids
        return ids

    return encode


def _sentencepiece() -> Callable[[str], Sequence[int]]:
    sentencepiece: Any = import_module("sentencepiece")
    model = files("mistral_common") / "data" / "mistral_instruct_tokenizer_240323.model.v3"
    encode: Callable[[str], Sequence[int]] = sentencepiece.SentencePieceProcessor(model_proto=model.read_bytes()).encode
    return encode


VOCABULARIES: dict[str, Callable[[], Callable[[str], Sequence[int]]]] = {
    "cl100k_base": lambda: load("cl100k_base").encode_ordinary,
    "tekken (Mistral)": _tekken,
    "Claude 2": _claude,
    "SentencePiece 32k (Mistral)": _sentencepiece,
}
"""By name, what loads each; ImportError or FileNotFoundError where it is not installed."""


def main() -> None:
    """Print the table."""
    print("per cent, median / 95th percentile            before        corrected     frozen at 1/3  moves/100 reports")
    for name in VOCABULARIES:
        for limit in (None, 40_000, 20_000):
            try:
                prompts = turns(name, limit)
            except (ImportError, FileNotFoundError):
                print(f"{name:28} not installed")
                break
            found = errors(prompts)
            cells = "  ".join(
                f"{100 * percentile(values, 0.5):5.2f} /{100 * percentile(values, 0.95):6.2f}"
                for values in (found.before, found.after, found.frozen)
            )
            held = f"limit {limit:,}" if limit else "whole"
            print(f"{name:28} {held:14}{cells}  {100 * found.moves / len(prompts):5.1f}")


if __name__ == "__main__":
    main()
