"""A run's figures: each stands in its field."""

from __future__ import annotations

from dataclasses import replace

from prompt_sidecar.doors.grpc.conversion.responses import message as made
from prompt_sidecar.facts.figures import HistoryFigures, RunFigures
from prompt_sidecar.facts.task_calls import TaskItem
from prompt_sidecar.recall.holding import Cause, StashFigures
from prompt_sidecar.v1 import run_pb2, task_pb2

FIGURES = RunFigures(
    run_id="r",
    started=1.5,
    last_seen=2.25,
    calls=3,
    iteration=4,
    messages=5,
    tokens=None,
    cache=None,
    tokens_sent_total=1 << 40,
    tokens_returned_total=1 << 39,
    trimmed_items=8,
    stash=StashFigures(1, 2, 3, lost={Cause.EXPIRED: 4, Cause.RUN_BUDGET: 2, Cause.TOTAL_BUDGET: 3}, retrievals={}),
    history=HistoryFigures(1, 2, 1 << 40, 1 << 41, 5, 6, 7, 8),
    unfinished_tasks=[TaskItem(1, "find the fault")],
)


def test_figures_become_their_message() -> None:
    """Every figure stands in its field, the large ones past 32 bits too."""
    message = made(run_pb2.RunFigures, FIGURES)

    assert ("r", 3, 4, 5, 8) == (
        message.run_id,
        message.calls,
        message.iteration,
        message.messages,
        message.trimmed_items,
    )
    assert (1.5, 2.25) == tuple(at.seconds + at.nanos / 1e9 for at in (message.started, message.last_seen))
    assert (1 << 40, 1 << 39) == (message.tokens_sent_total, message.tokens_returned_total)
    assert run_pb2.StashFigures(entries=1, held_bytes=2, original_bytes=3, expired=4, evicted=5) == message.stash
    assert [task_pb2.TaskItem(id=1, text="find the fault", status=task_pb2.TASK_STATUS_PENDING)] == list(
        message.unfinished_tasks
    )
    expected = run_pb2.HistoryFigures(
        items=1,
        passages=2,
        index_bytes=1 << 40,
        waiting_bytes=1 << 41,
        first_iteration=5,
        searches=6,
        searches_found=7,
        tool_calls=8,
    )
    assert expected == message.history


def test_what_is_not_known_is_unset() -> None:
    """A run that was sent no prompt has no token figures, no cache figures and no history size."""
    message = made(run_pb2.RunFigures, replace(FIGURES, tokens=None, cache=None, size=None))
    assert not any(message.HasField(name) for name in ("tokens", "cache", "history_size"))
