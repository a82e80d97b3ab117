"""The page's charts as Vega-Lite specifications: each a view with its data, which hold figures and names of tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from prompt_sidecar.report.figures import ReportedRun, TurnFigures
from prompt_sidecar.report.tool_weights import ToolWeight

Spec = dict[str, Any]

MOST_POINTS: Final = 240
"""Prompts of a run that are drawn: more than fit on a screen. The largest of neighbours is drawn."""
SENT: Final = "sent by the agent"
LIMIT: Final = "limit"
WINDOW: Final = "window"
COUNTED: Final = "counted by the provider"
_SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v6.json"
_COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
"""Okabe and Ito's palette, whose colours are distinct in all kinds of colour vision."""
_GREY: Final = "#6b6b6b"
_TOOL_PARTS: Final = ("results kept", "results trimmed", "calls' arguments")
_CONFIG: Final[Spec] = {
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelLimit": 220},
    "legend": {"labelFontSize": 12, "titleFontSize": 12, "orient": "bottom", "columns": 2, "labelLimit": 260},
}


def curve(run: ReportedRun) -> Spec:
    """Prompt size over the run: as sent, as returned under each preset, the limit, what the provider counted."""
    kinds = [SENT, *(one.preset for one in run.presets), LIMIT]
    rows = [row for place in _drawn(run.turns) for row in _points(run, place)]
    if any(turn.counted for turn in run.turns):
        kinds.append(COUNTED)
    if 0 < run.window <= 1.2 * max(turn.before for turn in run.turns):
        kinds.append(WINDOW)
        rows += [{"call": turn, "tokens": run.window, "what": WINDOW} for turn in (1, len(run.turns))]
    colours = {SENT: _GREY, LIMIT: "#000000", WINDOW: "#b00020", COUNTED: "#8a5a00"}
    given = iter(_COLOURS)
    first = run.presets[0].preset
    cuts = [
        {"call": turn.turn, "tokens": turn.after, "what": first}
        for turn in run.turns
        if turn.batch_point and len(run.turns) > 1
    ]
    scale = {"domain": kinds, "range": [colours.get(kind) or next(given) for kind in kinds]}
    colour = {"field": "what", "type": "nominal", "scale": scale, "title": None}
    dashed = {"condition": {"test": f"datum.what === '{LIMIT}' || datum.what === '{WINDOW}'", "value": [5, 4]}}
    return _made(
        f"Tokens of each prompt of {run.name}",
        {
            "layer": [
                {
                    "data": {"values": rows},
                    "mark": {"type": "line", "strokeWidth": 1.8, "tooltip": True},
                    "encoding": {"color": colour, "strokeDash": {**dashed, "value": [1, 0]}},
                },
                *(
                    [
                        {
                            "data": {"values": cuts},
                            "mark": {"type": "point", "filled": True, "size": 45, "tooltip": True},
                            "encoding": {"color": colour},
                        }
                    ]
                    if len(cuts) <= MOST_POINTS / 4
                    else []
                ),
            ],
            "encoding": {
                "x": {"field": "call", "type": "quantitative", "title": "model call", "axis": {"tickMinStep": 1}},
                "y": {"field": "tokens", "type": "quantitative", "title": "tokens", "axis": {"format": "~s"}},
            },
            "height": 260,
        },
    )


