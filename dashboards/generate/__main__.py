"""Write the dashboards and rules, or tell which are not current.

Usage: python -m dashboards.generate [--check] [--into DIR] [--runbooks ADDRESS]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from dashboards.generate.fleet import FLEET_BOARD
from dashboards.generate.health import HEALTH
from dashboards.generate.kubernetes import prometheus_rule
from dashboards.generate.overview import OVERVIEW
from dashboards.generate.recall import RECALL
from dashboards.generate.render import ADMIN, render
from dashboards.generate.rules import RUNBOOKS, alerts_file, recording_file
from dashboards.generate.trimming_and_cache import TRIMMING_AND_CACHE

HOME: Final = Path(__file__).parents[1]
BOARDS: Final = (OVERVIEW, TRIMMING_AND_CACHE, RECALL, HEALTH, FLEET_BOARD)


def files(runbooks: str = RUNBOOKS, admin: str = ADMIN) -> dict[str, str]:
    """Return every generated file, by its path under dashboards/."""
    return {
        **{f"{board.name}.json": render(board, admin) for board in BOARDS},
        "rules/recorded.yaml": recording_file(),
        "rules/alerts.yaml": alerts_file(runbooks, admin),
        "kubernetes/prometheus-rule.yaml": prometheus_rule(runbooks, admin),
    }


def stale(home: Path) -> list[str]:
    """Return what is wrong with the files of a folder: lines that name a file and say what it is."""
    current = files()
    patterns = ("*.json", "rules/*.yaml", "kubernetes/prometheus-rule.yaml")
    found = {path.relative_to(home).as_posix() for pattern in patterns for path in home.glob(pattern)}
    return [
        *(f"{name} is not there" for name in sorted(set(current) - found)),
        *(f"{name} is made by nothing" for name in sorted(found - set(current))),
        *(
            f"{name} is not what dashboards/generate makes"
            for name in sorted(found & set(current))
            if (home / name).read_text(encoding="utf-8") != current[name]
        ),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dashboards.generate", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the files are not current")
    parser.add_argument("--into", type=Path, default=HOME, metavar="DIR", help="where to write (default: dashboards/)")
    parser.add_argument(
        "--runbooks",
        default=RUNBOOKS,
        metavar="ADDRESS",
        help="what precedes the name of an alert's page, such as https://wiki.example.com/ (default: %(default)s)",
    )
    parser.add_argument(
        "--admin",
        default=ADMIN,
        metavar="ADDRESS",
        help="where people reach admin.listen, for links from alerts and boards to runs (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    if options.check:
        lines = stale(options.into)
        for line in lines:
            sys.stderr.write(f"dashboards: {line}\n")
        if lines:
            sys.stderr.write("Run make dashboards, and commit what it wrote.\n")
        return 1 if lines else 0
    for name, content in files(options.runbooks, options.admin).items():
        path = options.into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
