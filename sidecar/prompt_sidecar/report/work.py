"""Measuring many files, in separate processes if there are several; one file is one piece of work."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TextIO

from prompt_sidecar.config.settings import Settings
from prompt_sidecar.errors import SidecarError
from prompt_sidecar.report.figures import Report, ReportedRun, ReportRequest, Skipped
from prompt_sidecar.report.measuring import measure, settings_for_replay
from prompt_sidecar.report.recommending import recommended
from prompt_sidecar.report.tool_weights import over_runs
from prompt_sidecar.report.transcripts.model import TranscriptError
from prompt_sidecar.report.transcripts.reading import read_transcripts
from prompt_sidecar.tokens.count import Counter
from prompt_sidecar.tokens.loading import lazy_counter

MOST_PROCESSES: Final = 8
"""Processes; each takes some 150 MB and a third of a second for the vocabulary."""
_BAR: Final = 30

Done = tuple[list[ReportedRun], list[Skipped]]


@dataclass(frozen=True, slots=True)
class Measurement:
    """The inputs for measuring every file."""

    asked: ReportRequest
    settings: Settings
    named: str | None = None
    """The messages' format, if a file does not give it."""


class Measurer:
    """Measures files, one after the other, with one cache of counts."""

    def __init__(self, job: Measurement) -> None:
        """Load nothing yet: the vocabulary is loaded when the first text is counted."""
        self._job = replace(job, settings=settings_for_replay(job.settings))
        fast = job.settings.tokens.counter != "tiktoken"
        self._counter: Counter = lazy_counter(fast=fast, report=lambda _: None)

    def measure(self, path: Path) -> Done:
        """Return a file's runs, and its parts without figures."""
        runs: list[ReportedRun] = []
        skipped: list[Skipped] = []
        try:
            transcripts = read_transcripts(path, self._job.named)
        except TranscriptError as error:
            return [], [Skipped(path.name, str(error))]
        for one in transcripts:
            try:
                runs.append(measure(one, self._job.asked, self._job.settings, self._counter))
            except SidecarError as error:
                skipped.append(Skipped(one.name, f"{path}: a prompt was refused: {error.message}"))
        return runs, skipped


def measured(paths: Sequence[Path], job: Measurement, progress: TextIO) -> Report:
    """Measure all files; a progress bar is shown on a terminal."""
    runs: list[ReportedRun] = []
    skipped: list[Skipped] = []
    with _bar(progress, len(paths)) as step:
        for done, failed in _all(paths, job):
            runs += done
            skipped += failed
            step()
    runs.sort(key=lambda one: (-one.never.cost, one.name))
    skipped.sort(key=lambda one: (one.name, one.why))
    return Report(
        job.asked,
        runs,
        skipped,
        over_runs([one.tools for one in runs]),
        recommended(runs, ignored=any(one.ceilings_ignored for one in runs)),
    )


def _all(paths: Sequence[Path], job: Measurement) -> Iterator[Done]:
    processes = min(len(paths), os.cpu_count() or 1, MOST_PROCESSES)
    if processes < 2:
        measurer = Measurer(job)
        yield from map(measurer.measure, paths)
        return
    # Spawned, as threads of the tokenizer would not survive a fork.
    context = multiprocessing.get_context("spawn")
    largest_first = sorted(paths, key=_size, reverse=True)
    with ProcessPoolExecutor(processes, context, _begin, (job,)) as pool:
        try:
            for future in as_completed([pool.submit(_measure, path) for path in largest_first]):
                yield future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


_own: list[Measurer] = []
"""The measurer of a worker process."""


def _begin(job: Measurement) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _own.append(Measurer(job))


def _end_with_parent() -> None:
    """End this process when its parent is killed: otherwise it would wait for its next file for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _measure(path: Path) -> Done:
    return _own[0].measure(path)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@contextmanager
def _bar(progress: TextIO, total: int) -> Iterator[_Progress]:
    step = _Progress(progress, total)
    yield step
    if step.shown:
        progress.write("\n")


@dataclass(slots=True)
class _Progress:
    """Shows on a terminal how many of the files are done; elsewhere nothing."""

    progress: TextIO
    total: int
    done: int = 0
    shown: bool = False

    def __call__(self) -> None:
        self.done += 1
        if self.progress.isatty():
            full = _BAR * self.done // self.total
            self.progress.write(f"\r[{'#' * full}{'.' * (_BAR - full)}] {self.done} of {self.total} files")
            self.progress.flush()
            self.shown = True
