"""The page of a report: self-contained, escaped, readable without sight of its charts and on a phone."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from prompt_sidecar.config.settings import load
from prompt_sidecar.guard.ceilings import ANY_MODEL, Price
from prompt_sidecar.report import page as pages
from prompt_sidecar.report.figures import Report, ReportRequest
from prompt_sidecar.report.page import page
from prompt_sidecar.report.tool_weights import over_runs
from prompt_sidecar.report.work import Measurement, Measurer
from tests.cli.running import PATIENCE
from tests.report.pages import elements
from tests.report.transcripts.samples import answered, jsonl, result, session, use, user_line

HOSTILE = '"><script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'">{{7*7}}</script><!--'
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def _report(*paths: Path, limit: float = 1_500.0) -> Report:
    asked = ReportRequest(limit=limit, presets=["cache_first", "lean"], money={ANY_MODEL: Price(3, 15, 0.3, 3.75)})
    measurer = Measurer(Measurement(asked, load({}, config=None, flags={})))
    runs = [run for path in paths for run in measurer.measure(path)[0]]
    return Report(asked, runs, [], over_runs([run.tools for run in runs]))


def _hostile(folder: Path) -> Path:
    """A session whose texts, names, model and file name try to run a script."""
    lines = [user_line(HOSTILE, "u0")]
    for at in range(8):
        line = answered(use(f"c{at}", HOSTILE, path=HOSTILE), f"m{at}", f"a{at}", "u0")
        line["message"]["model"] = HOSTILE
        lines += [line, user_line([result(f"c{at}", HOSTILE * 40)], f"r{at}", f"a{at}")]
    return jsonl(folder / f"{HOSTILE.replace('/', '')}.jsonl", lines)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of an ordinary run and of a hostile one."""
    folder = tmp_path_factory.mktemp("runs")
    return page(_report(jsonl(folder / "s.jsonl", session(calls=20, size=200)), _hostile(folder)))


