"""A dashboard as Grafana 11 reads it, by Grafana's own library of builders.

No datasource is named: each is a variable, which Grafana fills with what it has. Panels of quantiles ask for exemplars,
and a click on any panel that has `traces` opens the traces of that time in Tempo's explorer.
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import quote

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models

from dashboards.generate.names import family
from dashboards.generate.panels import Board, Look, Panel, Query, Unit
from prompt_sidecar.telemetry.catalog import BUILD_INFO

TAG: Final = "prompt-sidecar"
"""Of all our dashboards; by it they find each other."""
PROMETHEUS: Final = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
GROUPINGS: Final = (
    ("Pod", "k8s_pod_name"),
    ("Workload", "k8s_deployment_name"),
    ("Namespace", "k8s_namespace_name"),
    ("Node", "k8s_node_name"),
    ("Version", "service_version"),
    ("Instance", "instance"),
    ("Scraped pod", "pod"),
    ("Scraped namespace", "namespace"),
)
"""What a fleet can be grouped by, and the label: attributes of the resource, and labels that a PodMonitor adds."""
_SOFT_TOPS: Final = {
    Unit.COUNT: 1,
    Unit.PER_MINUTE: 1,
    Unit.CALLS_PER_SECOND: 0.1,
    Unit.TOKENS_PER_SECOND: 1,
    Unit.SHARE: 0.01,
}
"""Where the axis of lines that are all 0 ends: Grafana's own end is 100, as if that were near."""
Drawn = stat.Panel | timeseries.Panel | bargauge.Panel

_RUNS: Final = (
    '{ resource.service.name = "prompt-sidecar" && span.prompt_sidecar.run.id != "" } | select('
    + ", ".join(
        f"span.prompt_sidecar.{name}"
        for name in (
            "run.id",
            "prompt.iteration",
            "prompt.tokens.before",
            "prompt.tokens.after",
            "cache.break.cause",
            "trims.new",
            "retrieval.outcome",
        )
    )
    + ")"
)
"""Spans of runs, in a table with what matters of each."""

# Grafana takes the panes of its explorer as JSON in the address; what is in ${} it fills in itself.
_PANES: Final = {
    "traces": {
        "datasource": "${tempo}",
        "queries": [{"refId": "A", "queryType": "traceql", "query": _RUNS, "tableType": "spans", "limit": 50}],
        "range": {"from": "${__from}", "to": "${__to}"},
    }
}
ADMIN: Final = "http://127.0.0.1:7719"
"""Where the pages of runs are, as docs/runs.md has them served."""
_TRACES: Final = "/explore?schemaVersion=1&panes=" + quote(json.dumps(_PANES), safe="${}")


def _variables(board: Board, admin: str) -> list[Any]:
    known = family(BUILD_INFO)
    everything = models.VariableOption(selected=True, text="All", value="$__all")
    variables: list[Any] = [
        dashboard.DatasourceVariable("datasource")
        .label("Data source")
        .description("The Prometheus that scrapes the sidecars.")
        .type("prometheus"),
        dashboard.QueryVariable("job")
        .label("Job")
        .description("Scrape jobs that have a sidecar.")
        .datasource(PROMETHEUS)
        .query(f"label_values({known}, job)")
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(".+")
        .current(everything),
        dashboard.QueryVariable("instance")
        .label("Instance")
        .description("Sidecars of these jobs.")
        .datasource(PROMETHEUS)
        .query(f'label_values({known}{{job=~"$job"}}, instance)')
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(".+")
        .current(everything),
    ]
    if any(panel.traces for panel in board.panels()):
        variables.append(
            dashboard.DatasourceVariable("tempo")
            .label("Traces")
            .description("The Tempo that has the sidecars' traces; a click on a duration opens it.")
            .type("tempo")
        )
    if board.grouped:
        variables.append(
            dashboard.CustomVariable("by")
            .label("By")
            .description("The attribute by which sidecars are grouped; those without it are shown as instances.")
            .values(", ".join(f"{name} : {value}" for name, value in GROUPINGS))
            .current(models.VariableOption(selected=True, text=GROUPINGS[0][0], value=GROUPINGS[0][1]))
        )
    variables.append(
        _typed("admin", "Pages of runs", admin, "Where admin.listen of the sidecar is reached, for the link Runs.")
    )
    if board.prices:
        variables += [
            _price("read_price", "Price: cached", "0.1", "of a token that the provider reads from its cache"),
            _price("write_price", "Price: rewritten", "1.25", "of a token that is new to the provider's cache"),
        ]
    return variables


def _price(name: str, label: str, default: str, what: str) -> dashboard.TextBoxVariable:
    return _typed(name, label, default, f"Price {what}, in uncached input tokens.")


def _typed(name: str, label: str, default: str, description: str) -> dashboard.TextBoxVariable:
    return (
        dashboard.TextBoxVariable(name)
        .label(label)
        .description(description)
        .default_value(default)
        .current(models.VariableOption(selected=True, text=default, value=default))
    )


def _target(query: Query, place: int) -> prometheus.Dataquery:
    target = (
        prometheus.Dataquery()
        .datasource(PROMETHEUS)
        .expr(query.expression)
        .legend_format(query.legend)
        .ref_id(chr(ord("A") + place))
    )
    target = target.instant() if query.instant else target.range()
    return target.exemplar(exemplar=True) if query.exemplars else target


def _reduced() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).values(values=False).fields("")


