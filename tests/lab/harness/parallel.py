"""Work in several processes, told of as it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

Task = TypeVar("Task")
Done = TypeVar("Done")


def in_processes(
    work: Callable[[Task], Done], tasks: Sequence[Task], jobs: int, *, begin: Callable[[], None] | None = None
) -> Iterator[tuple[int, Done]]:
    """Yield what came of each task with its place, as it is done; with one job in this process.

    `work` is imported by other processes, so it stands in no program's `__main__`; each calls `begin` first.
    """
    if jobs <= 1:
        for place, task in enumerate(tasks):
            yield place, work(task)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=begin) as pool:
        places: dict[Future[Done], int] = {pool.submit(work, task): place for place, task in enumerate(tasks)}
        for done in as_completed(places):
            yield places[done], done.result()
