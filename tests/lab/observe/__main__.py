"""`make observe`: see the dashboards with real data, on a machine without containers.

Starts a real Prometheus, the OpenTelemetry collector rotel, Envoy, a store and three sidecars on loopback, lets agents
work for some minutes through all doors, breaks the provider, the store and the collector meanwhile, and paints every
dashboard of dashboards/ with Grafana's own front-end packages into .cache/observe/; with --update into docs/images/.
All that it starts ends with it, on Ctrl-C too; all that it fetches stays in .cache/.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tests.lab.harness import components
from tests.lab.harness.beside import beside
from tests.lab.harness.pictures import IMAGES
from tests.lab.harness.processes import NotStarted, Programs
from tests.lab.harness.tables import INTERRUPTED, options, sorry
from tests.lab.observe import dashboards, pictures
from tests.lab.observe.dashboards import Moment
from tests.lab.observe.load import Failed, Load, Pace
from tests.lab.observe.stack import SCRAPE_SECONDS, Prometheus, QueryFailed
from tests.lab.observe.whole import Whole, whole

WARM_UP = 15.0
"""Seconds at the start that no picture shows: the first rates need a few scrapes."""
SECONDS_A_LINE = 15.0
LABEL_STEP = 30.0
"""Seconds between ticks of a time axis, of which shorter steps are parts."""
LABEL_ROOM = 13.5
"""Seconds after such a tick: some after the last tick of shorter steps, too."""
SEED = 7


def main(arguments: Sequence[str] | None = None) -> int:
    """Observe; return the exit code: 0 if every picture is as it should be."""
    asked = _arguments(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):  # SIGINT too: a shell has programs in the background ignore it
        signal.signal(number, _end)
    try:
        with ExitStack() as opened:
            folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="observe-")))
            return _observe(asked, folder, opened.enter_context(Programs(folder)), opened)
    except (components.Missing, NotStarted, Failed, QueryFailed, OSError) as error:
        return sorry("observe", error)
    except KeyboardInterrupt:
        return sorry("observe", "interrupted; all that was started has ended", INTERRUPTED)


def _observe(asked: argparse.Namespace, folder: Path, programs: Programs, opened: ExitStack) -> int:
    # What may be missing is looked for first: nobody waits minutes to learn of it.
    program, rotel = components.prometheus(), components.rotel()
    built = None if asked.no_pictures else pictures.build(_say)
    everything = whole(programs, folder, opened, (program, rotel), asked.seed)
    sidecars, others, prometheus = everything.sidecars, everything.others, everything.prometheus
    _say(f"Prometheus: {prometheus.url}; sidecars: {', '.join(each.address for each in (*sidecars, others.sidecar))}")
    _say(f"runs: {others.pages}/runs")
    load = Load(sidecars, Pace(asked.minutes * 60), asked.seed)
    start = time.time()
    _work(everything, load, asked.minutes * 60)
    end = last_label_fits(time.time())
    moment = Moment(min(start + WARM_UP, end - 1), end, SCRAPE_SECONDS, SCRAPE_SECONDS)
    _say_facts(load)
    for agent in others.through:
        _say(f"{agent.name}: {agent.answered} prompts answered{''.join(f'; {each}' for each in agent.problems[:3])}")
    problems = 0 if built is None else _paint(asked, prometheus, moment, built, folder)
    if asked.stay:
        _say(f"{prometheus.url} stays until Ctrl-C")
        threading.Event().wait()
    return 1 if problems else 0


def last_label_fits(now: float) -> float:
    """Return the last time by `now` at which the time axis of a panel may end.

    The label of a tick at the very end would be clipped. Ticks stand on multiples of 5, 10, 15 or 30 seconds, so all of
    them are some seconds before this end.
    """
    return (now - LABEL_ROOM) // LABEL_STEP * LABEL_STEP + LABEL_ROOM


def _work(everything: Whole, load: Load, seconds: float) -> None:
    """Run the load, and tell every few seconds how far it is."""
    began = time.monotonic()

    def progress(over: threading.Event) -> None:
        while not over.wait(SECONDS_A_LINE):
            values = {metric.name: value for metric, labels, value in load.facts if not labels}
            runs = int(values.get("prompt_sidecar.runs.started", 0))
            _say(f"{time.monotonic() - began:4.0f} of {seconds:.0f} s; {runs} runs so far")

    with beside(progress):
        everything.work(load, seconds)


def _say_facts(load: Load) -> None:
    """What the agents were told, in one line."""
    sums = {(metric.name, *sorted(labels.values())): value for metric, labels, value in load.facts}
    before, after = (
        sum(
            value
            for (name, *labels), value in sums.items()
            if name == "prompt_sidecar.prompt.tokens" and state in labels
        )
        for state in ("before", "after")
    )
    _say(f"the agents sent {before:,.0f} tokens and got {after:,.0f} back")


def _paint(asked: argparse.Namespace, prometheus: Prometheus, moment: Moment, built: Path, folder: Path) -> int:
    """Paint every dashboard; return how many things are wrong."""
    pages = folder / "pages"
    pages.mkdir()
    found = dashboards.all_dashboards(asked.dashboards)
    if not found:
        raise components.Missing(f"there is no dashboard in {asked.dashboards}")
    for dashboard in found:
        page = pictures.page(dashboard, prometheus, moment)
        (pages / f"{dashboard.name}.json").write_text(json.dumps(page), encoding="utf-8")
        if asked.keep_pages:
            asked.keep_pages.mkdir(parents=True, exist_ok=True)
            (asked.keep_pages / f"{dashboard.name}.json").write_text(json.dumps(page), encoding="utf-8")
    problems = 0
    for picture in pictures.take(built, pages, asked.out):
        _say(f"{picture.path}, {picture.path.stat().st_size // 1000} kB")
        for problem in picture.problems:
            problems += 1
            _say(f"    {problem}")
    _say("every panel has data" if not problems else f"{problems} problems")
    return problems


def _say(line: str) -> None:
    print(line, flush=True)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Leave as on Ctrl-C, so that what was started is ended."""
    del number, frame
    raise KeyboardInterrupt


def _folder(text: str) -> Path:
    """A folder as it is called from any other: the browser is started in one of its own."""
    return Path(text).absolute()


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = options("python -m tests.lab.observe", __doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=3.0, help="how long the agents work (default: 3)")
    add("--seed", type=int, default=SEED, help="of the histories and of chance")
    add("--no-pictures", action="store_true", help="only the load: no Node.js and no browser is needed")
    add("--stay", action="store_true", help="leave Prometheus running at the end, to look at it, until Ctrl-C")
    add("--dashboards", type=Path, default=dashboards.FOLDER, metavar="FOLDER", help="where the dashboards are")
    into = parser.add_mutually_exclusive_group()
    fresh = "where the pictures go (default: .cache/observe)"
    into.add_argument("--out", type=_folder, default=pictures.FRESH, metavar="FOLDER", help=fresh)
    update = "overwrite the pictures of the documents, in docs/images"
    into.add_argument("--update", dest="out", action="store_const", const=IMAGES, help=update)
    add("--keep-pages", type=Path, metavar="FOLDER", help="keep the data of each picture there, as JSON")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
