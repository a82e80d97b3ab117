"""Every dashboard follows the rules of dashboard-linter and ours: nothing is missing, unused, or empty by mistake."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from dashboards.generate.__main__ import BOARDS
from dashboards.generate.names import CLIENT_PROMPTS, FOREIGN, Foreign, labels, series
from dashboards.generate.panels import Unit
from dashboards.generate.promql import GROUP
from prompt_sidecar.doors.admin.site import CHOSEN_BY, ORDERS
from prompt_sidecar.telemetry.catalog import CATALOG, Metric
from tests.dashboards.queries import parse
from tests.dashboards.tools import boards, panels

DEFINED: tuple[Metric | Foreign, ...] = (*CATALOG, *FOREIGN)
KNOWN = {name: labels(metric) for metric in DEFINED for name in series(metric)}
COMMON = {"job", "instance", "le", GROUP}
NAMES = tuple(boards())


@pytest.fixture(params=NAMES)
def board(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One dashboard after the other."""
    return boards()[request.param]


def targets(board: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return each query of a dashboard, with the title of its panel."""
    return [(panel["title"], target) for panel in panels(board) for target in panel["targets"]]


def test_there_are_five() -> None:
    """The four that an operator of one sidecar asks for, and one for all sidecars."""
    assert {"overview", "trimming-and-cache", "recall", "health", "fleet"} == set(NAMES)


def test_uids_and_titles_are_unique() -> None:
    """Grafana overwrites one dashboard by another of the same uid."""
    assert len(NAMES) == len({board["uid"] for board in boards().values()})
    assert len(NAMES) == len({board["title"] for board in boards().values()})


def test_every_board_refreshes_and_shows_the_last_hour(board: dict[str, Any]) -> None:
    """Each refreshes, follows the reader's clock, and shows the last hour."""
    expected = {"refresh": "30s", "timezone": "browser", "time": {"from": "now-1h", "to": "now"}}

    assert expected == {name: board[name] for name in expected}
    assert board["description"]


def test_links_lead_to_the_others(board: dict[str, Any]) -> None:
    """By a tag that all have, with the time and the variables kept."""
    (link, _) = board["links"]

    assert ("dashboards", ["prompt-sidecar"]) == (link["type"], link["tags"])
    assert link["keepTime"]
    assert link["includeVars"]
    assert "prompt-sidecar" in board["tags"]


def test_a_link_leads_to_the_pages_of_runs(board: dict[str, Any]) -> None:
    """At the address that a variable has; what is behind it is another site, so nothing of the board goes there."""
    (_, link) = board["links"]
    (variable,) = [each for each in board["templating"]["list"] if each["name"] == "admin"]

    assert ("link", "${admin}/runs", True) == (link["type"], link["url"], link["targetBlank"])
    assert not link.get("keepTime")
    assert not link.get("includeVars")
    assert "http://127.0.0.1:7719" == variable["query"]


def test_panels_explain_themselves(board: dict[str, Any]) -> None:
    """Title, unit, what it shows, what to do, and what no data means."""
    for panel in panels(board):
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["title"], panel
        assert defaults["unit"] in {unit.value for unit in Unit}, panel["title"]
        assert defaults["noValue"], panel["title"]
        assert "\n\n**If it looks bad:** " in panel["description"], panel["title"]
        assert "\n\n**No data:** " in panel["description"], panel["title"]


def test_titles_are_unique_on_a_dashboard(board: dict[str, Any]) -> None:
    """A reader is sent to a panel by its title."""
    titles = [panel["title"] for panel in panels(board)]

    assert len(titles) == len(set(titles))


def test_panels_that_a_text_names_exist() -> None:
    """A reader who is sent to “Some panel” finds it."""
    known = {panel["title"] for board in boards().values() for panel in panels(board)}
    rows = {row["title"] for board in boards().values() for row in board["panels"] if row["type"] == "row"}
    legends = {
        target["legendFormat"] for board in boards().values() for panel in panels(board) for target in panel["targets"]
    }
    named = {
        name
        for board in boards().values()
        for panel in panels(board)
        for name in re.findall("“([^”]+)”", panel["description"])
    }

    assert {"Targets", "none"} >= named - known - rows - legends


def test_no_datasource_is_hard_coded(board: dict[str, Any]) -> None:
    """Every reference is a variable, so that the file works in any Grafana."""
    found = re.findall(r'"datasource": (\{.+?"\})', json.dumps(board))

    assert {'{"type": "prometheus", "uid": "${datasource}"}'} == set(found)


def test_the_datasource_is_a_variable(board: dict[str, Any]) -> None:
    """The first one, of Prometheus."""
    first = board["templating"]["list"][0]

    assert ("datasource", "datasource", "prometheus") == (first["name"], first["type"], first["query"])


@pytest.mark.parametrize("name", ["job", "instance"])
def test_job_and_instance_take_several_and_all(board: dict[str, Any], name: str) -> None:
    """As dashboard-linter wants them."""
    (variable,) = [each for each in board["templating"]["list"] if each["name"] == name]

    assert ("query", True, True, ".+") == tuple(variable[key] for key in ("type", "multi", "includeAll", "allValue"))
    assert {"type": "prometheus", "uid": "${datasource}"} == variable["datasource"]
    assert "prompt_sidecar_build_info" in variable["query"]


def test_every_variable_is_used_and_every_used_one_defined(board: dict[str, Any]) -> None:
    """What is shown above a dashboard changes something on it."""
    defined = {variable["name"] for variable in board["templating"]["list"]}
    text = json.dumps(board)
    # A group of a regular expression, as in label_replace, begins with a digit.
    used = {a or b for a, b in re.findall(r"\$(?:\{(\w+)\}|([^\W\d]\w*))", text) if not (a or b).startswith("__")}

    assert defined == used


def test_the_grid_has_no_gaps(board: dict[str, Any]) -> None:
    """Lines fill 24 columns, each stands on the one above, and nothing lies upon another."""
    taken: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        at = panel["gridPos"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]
    height = max(y for _, y in taken) + 1

    assert {(x, y) for x in range(24) for y in range(height)} == set(taken)


def test_figures_stand_before_lines(board: dict[str, Any]) -> None:
    """The first row is what can be read in ten seconds."""
    kinds = [panel["type"] for panel in board["panels"]]
    stats = [place for place, kind in enumerate(kinds) if kind == "stat"]

    assert ["row", "stat"] == kinds[:2]
    assert all(after - before == 1 for before, after in pairwise(stats))


def test_ids_are_unique(board: dict[str, Any]) -> None:
    """Links to a panel go by its number."""
    numbers = [panel["id"] for panel in board["panels"]]

    assert len(numbers) == len(set(numbers))


def test_queries_read_what_exists(board: dict[str, Any]) -> None:
    """Metric, labels and values are of the catalogue, or of those few that others define."""
    for title, target in targets(board):
        query = parse(target["expr"])
        every = {name for selector in query.selectors for name in KNOWN[selector.metric]} | COMMON
        assert query.selectors, title
        assert query.grouped <= every, title
        for selector in query.selectors:
            known = KNOWN[selector.metric]
            for matcher in selector.matchers:
                assert matcher.label in known.keys() | COMMON, title
                values = known.get(matcher.label, ())
                asked = matcher.value.replace("\\", "").split("|")
                assert not values or set(asked) <= set(values), (title, matcher)


def test_queries_are_of_the_chosen_sidecars(board: dict[str, Any]) -> None:
    """Each selector has both matchers, and as patterns, since several may be chosen; clients are not sidecars."""
    for title, target in targets(board):
        for selector in parse(target["expr"]).selectors:
            if selector.metric == CLIENT_PROMPTS.name:
                continue
            assert [("=~", "$job")] == [(m.operator, m.value) for m in selector.named("job")], title
            assert [("=~", "$instance")] == [(m.operator, m.value) for m in selector.named("instance")], title


def test_metrics_that_any_program_has_are_those_of_sidecars(board: dict[str, Any]) -> None:
    """All jobs are chosen by default, and every Python program under them has a processor's time."""
    shared = {metric.name for metric in FOREIGN if metric.of_any_program}
    for title, target in targets(board):
        for name in shared:
            alone = re.sub(rf"{name}(\{{[^}}]*\}})?(\[[^]]*\]\))? and on \(job, instance\)", "", target["expr"])
            assert name not in alone, title


def test_rates_follow_the_width_of_the_screen(board: dict[str, Any]) -> None:
    """Over time by $__rate_interval; a single figure over all that is shown by $__range."""
    for title, target in targets(board):
        expected = "$__range" if target["instant"] else "$__rate_interval"
        rates = {window for name, window in parse(target["expr"]).windows if name in {"rate", "increase"}}
        assert rates <= {expected}, title


def test_an_idle_sidecar_shows_no_nan(board: dict[str, Any]) -> None:
    """What is divided by is compared with 0 first, and each quantile with a number, which NaN never exceeds."""
    assert [] == [title for title, target in targets(board) if parse(target["expr"]).unguarded]


def test_quantiles_over_time_ask_for_exemplars_where_traces_can_answer(board: dict[str, Any]) -> None:
    """A dot is a call; a panel that has them links to the traces."""
    for panel in panels(board):
        exemplars = {target.get("exemplar", False) for target in panel["targets"]}
        links = [
            link["url"] for link in panel["fieldConfig"]["defaults"].get("links", []) if "/runs?" not in link["url"]
        ]
        assert exemplars == {bool(links)}, panel["title"]
        assert all("${tempo}" in link for link in links)


def test_links_to_runs_sort_and_choose_by_what_the_pages_know() -> None:
    """A link to an order that there is not would show any runs."""
    links = [
        link["url"]
        for board in boards().values()
        for panel in panels(board)
        for link in panel["fieldConfig"]["defaults"].get("links", [])
        if "/runs?" in link["url"]
    ]
    assert len(links) > 10
    for link in links:
        found = re.fullmatch(r"\$\{admin\}/runs\?sort=(\w+)((?:&\w+=\$\{__field\.labels\.\w+\})*)", link)
        assert found, link
        assert found[1] in ORDERS
        assert {*re.findall(r"&(\w+)=", found[2])} <= CHOSEN_BY.keys()


def test_axes_fit_lines_of_nothing(board: dict[str, Any]) -> None:
    """They begin at 0, and where all is 0 they end at one of what is counted, a hundredth of a share, not at 100."""
    counted = {Unit.COUNT.value, Unit.PER_MINUTE.value, Unit.CALLS_PER_SECOND.value, Unit.SHARE.value}
    for panel in panels(board):
        defaults = panel["fieldConfig"]["defaults"]
        if panel["type"] != "timeseries":
            continue
        assert 0 == defaults["custom"]["axisSoftMin"], panel["title"]
        if defaults["unit"] in counted and not defaults.get("decimals"):
            assert defaults.get("max", defaults["custom"].get("axisSoftMax", 100)) <= 1, panel["title"]


def test_the_legend_of_alerts_says_none_only_while_there_are_none() -> None:
    """A green `none (ok)` next to an alert that fires would be read first."""
    (panel,) = [each for each in panels(boards()["overview"]) if each["title"] == "Alerts"]
    (target,) = panel["targets"]
    assert re.search(r"vector\(0\).* unless on \(\) \(sum by", target["expr"])


def test_several_lines_have_names(board: dict[str, Any]) -> None:
    """A legend tells them apart."""
    for panel in panels(board):
        if panel["type"] != "stat":
            names = [target["legendFormat"] for target in panel["targets"]]
            assert all(names), panel["title"]
            assert len(names) == len(set(names)), panel["title"]


def test_every_metric_of_the_catalogue_is_shown() -> None:
    """What is not looked at need not be measured."""
    shown = {
        selector.metric
        for board in boards().values()
        for panel in panels(board)
        for target in panel["targets"]
        for selector in parse(target["expr"]).selectors
    }

    assert [] == [metric.name for metric in CATALOG if not shown & set(series(metric))]


def test_legends_name_labels_that_stay() -> None:
    """A label that the sum has dropped would read as an empty name."""
    for board in boards().values():
        for panel in panels(board):
            for target in panel["targets"]:
                named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                assert named <= parse(target["expr"]).grouped, panel["title"]


def test_boards_are_the_files() -> None:
    """Each board of the generator has its file."""
    assert {board.name for board in BOARDS} == set(NAMES)