def _stat(panel: Panel) -> stat.Panel:
    line = not any(query.instant for query in panel.queries)
    return (
        stat.Panel()
        .color_mode(common_models.BigValueColorMode.VALUE)
        .graph_mode(common_models.BigValueGraphMode.AREA if line else common_models.BigValueGraphMode.NONE)
        .justify_mode(common_models.BigValueJustifyMode.AUTO)
        .text_mode(
            common_models.BigValueTextMode.AUTO
            if len(panel.queries) == 1
            else common_models.BigValueTextMode.VALUE_AND_NAME
        )
        .orientation(common_models.VizOrientation.AUTO)
        .reduce_options(_reduced())
    )


def _funnel(_panel: Panel) -> bargauge.Panel:
    return (
        bargauge.Panel()
        .display_mode(common_models.BarGaugeDisplayMode.BASIC)
        .value_mode(common_models.BarGaugeValueMode.COLOR)
        .name_placement(common_models.BarGaugeNamePlacement.LEFT)
        .show_unfilled(show_unfilled=True)
        .orientation(common_models.VizOrientation.HORIZONTAL)
        .reduce_options(_reduced())
    )


def _timeseries(panel: Panel) -> timeseries.Panel:
    bars = panel.look is Look.BARS
    stacked = panel.look in {Look.STACKED, Look.BARS}
    drawn = (
        timeseries.Panel()
        .draw_style(common_models.GraphDrawStyle.BARS if bars else common_models.GraphDrawStyle.LINE)
        .line_width(1)
        .fill_opacity(70 if bars else 40 if stacked else 8)
        .show_points(common_models.VisibilityMode.AUTO)
        .span_nulls(span_nulls=False)
        .stacking(
            common.StackingConfig()
            .mode(common_models.StackingMode.NORMAL if stacked else common_models.StackingMode.NONE)
            .group("A")
        )
        .legend(
            common.VizLegendOptions()
            .show_legend(show_legend=True)
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
            .calcs([])
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
        .axis_soft_min(0)
    )
    if (top := _SOFT_TOPS.get(panel.unit)) is not None and panel.most is None and not panel.decimals:
        drawn = drawn.axis_soft_max(top)
    if panel.thresholds:
        drawn = drawn.thresholds_style(
            common.GraphThresholdsStyleConfig().mode(common_models.GraphThresholdsStyleMode.DASHED)
        )
    return drawn


def _color(panel: Panel) -> dashboard.FieldColor:
    by_value = panel.look is Look.STAT
    return dashboard.FieldColor().mode(
        models.FieldColorModeId.THRESHOLDS if by_value else models.FieldColorModeId.PALETTE_CLASSIC
    )


def _runs(panel: Panel) -> str:
    """Return where the runs of a series are; for `other`, which is several callers or models, the pages show all."""
    grouped = {name for name in ("caller", "model") for query in panel.queries if f"{{{{{name}}}}}" in query.legend}
    chosen = "".join(f"&{name}=${{__field.labels.{name}}}" for name in sorted(grouped))
    return f"${{admin}}/runs?sort={panel.runs}{chosen}"


def _panel(panel: Panel, number: int, position: models.GridPos) -> Drawn:
    drawn: Drawn
    if panel.look is Look.STAT:
        drawn = _stat(panel)
    elif panel.look is Look.FUNNEL:
        drawn = _funnel(panel)
    else:
        drawn = _timeseries(panel)
    steps = [models.Threshold(None, panel.base), *(models.Threshold(value, color) for value, color in panel.thresholds)]
    drawn = (
        drawn.id(number)
        .title(panel.title)
        .description(panel.description())
        .datasource(PROMETHEUS)
        .grid_pos(position)
        .unit(panel.unit.value)
        .no_value(panel.no_value)
        .color_scheme(_color(panel))
        .thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
        .targets([_target(query, place) for place, query in enumerate(panel.queries)])
    )
    if panel.decimals is not None:
        drawn = drawn.decimals(panel.decimals)
    if panel.least is not None:
        drawn = drawn.min(panel.least)
    if panel.most is not None:
        drawn = drawn.max(panel.most)
    links: list[Any] = []
    if panel.traces:
        links.append(dashboard.DashboardLink("Traces of this time").type(models.DashboardLinkType.LINK).url(_TRACES))
    if panel.runs:
        links.append(
            dashboard.DashboardLink("Runs")
            .type(models.DashboardLinkType.LINK)
            .url(_runs(panel))
            .target_blank(target_blank=True)
        )
    if links:
        drawn = drawn.data_links(links)
    return drawn


def _links() -> list[Any]:
    return [
        dashboard.DashboardLink("Prompt Sidecar")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .icon("external link")
        .as_dropdown(as_dropdown=False)
        .include_vars(include_vars=True)
        .keep_time(keep_time=True),
        dashboard.DashboardLink("Runs")
        .type(models.DashboardLinkType.LINK)
        .url("${admin}/runs")
        .icon("doc")
        .tooltip("What happened in single runs, where the sidecar serves pages about them")
        .target_blank(target_blank=True),
    ]


def render(board: Board, admin: str = ADMIN) -> str:
    """Return the dashboard's JSON, the same for the same board; `admin`: where its links to runs lead."""
    builder = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .editable()
        .timezone("browser")
        .refresh("30s")
        .time("now-1h", "now")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .variables(_variables(board, admin))
        .links(_links())
    )
    number = 0
    top = 0
    for row in board.rows:
        number += 1
        builder = builder.with_row(dashboard.Row(row.title).id(number).grid_pos(models.GridPos(h=1, w=24, x=0, y=top)))
        top += 1
        for line in row.lines():
            left = 0
            for panel in line:
                number += 1
                at = models.GridPos(h=panel.height, w=panel.width, x=left, y=top)
                builder = builder.with_panel(_panel(panel, number, at))
                left += panel.width
            top += line[0].height
    return json.dumps(builder.build(), cls=JSONEncoder, indent=2, ensure_ascii=False) + "\n"
