"""The tools with the most tokens: those of their results, and how many of these were trimmed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Final

from prompt_sidecar.prompt.items import ItemKind, pairing_id
from prompt_sidecar.report.sizes import Sizes

MOST_TOOLS: Final = 15
"""Tools shown by name, those with the most tokens in results and arguments; the rest together are `OTHER`."""
OTHER: Final = "other"
_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")
_RESULTS: Final = frozenset({ItemKind.RESULT, ItemKind.IMAGE})


@dataclass(frozen=True, slots=True)
class ToolWeight:
    """One tool in a run. Tokens of results unless stated otherwise."""

    tool: str
    calls: int
    repeats: int
    """Calls with the same arguments as an earlier one."""
    brought: int
    arguments: int
    """Tokens of the calls themselves."""
    trimmed: int
    """Those of `brought` that were trimmed by the end of the run, under the first preset."""
    p95: int
    """Size of a result that 95 of 100 do not exceed."""

    @property
    def kept(self) -> int:
        """Tokens of `brought` that were never trimmed."""
        return max(0, self.brought - self.trimmed)


@dataclass(slots=True)
class _Tally:
    sizes: list[int] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    arguments: int = 0
    trimmed: int = 0


Trimmed = Mapping[tuple[int, int], int]
"""Tokens that trimming saved of each item by the end, by message (its object's id) and item."""


def weigh_tools(sizes: Sizes, trimmed: Trimmed) -> list[ToolWeight]:
    """Return the run's tools, the heaviest first; at most `MOST_TOOLS` and `OTHER`."""
    tallies: dict[str, _Tally] = {}
    called: dict[str, str] = {}
    for raw, sized in sizes.distinct():
        counts: dict[tuple[str, int], int] = {}
        for place, (item, tokens) in enumerate(zip(sized.message.items, sized.weight.items, strict=True)):
            if item.kind is ItemKind.ARGUMENTS:
                name = shown(item.tool)
                called[pairing_id(item.call_id, item.tool)] = name
                tally = tallies.setdefault(name, _Tally())
                tally.asked[item.text] += 1
                tally.arguments += tokens
            elif item.kind in _RESULTS and item.result >= 0:
                name = called.get(pairing_id(item.call_id, item.tool)) or shown(item.tool)
                counts[name, item.result] = counts.get((name, item.result), 0) + tokens
                saved = trimmed.get((id(raw), place), 0)
                tallies.setdefault(name, _Tally()).trimmed += min(saved, tokens)
        for (name, _), tokens in counts.items():
            tallies[name].sizes.append(tokens)
    return bounded([_weight(name, tally) for name, tally in tallies.items()])


def bounded(weights: Sequence[ToolWeight]) -> list[ToolWeight]:
    """Return at most `MOST_TOOLS` of them and the rest as `OTHER`, the heaviest first."""
    ordered = sorted(weights, key=lambda one: (one.tool == OTHER, -one.brought - one.arguments, one.tool))
    named = [one for one in ordered[:MOST_TOOLS] if one.tool != OTHER]
    rest = [one for one in ordered if one not in named]
    return [*named, merged(OTHER, rest)] if rest else named


def merged(name: str, weights: Sequence[ToolWeight]) -> ToolWeight:
    """Merge several tools into one; its p95 is the largest of theirs."""
    return ToolWeight(
        tool=name,
        calls=sum(one.calls for one in weights),
        repeats=sum(one.repeats for one in weights),
        brought=sum(one.brought for one in weights),
        arguments=sum(one.arguments for one in weights),
        trimmed=sum(one.trimmed for one in weights),
        p95=max((one.p95 for one in weights), default=0),
    )


def over_runs(runs: Sequence[Sequence[ToolWeight]]) -> list[ToolWeight]:
    """Merge the tools of several runs, with their number limited again."""
    by_name: dict[str, list[ToolWeight]] = {}
    for one in (one for run in runs for one in run):
        by_name.setdefault(one.tool, []).append(one)
    return bounded([merged(name, weights) for name, weights in by_name.items()])


def shown(name: str) -> str:
    """Return a tool's name if its characters and length are valid, else `OTHER`: names are from the transcript."""
    return name if _NAME.fullmatch(name) else OTHER


def _weight(name: str, tally: _Tally) -> ToolWeight:
    sizes = tally.sizes
    return ToolWeight(
        tool=name,
        calls=sum(tally.asked.values()) or len(sizes),
        repeats=sum(times - 1 for times in tally.asked.values()),
        brought=sum(sizes),
        arguments=tally.arguments,
        trimmed=tally.trimmed,
        p95=round(quantiles(sizes, n=20, method="inclusive")[-1]) if len(sizes) > 1 else sum(sizes),
    )
