"""GetRun and EndRun: a run's figures."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from prompt_sidecar.doors.grpc.conversion.comparison import comparison_message
from prompt_sidecar.doors.grpc.conversion.tasks import task_items
from prompt_sidecar.doors.grpc.conversion.trim import cache_figures, ceiling_use, history_size, token_figures
from prompt_sidecar.facts.figures import HistoryFigures, RunFigures, StoreFigures
from prompt_sidecar.facts.usage_calls import UsageFigures
from prompt_sidecar.v1 import run_pb2, usage_pb2


def run_figures(figures: RunFigures) -> run_pb2.RunFigures:
    """Return the message of a run's figures."""
    stash = figures.stash
    return run_pb2.RunFigures(
        run_id=figures.run_id,
        started=_timestamp(figures.started),
        last_seen=_timestamp(figures.last_seen),
        calls=figures.calls,
        iteration=figures.iteration,
        messages=figures.messages,
        tokens=None if figures.tokens is None else token_figures(figures.tokens),
        cache=None if figures.cache is None else cache_figures(figures.cache),
        tokens_sent_total=figures.tokens_sent_total,
        tokens_returned_total=figures.tokens_returned_total,
        trimmed_items=figures.trimmed_items,
        stash=run_pb2.StashFigures(
            entries=stash.entries,
            held_bytes=stash.held_bytes,
            original_bytes=stash.original_bytes,
            expired=stash.expired,
            evicted=stash.evicted,
            retrievals=[
                run_pb2.OutcomeCount(outcome=outcome.name, count=count) for outcome, count in stash.retrievals.items()
            ],
        ),
        unfinished_tasks=task_items(figures.unfinished_tasks),
        history=_history(figures.history),
        history_size=None if figures.size is None else history_size(figures.size),
        repeated_calls=figures.repeated.calls,
        repeated_tokens=figures.repeated.tokens,
        usage=_usage(figures.usage),
        ceilings=map(ceiling_use, figures.ceilings),
        cost=figures.cost,
        comparison=comparison_message(figures.comparison),
        observed_only=figures.observed_only,
        store=None if figures.store is None else _store(figures.store),
    )


def _store(store: StoreFigures) -> run_pb2.StoreFigures:
    return run_pb2.StoreFigures(reachable=store.reachable, waiting_calls=store.waiting_calls, detached=store.detached)


def _history(history: HistoryFigures) -> run_pb2.HistoryFigures:
    return run_pb2.HistoryFigures(
        items=history.items,
        passages=history.passages,
        index_bytes=history.index_bytes,
        waiting_bytes=history.waiting_bytes,
        first_iteration=history.first_iteration,
        searches=history.searches,
        searches_found=history.searches_found,
        tool_calls=history.tool_calls,
    )


def _usage(usage: UsageFigures) -> usage_pb2.UsageFigures:
    return usage_pb2.UsageFigures(
        reports=usage.reports,
        refusals=usage.refusals,
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        cache_breaks=usage.cache_breaks,
        learned_limit=usage.learned_limit,
    )


def _timestamp(seconds: float) -> Timestamp:
    nanoseconds = round(seconds * 1e9)
    return Timestamp(seconds=nanoseconds // 10**9, nanos=nanoseconds % 10**9)
