"""The size of a history, repeated calls and reported usage, as the wire has them."""

from __future__ import annotations

from prompt_sidecar.facts.figures import RunFigures
from prompt_sidecar.facts.history_size import HistorySize, SizeKind
from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.facts.usage_calls import UsageFigures
from prompt_sidecar.server.fields import enum_numbers
from prompt_sidecar.trim.own_text import plain_name
from prompt_sidecar.trim.repeated_calls import Repetition
from prompt_sidecar.v1 import run_pb2, trim_pb2, usage_pb2

_KIND = enum_numbers(trim_pb2.SizeKind, "SIZE_KIND_", SizeKind)


def add_size(to: trim_pb2.TrimPromptResponse, answer: TrimAnswer) -> None:
    """Put the facts about the history's size into an answer to TrimPrompt."""
    if answer.size is not None:
        to.history_size.CopyFrom(history_size(answer.size))
    to.crossed_percent.extend(answer.crossed)
    to.repeated_calls.extend(map(_repeated, answer.repeated))


def add_figures(to: run_pb2.RunFigures, figures: RunFigures) -> None:
    """Put them, and what the provider reported, into a run's figures."""
    if figures.size is not None:
        to.history_size.CopyFrom(history_size(figures.size))
    to.repeated_calls = figures.repeated.calls
    to.repeated_tokens = figures.repeated.tokens
    to.usage.CopyFrom(_usage(figures.usage))


def history_size(size: HistorySize) -> trim_pb2.HistorySize:
    """A size as the wire has it."""
    return trim_pb2.HistorySize(
        kinds=[
            trim_pb2.KindTokens(
                kind=_KIND[kind],
                tokens_sent=of_kind.tokens_sent,
                tokens_returned=of_kind.tokens_returned,
                items=of_kind.items,
            )
            for kind, of_kind in size.by_kind.items()
        ],
        messages=size.messages,
        messages_returned=size.messages_returned,
        tokens_sent=size.tokens_sent,
        tokens_returned=size.tokens_returned,
        share_of_limit=size.share_of_limit,
    )


def _repeated(call: Repetition) -> trim_pb2.RepeatedCall:
    return trim_pb2.RepeatedCall(
        tool=plain_name(call.tool),
        iteration=call.iteration,
        first_iteration=call.first_iteration,
        times=call.times,
        tokens=call.tokens,
        message_index=call.message,
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
