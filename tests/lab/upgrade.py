"""This version and an earlier one side by side, as in a rolling upgrade, on a real Valkey.

An agent's calls go to either at random. Both must answer, make the same edits, and give back every original, whichever
of them took it out. Then one goes and the other takes over its runs: the upgrade, and the rollback. The earlier version
is taken from git, and runs with the packages of this one.
"""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console

from prompt_sidecar.client import Client, ClientError
from tests.cli.running import PATIENCE
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, history
from tests.lab.harness.components import ROOT
from tests.lab.harness.servers import sidecar
from tests.lab.harness.tables import options, sorry, table
from tests.store.sharing import running_valkey

RUNS: Final = 12
ITERATIONS: Final = 25
SEED: Final = 7
WHOLE: Final = 100_000
"""Tokens of a page: each original is one."""
PERFECT: Final = ("refused", "other edits", "lost", "wrong bytes", "no figures")
"""Counts that must be zero."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 0: nothing was lost."""
    parser = options("python -m tests.lab.upgrade", __doc__)
    parser.add_argument("commit", metavar="COMMIT", help="the earlier version, as git knows it")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, running_valkey() as store:
        try:
            earlier = unpacked(asked.commit, Path(folder))
        except subprocess.CalledProcessError as error:
            return sorry("upgrade", error.stderr.decode().strip(), 2)
        found = Counter(dict.fromkeys(("prompts", "originals", *PERFECT), 0))
        with served(earlier, store.url) as old, served(ROOT, store.url) as new:
            side_by_side(old, new, found)
        found += taken_over("upgrade", earlier, ROOT, store.url)
        found += taken_over("rollback", ROOT, earlier, store.url)
    rows = [(what, f"{found[what]:,}") for what in dict.fromkeys((*found, *PERFECT))]
    Console().print(table("", ("calls of an agent to both versions", asked.commit), rows, left=range(2)))
    return int(any(found[what] for what in PERFECT))


def unpacked(commit: str, folder: Path) -> Path:
    """The package of a commit. Raises CalledProcessError: git does not know it."""
    command = ["git", "archive", "--format=zip", commit, "sidecar"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    with zipfile.ZipFile(io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder)
    return folder


@contextmanager
def served(tree: Path, url: str) -> Iterator[Client]:
    """A sidecar of the package in a tree, and a client of it."""
    settings = {
        "KEY": "the key of all replicas",
        "STORE__URL": url,
        "STORE__DURABILITY": "acknowledged",
        "STORE__FIRST_WAIT": "10s",
        "STORE__TIMEOUT": "10s",
        "STORE__ACKNOWLEDGE_TIMEOUT": "60s",
    }
    with (
        sidecar(settings, tree=tree) as server,
        Client(server.address, deadline=PATIENCE, fail_open=False) as client,
    ):
        yield client


def side_by_side(old: Client, new: Client, found: Counter[str]) -> None:
    """Send each prompt of some runs to both, in either order."""
    choose = random.Random(SEED)
    for number in range(RUNS):
        run_id, ids = f"both-{number}", set[str]()
        for iteration in range(1, ITERATIONS + 1):
            answers = [trimmed(client, run_id, iteration, found) for client in choose.sample((old, new), 2)]
            found["other edits"] += answers[0] != answers[1]
            ids |= set(answers[0][1])
        retrieved = [originals(client, run_id, ids, found) for client in (old, new)]
        found["originals"] += len(ids)
        found["wrong bytes"] += sum(len({each.get(stash_id) for each in retrieved}) > 1 for stash_id in ids)


def taken_over(name: str, first: Path, second: Path, url: str) -> Counter[str]:
    """Have one version go on with a run of the other, which is gone."""
    found: Counter[str] = Counter()
    with served(first, url) as client:
        for iteration in range(1, ITERATIONS + 1):
            before = trimmed(client, name, iteration, found)
        kept = originals(client, name, set(before[1]), found)
    with served(second, url) as client:
        after = originals(client, name, set(before[1]), found)
        found["other edits"] += before != trimmed(client, name, ITERATIONS, found)
    found["originals"] += len(kept)
    found["wrong bytes"] += kept != after
    return found


def trimmed(client: Client, run_id: str, iteration: int, found: Counter[str]) -> tuple[str, list[str]]:
    """The trimmed prompt, and the ids that it names."""
    found["prompts"] += 1
    try:
        made = client.trim(run_id, history(OPENAI_CHAT, iteration), context_window=LIMIT)
    except ClientError:
        found["refused"] += 1
        return "", []
    return json.dumps(made.prompt), [trim.stash_id for trim in made.trims if trim.stash_id]


def originals(client: Client, run_id: str, ids: set[str], found: Counter[str]) -> dict[str, bytes]:
    """What a version gives back for ids; its figures of the run are asked for as well."""
    kept: dict[str, bytes] = {}
    for stash_id in ids:
        try:
            kept[stash_id] = client.retrieve(run_id, stash_id, page_tokens=WHOLE).content
        except ClientError:
            found["lost"] += 1
            continue
        found["lost"] += not kept[stash_id]
    try:
        client.get_run(run_id)
    except ClientError:
        found["no figures"] += 1
    return kept


if __name__ == "__main__":
    sys.exit(main())