def cuts(run: ReportedRun) -> Spec:
    """Chart what was trimmed when: tokens newly saved at each model call, by action."""
    rows: dict[tuple[int, str], int] = {}
    width = max(1, -(-len(run.turns) // (MOST_POINTS // 2)))
    for cut in run.cuts:
        key = ((cut.turn - 1) // width * width + 1, cut.action)
        rows[key] = rows.get(key, 0) + cut.tokens
    return _made(
        f"Tokens newly trimmed at each model call of {run.name}",
        {
            "data": {"values": [{"call": call, "action": action, "tokens": n} for (call, action), n in rows.items()]},
            "mark": {"type": "bar", "width": 5, "tooltip": True},
            "encoding": {
                "x": {
                    "field": "call",
                    "type": "quantitative",
                    "title": "model call",
                    "scale": {"domain": [0, len(run.turns) + 1]},
                    "axis": {"tickMinStep": 1},
                },
                "y": {"field": "tokens", "type": "quantitative", "title": "tokens trimmed", "axis": {"format": "~s"}},
                "color": {"field": "action", "type": "nominal", "scale": {"range": list(_COLOURS)}, "title": None},
            },
            "height": 150,
        },
    )


def shares(names: Sequence[tuple[str, float]]) -> Spec:
    """Chart strategies by their cost as a share of never trimming."""
    return _made(
        "What each strategy costs, as a share of never trimming",
        {
            "data": {"values": [{"strategy": name, "share": round(share, 4)} for name, share in names]},
            "layer": [
                {
                    "mark": {"type": "bar", "tooltip": True, "height": {"band": 0.7}},
                    "encoding": {
                        "color": {
                            "condition": {"test": "datum.share > 1.0049", "value": "#D55E00"},
                            "value": "#0072B2",
                        }
                    },
                },
                {"mark": {"type": "text", "align": "left", "dx": 4}, "encoding": {"text": _percent("share")}},
                {
                    "data": {"values": [{"share": 1}]},
                    "mark": {"type": "rule", "strokeDash": [5, 4], "color": "#000000"},
                    "encoding": {"y": {"value": 0}, "y2": {"value": "height"}},
                },
            ],
            "encoding": {
                "y": {"field": "strategy", "type": "nominal", "sort": None, "title": None},
                "x": {
                    "field": "share",
                    "type": "quantitative",
                    "title": "cost, of never trimming",
                    "axis": {"format": "%"},
                },
            },
            "height": {"step": 28},
        },
    )


def tools(weights: Sequence[ToolWeight]) -> Spec:
    """Chart tools by their tokens: of results, the kept and the trimmed part; and of calls' arguments."""
    rows = [
        {"tool": one.tool, "what": what, "tokens": tokens}
        for one in weights
        for what, tokens in zip(_TOOL_PARTS, (one.kept, one.brought - one.kept, one.arguments), strict=True)
    ]
    return _made(
        "Tokens of the tools' results, kept and trimmed, and of their calls' arguments",
        {
            "data": {"values": rows},
            "mark": {"type": "bar", "tooltip": True},
            "encoding": {
                "y": {"field": "tool", "type": "nominal", "sort": None, "title": None},
                "x": {
                    "field": "tokens",
                    "type": "quantitative",
                    "title": "tokens",
                    "axis": {"format": "~s"},
                },
                "color": {
                    "field": "what",
                    "type": "nominal",
                    "scale": {"domain": list(_TOOL_PARTS), "range": ["#009E73", "#E69F00", "#8a8f98"]},
                    "title": None,
                },
            },
            "height": {"step": 22},
        },
    )


def _made(description: str, view: Spec) -> Spec:
    return {
        "$schema": _SCHEMA,
        "description": description,
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "background": None,
        **view,
        "config": _CONFIG,
    }


def _percent(field: str) -> Spec:
    return {"field": field, "type": "quantitative", "format": ".0%"}


def _drawn(turns: Sequence[TurnFigures]) -> list[int]:
    """Return the indices of the drawn turns: the smallest and the largest of each stretch, and the last of all."""
    if len(turns) <= MOST_POINTS:
        return list(range(len(turns)))
    width = -(-2 * len(turns) // MOST_POINTS)
    drawn: set[int] = {len(turns) - 1}
    for start in range(0, len(turns), width):
        stretch = range(start, min(start + width, len(turns)))
        drawn |= {
            max(stretch, key=lambda place: turns[place].after),
            min(stretch, key=lambda place: turns[place].after),
        }
    return sorted(drawn)


def _points(run: ReportedRun, place: int) -> list[Spec]:
    turn = run.turns[place]
    found = {SENT: turn.before, LIMIT: run.limit} | {one.preset: one.after[place] for one in run.presets}
    if turn.counted:
        found[COUNTED] = turn.counted
    return [{"call": turn.turn, "tokens": tokens, "what": what} for what, tokens in found.items()]
