"""`python -m tests.lab.retrieval`: what each part of search is worth, and how often a fact of a run is found.

With `--rpc` the last rows are made once more by the SearchHistory of a real server. Manuals in Info format that the
system has are searched as conversations in prose.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from rich.table import Table

from prompt_sidecar.recall.analysis import Analyser
from tests.lab.harness.tables import console, options, sorry, table
from tests.lab.retrieval import asking, manuals
from tests.lab.retrieval.search import Search, by_history, by_index, by_library
from tests.oracle.data import ENVIRONMENT, present

WIDTH = 120
ANALYSERS = {
    "words only": Analyser(split=False, stopwords=frozenset(), stem=False),
    "+ split names": Analyser(stopwords=frozenset(), stem=False),
    "+ stopwords": Analyser(stem=False),
    "+ stems": Analyser(),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; it asserts no figure."""
    parser = options("python -m tests.lab.retrieval", __doc__)
    parser.add_argument("--rpc", action="store_true", help="also ask a real server")
    asked = parser.parse_args(arguments)
    to = console(WIDTH)
    if manuals.present():
        to.print(_prose())
    files = [path for name in (asking.CHUNKS, asking.QUESTIONS) for path in present(name)]
    runs = [path for name in asking.RUNS for path in present(name)]
    if len(files) < 2 and not runs:
        return sorry("retrieval", f"no recorded data; {ENVIRONMENT} names the folder that holds it", 2)
    if len(files) == 2:
        to.print(_retrieval(*asking.load(*files), rpc=asked.rpc))
    if runs:
        to.print(_facts({path.name.split(".")[0]: asking.results(path) for path in runs}, rpc=asked.rpc))
    return 0


def _retrieval(texts: list[str], questions: list[asking.Question], *, rpc: bool) -> Table:
    title = f"Pass@5 / 10 / 20 of {len(questions)} questions on {len(texts)} chunks of code, per cent"
    made = table(title, ("ranking", "all", "half tuned on", "half held out"))

    def row(name: str, search: Search) -> None:
        passes = asking.passes(search, questions, texts)
        made.add_row(name, *(_slashed(each) for each in (passes.all, passes.tuned, passes.held_out)))

    for name, search in _ablation(texts):
        row(name, search)
    if rpc:
        from tests.lab.retrieval.search import by_server  # needs gRPC and a vocabulary; the rest does not

        with by_server([texts]) as (search,):
            row("SearchHistory", search)
    return made


def _ablation(texts: list[str]) -> Iterator[tuple[str, Search]]:
    for name, analyser in ANALYSERS.items():
        yield f"{name}, Okapi", by_library(texts, analyser, plus=False)
        yield f"{name}, Plus", by_library(texts, analyser, plus=True)
    yield "+ passages", by_index(texts, reranked=False)
    yield "+ re-ranking", by_index(texts)


def _facts(runs: dict[str, list[str]], *, rpc: bool) -> Table:
    title = f"{asking.FACTS} facts of a run, asked for by two or three of their rarer words: where found"
    made = table(title, ("run", "facts", "ranking", "first", "three"), left=range(3))

    def row(run: str, name: str, search: Search) -> None:
        for telling in (True, False):
            found = asking.found_of(search, asking.sample(runs[run], telling=telling))
            which = "telling" if telling else "any"
            made.add_row(run, which, name, f"{found.first:.0f} %", f"{found.three:.0f} %")

    for run, texts in runs.items():
        row(run, "passages", by_index(texts, reranked=False))
        row(run, "+ re-ranking", by_index(texts))
    if rpc:
        from tests.lab.retrieval.search import by_server  # needs gRPC and a vocabulary; the rest does not

        with by_server(list(runs.values())) as searches:
            for run, search in zip(runs, searches, strict=True):
                row(run, "SearchHistory", search)
    return made


def _prose() -> Table:
    title = f"Entries of manuals' indices, {manuals.QUESTIONS} of each at most: found among the first 5 / 10, per cent"
    made = table(title, ("manual", "half", "messages", "each entry alike", "each section alike"), left=(0, 1))
    for name in manuals.present():
        manual = manuals.manual(name)
        entries, sections = manuals.recall(by_history(manual.messages), manual)
        half = "tuned on" if name in manuals.TUNED else "held out"
        made.add_row(name, half, f"{len(manual.messages)}", _slashed(entries), _slashed(sections))
    return made


def _slashed(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.1f}" for value in values)


if __name__ == "__main__":
    sys.exit(main())
