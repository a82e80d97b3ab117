"""Pictures of dashboards: the data of every panel from a live Prometheus, painted by Grafana's own front-end packages.

The folder `render/` holds the page and the program that photographs it. It is built in the cache, as its packages take
half a gigabyte; their versions are exact, so that a picture changes when a dashboard does and not by itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.harness.components import CACHE, ROOT, Missing
from tests.lab.harness.pictures import save
from tests.lab.observe.dashboards import Dashboard, Moment, Panel, Target, step_for, substitute
from tests.lab.observe.stack import Prometheus

SOURCE = ROOT / "tests" / "lab" / "observe" / "render"
FRESH = CACHE / "observe"
WIDTH = 1600
"""Pixels of a picture: panels a third as wide keep their legends."""
COLORS = (255, 128, 96, 64, 48)
"""Of a picture's palette: dashboards have few, and a palette takes a third of the bytes. The first that makes a picture
small enough."""
MOST_BYTES = 300_000
"""Of one picture in the repository."""
_COLUMNS = 24
_PIXELS_A_POINT = 3


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that was taken, and what is wrong with it."""

    path: Path
    problems: Sequence[str]


def build(say: Callable[[str], None]) -> Path:
    """Build the page in the cache, once for each state of its source; return the folder.

    Raises:
        Missing: Node.js is not there, or its packages cannot be had.
    """
    sources = sorted(path for path in SOURCE.rglob("*") if path.is_file())
    state = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    folder = CACHE / "render"
    stamp = folder / ".built"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == state:
        return folder
    if shutil.which("npm") is None:
        raise Missing("npm is not on the PATH; Node.js 20 or newer paints the dashboards")
    packages = folder / "package.json"
    before = packages.read_bytes() if packages.is_file() else b""
    shutil.copytree(SOURCE, folder, dirs_exist_ok=True)
    if before != packages.read_bytes() or not (folder / "node_modules").is_dir():
        say("installing Grafana's front-end packages in .cache/render, half a gigabyte; this takes a minute or two ...")
        _node(
            folder,
            "npm",
            "install",
            "--no-package-lock",
            "--ignore-scripts",
            "--legacy-peer-deps",
            "--no-audit",
            "--no-fund",
        )
    say("building the page that paints dashboards ...")
    _node(folder, "npm", "run", "build")
    stamp.write_text(state, encoding="utf-8")
    return folder


def _node(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"`{' '.join(command)}` failed in {folder}:\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}")


def take(built: Path, pages: Path, out: Path) -> Iterator[Picture]:
    """Photograph every page of a folder; the pictures are compressed."""
    out.mkdir(parents=True, exist_ok=True)
    command = ["node", "shoot.mjs", str(pages), str(out)]
    with subprocess.Popen(command, cwd=built, stdout=subprocess.PIPE, text=True, env=_without_proxy()) as shooting:
        assert shooting.stdout is not None
        try:
            for line in shooting.stdout:
                message = json.loads(line)
                path = out / message["name"]
                save(path.read_bytes(), path, *COLORS, most_bytes=MOST_BYTES)
                large = [f"{path.name} has {size} bytes"] if (size := path.stat().st_size) > MOST_BYTES else []
                yield Picture(path, [*message["problems"], *large])
        finally:
            shooting.terminate()
    if shooting.returncode:
        raise Missing(f"the browser failed with code {shooting.returncode}; what it said stands above")


def _without_proxy() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def page(dashboard: Dashboard, prometheus: Prometheus, moment: Moment) -> dict[str, Any]:
    """What the page needs to paint a dashboard: its panels, each with Prometheus's answers."""
    shown = [
        {"name": variable["name"], "label": variable.get("label") or variable["name"], "shown": _shown(variable)}
        for variable in dashboard.raw.get("templating", {}).get("list", ())
        if not variable.get("hide")
    ]
    return {
        "width": WIDTH,
        "theme": "dark",
        "from": moment.start,
        "to": moment.end,
        "dashboard": {"title": dashboard.raw["title"], "links": dashboard.raw.get("links", [])},
        "variables": shown,
        "panels": [
            dict(panel.raw) | {"answers": answers(dashboard, panel, prometheus, moment)} for panel in dashboard.panels()
        ],
    }


def answers(dashboard: Dashboard, panel: Panel, prometheus: Prometheus, moment: Moment) -> list[dict[str, Any]]:
    """Prometheus's answers to a panel's queries, as its HTTP interface gives them."""
    columns = panel.raw.get("gridPos", {}).get("w", _COLUMNS)
    points = max(WIDTH * columns // _COLUMNS // _PIXELS_A_POINT, 1)
    step = step_for(moment.end - moment.start, points, moment.scrape_interval)
    dense = Moment(moment.start, moment.end, step, moment.scrape_interval)
    values = dashboard.values(prometheus, dense)
    return [_answer(target, values, prometheus, dense) for target in panel.targets]


def _answer(target: Target, values: Mapping[str, str], prometheus: Prometheus, moment: Moment) -> dict[str, Any]:
    query = substitute(target.expression, values)
    request = {
        "refId": target.ref_id,
        "legendFormat": substitute(target.legend, values),
        "instant": target.instant,
        "format": target.format,
        "step": moment.step,
    }
    if target.instant:
        data = prometheus.api("query", query=query, time=moment.end)
        vector = data["resultType"] == "vector"
        return request | {"result": data["result"] if vector else [{"metric": {}, "value": data["result"]}]}
    # Points stand on multiples of the step, as in Grafana, so that a refresh does not shift them.
    start = moment.start - moment.start % moment.step
    data = prometheus.api("query_range", query=query, start=start, end=moment.end, step=moment.step)
    return request | {"result": data["result"]}


def _shown(variable: Mapping[str, Any]) -> str:
    """What a variable's box says: everything is chosen, and a data source has its kind's name."""
    if variable["type"] == "datasource":
        return str(variable["query"]).capitalize()
    if variable.get("includeAll"):
        return "All"
    current = variable.get("current", {})
    return str(current.get("text") or current.get("value") or variable.get("query", ""))
