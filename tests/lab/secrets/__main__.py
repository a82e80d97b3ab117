"""Measure what the guard finds of made secrets that its rules do not know, and what it finds in text without any."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.lab.secrets.finders import Finder, Guard, Program, Span
from tests.lab.secrets.negatives import files, gather
from tests.lab.secrets.samples import OPEN, SEALED, Sample, samples

_COVERED: Final = 0.9
"""A piece of a value is found if at least this share of it would be masked."""
_GROUPS: Final[dict[str, Callable[[Sample], bool]]] = {
    "all": lambda _: True,
    "published forms": lambda sample: sample.kind.published,
    "by name": lambda sample: not sample.kind.published,
    "encoded or cut": lambda sample: sample.container.encoded,
    "kinds and places held out": lambda sample: sample.held_out,
}


def found(sample: Sample, spans: Sequence[Span]) -> bool:
    """Return whether every piece of the sample's value is covered."""
    return all(_covered(sample.text, piece, spans) for piece in sample.shown)


def _covered(text: str, piece: str, spans: Sequence[Span]) -> bool:
    start = text.rindex(piece)
    end = start + len(piece)
    covered = {place for from_, to, _ in spans for place in range(max(from_, start), min(to, end))}
    return len(covered) >= _COVERED * len(piece)


def main() -> None:
    """Print the figures that the options ask for."""
    options = _options()
    programs = (
        [Program(name, options.peers) for name in ("betterleaks", "kingfisher", "detect-secrets")]
        if options.peers
        else []
    )
    finders: list[Finder] = [Guard(), *programs]
    drawn = samples(SEALED if options.sealed else OPEN)
    print(
        f"{len(drawn)} samples, {len({each.kind.name for each in drawn})} kinds, "
        f"{len({each.container.name for each in drawn})} places"
    )
    for finder in finders:
        results = [
            found(sample, spans)
            for sample, spans in zip(drawn, finder.find([each.text for each in drawn]), strict=True)
        ]
        shares = []
        for name, belongs in _GROUPS.items():
            of_group = [hit for sample, hit in zip(drawn, results, strict=True) if belongs(sample)]
            if of_group:
                shares.append(f"{name} {100 * sum(of_group) / len(of_group):.1f} % of {len(of_group)}")
        print(f"{finder.name}: " + ", ".join(shares))
        if options.misses and not options.sealed and isinstance(finder, Guard):
            _print_misses(drawn, results)
    if options.negatives:
        gather(options.negatives)
        _print_false(finders, list(files(options.negatives, tuning=not options.report)), shown=options.misses)


def _print_misses(drawn: Sequence[Sample], results: Sequence[bool]) -> None:
    missed = [sample for sample, hit in zip(drawn, results, strict=True) if not hit]
    for title, key in (("places", lambda each: each.container.name), ("kinds", lambda each: each.kind.name)):
        print(title, Counter(map(key, missed)).most_common(200))
    for sample in missed:
        print(f"--- {sample.kind.name} / {sample.container.name} {sample.shown}\n{sample.text[:600]}")


def _print_false(finders: Sequence[Finder], texts: Sequence[tuple[str, str]], *, shown: bool) -> None:
    print(f"{sum(len(text) for _, text in texts) / 1e6:.1f} MB of text without secrets, {len(texts)} files")
    for finder in finders:
        started = time.perf_counter()
        finds = finder.find([text for _, text in texts])
        print(f"{finder.name}: {sum(map(len, finds))} finds, {time.perf_counter() - started:.1f} s")
        if shown and isinstance(finder, Guard):
            for (name, text), spans in zip(texts, finds, strict=True):
                for start, end, rule in spans:
                    print(
                        f"  {rule} in {name}: {text[max(0, start - 60) : start]!r} "
                        f">>> {text[start : min(end, start + 80)]!r}"
                    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.secrets", description=__doc__)
    parser.add_argument("--sealed", action="store_true", help="take the sealed half, of which only totals are told")
    parser.add_argument("--misses", action="store_true", help="print what was missed of the open half, and false finds")
    parser.add_argument("--peers", type=Path, help="folder with betterleaks, kingfisher and detect-secrets")
    parser.add_argument("--negatives", type=Path, help="folder for text without secrets, which is fetched once")
    parser.add_argument("--report", action="store_true", help="take the half of that text that rules are not tuned on")
    return parser.parse_args()


if __name__ == "__main__":
    main()