def test_nothing_comes_from_elsewhere_and_no_other_script_runs(shown: str) -> None:
    """The policy names the page's own script and style by their digests; no element refers to another address."""
    found = elements(shown)
    policy = next(one.attributes["content"] for one in found if "http-equiv" in one.attributes)
    scripts = [one for one in found if one.tag == "script"]
    (style,) = (one for one in found if one.tag == "style")
    data, script = scripts
    assert "application/json" == data.attributes["type"]
    for kind, text in (("script-src", script.text), ("style-src", style.text)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert [] == [one for one in found if {"src", "href", "srcset", "style", "action"} & one.attributes.keys()]
    assert [] == [name for one in found for name in one.attributes if name.startswith("on")]


def test_what_a_transcript_holds_is_text(shown: str) -> None:
    """It adds no element, closes no script, and none of its words are on the page but in names."""
    found = elements(shown)
    assert {"img", "iframe", "object"}.isdisjoint(one.tag for one in found)
    assert 2 == sum(one.tag == "script" for one in found)
    charts = json.loads(next(one.text for one in found if one.attributes.get("id") == "charts"))
    assert any(chart["description"].startswith("Tokens of each prompt") for chart in charts)
    assert "49" not in [one.text for one in found if one.tag == "summary"]
    assert "line 7" not in shown
    assert "Look at it." not in shown
    assert "other" in {one.text for one in found if one.tag == "th"}


def test_it_can_be_read_by_ear_and_by_keyboard(shown: str) -> None:
    """A language, a title, headings in order, captions and scopes of tables, labels of charts."""
    found = elements(shown)
    assert "en" == found[0].attributes["lang"]
    assert any(one.tag == "title" and one.text for one in found)
    levels = [int(one.tag[1]) for one in found if re.fullmatch(r"h[1-6]", one.tag)]
    assert [1] == [level for level in levels if level == 1] == levels[:1]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    tables = [one for one in found if one.tag == "table"]
    assert len(tables) == sum(one.tag == "caption" for one in found)
    assert all(one.attributes.get("scope") in {"col", "row"} for one in found if one.tag == "th")
    for place in (one for one in found if "data-chart" in one.attributes):
        assert place.inside[-1].attributes["aria-label"]
    scrolled = [one for one in found if one.attributes.get("class") == "table"]
    assert all("0" == one.attributes["tabindex"] and one.attributes["aria-label"] for one in scrolled)


def test_the_charts_figures_are_in_tables_too(shown: str) -> None:
    """Who sees no chart misses no strategy and no tool."""
    rows = {one.text for one in elements(shown) if one.tag == "th" and one.attributes.get("scope") == "row"}
    assert {"never trimming", "plain control", "cache_first", "lean", "Read"} <= rows


def test_only_the_dearest_runs_have_charts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are in the table; the page says how many have a section."""
    monkeypatch.setattr(pages, "DETAILED", 2)
    made = page(_report(*(jsonl(tmp_path / f"{at}.jsonl", session(calls=at + 1)) for at in range(4))))
    found = elements(made)
    assert 2 == sum(one.tag == "details" for one in found)
    assert "The 2 dearest of 4" in made
    assert {f"{at}.jsonl" for at in range(4)} <= {one.text for one in found if one.tag == "th"}


def _browse(path: Path, folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM
    return subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"),
            *("--enable-logging=stderr", "--virtual-time-budget=20000", *flags, path.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_a_browser_draws_the_charts_and_runs_nothing_else(shown: str, tmp_path: Path) -> None:
    """No refusal of the policy is needed for what is the page's own, and what a transcript holds does not run."""
    path = tmp_path / "report.html"
    path.write_text(shown)
    drawn = _browse(path, tmp_path, "--dump-dom")
    assert "Content Security Policy" not in drawn.stderr
    assert "Uncaught" not in drawn.stderr
    assert "<title>What trimming would save" in drawn.stdout
    assert 4 <= drawn.stdout.count("<svg")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_it_fits_a_phone(shown: str, tmp_path: Path) -> None:
    """The page is not wider than the screen: wide tables scroll by themselves."""
    path = tmp_path / "report.html"
    measuring = (
        "<script>addEventListener('load', () => setTimeout(() => {"
        "document.documentElement.dataset.wide = document.documentElement.scrollWidth;"
        "document.documentElement.dataset.screen = innerWidth}, 3000))</script>"
    )
    # The policy would refuse the measuring script, so it is left out of this copy.
    before, _, _ = re.sub(r"<meta http-equiv[^>]*>", "", shown).rpartition("</body>")
    path.write_text(f"{before}{measuring}</body></html>")
    drawn = _browse(path, tmp_path, "--dump-dom", "--window-size=500,900")
    found = re.search(r'data-wide="(\d+)" data-screen="(\d+)"', drawn.stdout)
    assert found
    assert int(found[1]) <= int(found[2])


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
@pytest.mark.parametrize("dark", [False, True])
def test_it_follows_the_reader_s_choice_of_light_or_dark(shown: str, tmp_path: Path, *, dark: bool) -> None:
    """Ground, text and the charts' labels: each is far from the other."""
    path = tmp_path / "report.html"
    measuring = (
        "<script>addEventListener('load', () => setTimeout(() => {const d = document.documentElement.dataset;"
        "const body = getComputedStyle(document.body); d.paper = body.backgroundColor; d.text = body.color;"
        "d.label = getComputedStyle(document.querySelector('svg .role-axis-label text')).fill}, 3000))</script>"
    )
    before, _, _ = re.sub(r"<meta http-equiv[^>]*>", "", shown).rpartition("</body>")
    path.write_text(f"{before}{measuring}</body></html>")
    drawn = _browse(path, tmp_path, "--dump-dom", f"--blink-settings=preferredColorScheme={0 if dark else 1}")
    found = {
        name: sum(map(int, re.findall(r"\d+", value)[:3]))
        for name, value in re.findall(r'data-(paper|text|label)="([^"]+)"', drawn.stdout)
    }
    assert {"paper", "text", "label"} == found.keys()
    assert dark == (found["paper"] < 150)
    assert all(abs(found["paper"] - found[name]) > 400 for name in ("text", "label"))


def test_runs_are_called_by_project_and_date(tmp_path: Path) -> None:
    """The file's name, which is a row of digits, stands next to it; of a file without them it is all there is."""
    lines = [line | {"cwd": "/srv/ada/budget", "timestamp": "2026-11-03T10:00:00Z"} for line in session(20, 200)]
    known = jsonl(tmp_path / "8a1f.jsonl", lines)
    unknown = jsonl(tmp_path / "plain.jsonl", session(20, 200))
    report = _report(known, unknown)
    assert ["budget, 2026-11-03", "plain.jsonl"] == [run.title for run in report.runs]
    made = page(report)
    assert "<b>budget, 2026-11-03</b>" in made.replace(' class="worse"', "")
    assert '<span class="quiet file">8a1f.jsonl</span>' in made
    assert "/home/ada" not in made
