"""The peers: their rows, and the processes in which they trim.

A peer that cannot be installed, dies, takes too long or answers nonsense is a row that says so.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import IO, Any, Protocol

from tests.lab.harness.environments import Environment, Unavailable, first_line, variables
from tests.lab.peers.contenders import Outcome
from tests.lab.peers.material import Turn
from tests.oracle.runs import Run, dumps

PATIENCE = 300.0
"""Seconds that a peer gets for one run at one budget: twice what the slowest took on two busy cores."""
ERROR_BYTES = 65_536
"""Of what a peer writes to standard error, so much from the end is looked at for the reason of a failure."""


class Prompts(Protocol):
    """A run to trim, and what takes in the pieces of the prompts that come back."""

    @property
    def run(self) -> Run:
        """The run."""
        ...  # pragma: no cover

    @property
    def lengths(self) -> Sequence[int]:
        """Messages that each prompt sends."""
        ...  # pragma: no cover

    def piece(self, raw: bytes, *, system: bool = False) -> bytes:
        """Take in a piece of a prompt as JSON, and return its digest."""
        ...  # pragma: no cover


@dataclass(frozen=True, slots=True)
class Peer:
    """One row."""

    name: str
    key: str
    """For `--peers`, and the name of its requirements."""
    adapter: str
    options: Mapping[str, Any] = field(default_factory=dict)
    most_prompts: int = 10_000
    """Runs of more prompts are left out."""


PEERS: Sequence[Peer] = (
    Peer(
        "LangChain ClearToolUsesEdit",
        "langchain",
        "langchain_edit",
        {"trigger": 0.8, "keep": 3, "clear_at_least": 0.0},
    ),
    Peer(
        "LangChain, at least 20 %",
        "langchain",
        "langchain_edit",
        {"trigger": 0.8, "keep": 3, "clear_at_least": 0.2},
    ),
    Peer("headroom compress", "headroom", "headroom_compress"),
    Peer("LiteLLM trim_messages", "litellm", "litellm_trim"),
    Peer("Agent Framework window", "agent-framework", "agent_framework_window", {"keeps_state": True}),
    # Half a second a prompt in the middle of a long run, and minutes for the whole of one.
    Peer("Agent Framework, no state", "agent-framework", "agent_framework_window", {"keeps_state": False}, 100),
)
KEYS = tuple(dict.fromkeys(peer.key for peer in PEERS))
AT_FIRST_SIGHT: Sequence[Peer] = (
    Peer("headroom compress", "headroom", "headroom_first_sight", {"function": "compress"}),
    Peer("headroom densify", "headroom", "headroom_first_sight", {"function": "densify"}),
    Peer("Claw Compactor", "claw-compactor", "claw_compactor_first_sight"),
)
"""Those that make single results smaller, without a model and without a network."""


def run_peer(
    peer: Peer, home: Environment | Unavailable, material: Prompts, budget: int, *, patience: float = PATIENCE
) -> Outcome:
    """Return what a peer makes of a run's prompts; a failure is an outcome too."""
    if len(material.lengths) > peer.most_prompts:
        return Outcome(failure=f"left out above {peer.most_prompts} prompts: it would take minutes")
    try:
        if isinstance(home, Unavailable):
            raise home
        return _prompts(peer, home, material, budget, patience)
    except (Unavailable, OSError) as error:
        return Outcome(failure=str(error))


def _prompts(peer: Peer, home: Environment, material: Prompts, budget: int, patience: float) -> Outcome:
    job = {
        "format": material.run.format,
        "system": material.run.system,
        "messages": list(material.run.messages),
        "lengths": list(material.lengths),
        "budget": budget,
        "options": dict(peer.options),
    }
    command = [str(home.python), "-m", f"tests.lab.peers.adapters.{peer.adapter}"]
    with tempfile.TemporaryDirectory(prefix="peer-") as folder:
        log = Path(folder) / "stderr"
        with (
            log.open("wb") as errors,
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=dict(variables(home.folder.parent, Path(folder))),
                cwd=folder,
            ) as process,
        ):
            timer = Timer(patience, process.kill)
            timer.start()
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                with suppress(BrokenPipeError), process.stdin as pipe:
                    pipe.write(json.dumps(job).encode())
                outcome = read_prompts(process.stdout, material)
            except (ValueError, KeyError, IndexError, TypeError) as error:
                process.kill()
                raise Unavailable(f"its adapter wrote what cannot be read: {type(error).__name__}") from None
            finally:
                over = not timer.is_alive()
                timer.cancel()
        if outcome is None:
            raise Unavailable(f"it took more than {patience:.0f} s" if over else f"it died: {_last_words(log)}")
        return outcome


def read_prompts(lines: IO[bytes] | Sequence[bytes], material: Prompts) -> Outcome | None:
    """Return the prompts that an adapter wrote; None if it did not come to its end."""
    known: list[Any] = []
    digests: dict[tuple[int, bool], bytes] = {}
    made: list[Turn] = []
    seconds: list[float] = []
    for line in lines:
        found = json.loads(line)
        if "end" in found:
            end = found["end"]
            if len(made) != len(material.lengths):
                raise ValueError(f"{len(made)} prompts of {len(material.lengths)}")
            remarks = (end["version"], *end["remarks"])
            return Outcome(made, end["seconds"] or seconds, end["recallable"] or 0.0, remarks)
        known += found["new"]
        pieces = [(place, number < found["system"]) for number, place in enumerate(found["places"])]
        for place, system in pieces:
            if (place, system) not in digests:
                digests[place, system] = material.piece(dumps(known[place]), system=system)
        made.append(tuple(map(digests.__getitem__, pieces)))
        seconds.append(found["seconds"])
    return None


def _last_words(log: Path) -> str:
    raw = log.read_bytes()[-ERROR_BYTES:].decode(errors="replace").strip()
    return first_line(raw.splitlines()[-1] if raw else "")


def rows(keys: Sequence[str]) -> Iterator[Peer]:
    """The peers with one of these keys."""
    return (peer for peer in PEERS if peer.key in keys)
