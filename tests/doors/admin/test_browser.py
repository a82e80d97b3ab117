"""The real program's pages in a real browser: drawn without script and without an error, and not wider than a phone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

import pytest

from prompt_sidecar.client import Client
from tests.cli.running import program
from tests.doors.admin.browser import CHROMIUM, PATIENCE, look
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, body, history

HOSTILE = "<script>alert(1)</script>"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
screens = pytest.mark.parametrize(("width", "phone"), [(1_400, False), (375, True)])


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of the pages of a program that has trimmed two runs, one of a hostile name."""
    settings = {"SERVER__LISTEN": "127.0.0.1:0", "TELEMETRY__METRICS_LISTEN": "", "ADMIN__LISTEN": "127.0.0.1:0"}
    with program(**settings) as served:
        pages = served.wait_for(r"pages of runs at (http://\S+)/runs")[1]
        address = served.wait_for(r"ready: listening on (\S+)")[1]
        served.keep_reading()
        with Client(address) as client:
            for run_id in ("plain", HOSTILE):
                for number in range(13):
                    prompt = json.loads(body(OPENAI_CHAT, history(OPENAI_CHAT, number)))
                    trimmed = client.trim(
                        run_id, prompt, context_window=LIMIT, output_reserve=0, model="claude-sonnet-4-5"
                    )
                    client.report_usage(run_id, input_tokens=9_000, cached_tokens=0, output_tokens=1_000_000)
                client.retrieve(run_id, trimmed.trims[0].stash_id)
                client.retrieve(run_id, HOSTILE)
        yield pages


def _keys(site: str) -> list[str]:
    with build_opener(ProxyHandler({})).open(f"{site}/runs.json", timeout=PATIENCE) as answer:
        return [run["key"] for run in json.load(answer)["runs"]]


@screens
def test_the_table_is_drawn(site: str, tmp_path: Path, width: int, *, phone: bool) -> None:
    """Both runs with links, the hostile name as text; nothing from elsewhere, nothing refused, nothing cut off."""
    seen = look(f"{site}/runs", tmp_path, width, phone=phone)
    assert [] == seen.problems
    assert 2 == len(re.findall(r'href="runs/[0-9a-f]{24}"', seen.html))
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in seen.html
    assert "<script" not in seen.html
    assert seen.width <= seen.screen == width
    assert [] == seen.cut
    assert 1 == seen.html.count("<main>")
    own = urlsplit(site).netloc
    assert {own} == {urlsplit(each).netloc for each in seen.requested if not each.startswith("data:")}


@screens
def test_a_run_is_drawn(site: str, tmp_path: Path, width: int, *, phone: bool) -> None:
    """The newest run, of the hostile name, whose model asked for a hostile id: a curve, and all of it as text."""
    seen = look(f"{site}/runs/{_keys(site)[0]}", tmp_path, width, phone=phone)
    assert [] == seen.problems
    assert "<svg" in seen.html
    assert 3 <= seen.html.count("&lt;script&gt;alert(1)&lt;/script&gt;")
    assert "<script" not in seen.html
    assert seen.width <= seen.screen == width
    assert [] == seen.cut
    assert seen.picture.startswith(b"\x89PNG")


@screens
def test_an_item_is_drawn(site: str, tmp_path: Path, width: int, *, phone: bool) -> None:
    """What became of it, and the way back."""
    key = _keys(site)[0]
    with build_opener(ProxyHandler({})).open(f"{site}/runs/{key}.json", timeout=PATIENCE) as answer:
        stash_id = next(each["stash_id"] for each in json.load(answer)["recalls"] if each["outcome"] == "hit")
    seen = look(f"{site}/runs/{key}/items/{stash_id}", tmp_path, width, phone=phone)
    assert [] == seen.problems
    assert "a program asked for it by" in seen.html
    assert seen.width <= seen.screen == width
    assert [] == seen.cut


def test_its_style_is_applied(site: str, tmp_path: Path) -> None:
    """The content policy lets the page's own style through: without it nothing would be side by side."""
    seen = look(f"{site}/runs", tmp_path, 1_300)
    assert any(urlsplit(each).path == "/style.css" for each in seen.requested)
    assert [] == seen.problems
