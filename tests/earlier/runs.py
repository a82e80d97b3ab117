"""Runs that a version of the sidecar has begun, kept in files: what the next version needs to go on with them."""

from __future__ import annotations

import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from prompt_sidecar.engine.runs.archive import Archive
from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from tests.conformance.case import Body
from tests.conformance.table import CASES
from tests.promises.engine import Engine
from tests.promises.played import Played

T = TypeVar("T", bound=msgspec.Struct)

HERE: Final = Path(__file__).parent
MADE: Final = {
    5: HERE / "made_by_2bf5170",
    7: HERE / "made_by_2489d6e9",
    8: HERE / "made_by_5e6d2254",
    9: HERE / "made_by_83ac01ae",
}
"""What a commit has made, by the version of its rules."""
KEY: Final = b"the key of all versions, thirty-two bytes and more"
POLICY: Final[Mapping[str, object]] = {"registry_share": 0.02}
BOUND: Final = ("bound", "converse")
"""Names of the providers that check thinking, as `tests.conformance.replaying` has them."""


class Step(msgspec.Struct, frozen=True):
    """One model call of a run with bound thinking."""

    given: list[str]
    """Messages that the agent adds before it, as JSON."""
    answer: list[str]
    """What the model answered, before the provider signed its thinking."""


class Kept(msgspec.Struct, frozen=True):
    """A run that was begun: what was sent, what came back, and what the agent carries."""

    format: str
    masked: bool
    limit: int
    """Tokens."""
    body: Body
    """The whole run, as the agent would send it at its end."""
    length: int
    """Messages that were sent when the revision was made."""
    returned: str
    """The prompt that was returned then."""
    revision: bytes

    def play(self) -> Played:
        """The run, to be played turn by turn."""
        return Played(CASES[self.format], self.body, self.limit, "cache_first", bare=False, policy=POLICY)

    def engine(self, archive: Archive | None = None) -> Engine:
        """A process that has not seen the run."""
        return engine(self.limit, masked=self.masked, archive=archive)


class KeptBound(msgspec.Struct, frozen=True):
    """A run that was begun with a model that binds its thinking."""

    judge: str
    """The provider that checks it."""
    limit: int
    returned: list[str]
    """The prompts so far, the newest last."""
    done: list[Step]
    """The model calls that these were for."""
    rest: list[Step]
    revision: bytes


class KeptStore(msgspec.Struct, frozen=True):
    """What a store held of a run."""

    run: Kept
    hashes: dict[str, dict[str, bytes]]
    """Fields and values by key. Names of keys and fields are text of one byte a character."""
    sets: dict[str, dict[str, float]]
    """Members of sorted sets with their scores, by key."""
    originals: dict[str, bytes]
    """By stash id."""
    tasks: list[str]
    calls: int


def engine(limit: int, *, masked: bool, archive: Archive | None = None) -> Engine:
    """A process that has not seen any run."""
    guard = GuardOptions(mode=ENFORCE) if masked else GuardOptions()
    return Engine(limit=limit, policy=POLICY, key=KEY, guard=guard, archive=archive)


def save(path: Path, made: msgspec.Struct) -> None:
    """Write a file."""
    path.write_bytes(lzma.compress(msgspec.json.encode(made), preset=9))


def load(path: Path, kind: type[T]) -> T:
    """Read a file."""
    return msgspec.json.decode(lzma.decompress(path.read_bytes()), type=kind)


def present(rules: int) -> list[str]:
    """Names of the files that were made under these rules."""
    return sorted(path.name for path in MADE[rules].glob("*.json.xz"))


def named(value: bytes) -> str:
    """A name in the store as text."""
    return value.decode("latin-1")


def raw(name: str) -> bytes:
    """A name in the store as it is there."""
    return name.encode("latin-1")
