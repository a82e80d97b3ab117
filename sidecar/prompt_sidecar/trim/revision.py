"""Revisions: the state of the decisions as bytes that an agent can carry to a process that has not seen the run.

A fresh process that is sent the untrimmed history under constant inputs makes the same decisions anyway. If inputs
changed on the way, or the agent branched, it could not; so a revision states the decision about each item, not how it
was reached. It is opaque to the agent and signed: a process accepts it only for the run and history that it was made
for. Everyone who receives it can read it, so it holds texts only as digests made with the run's key.

    tag (16 bytes, keyed)  version (1)  run (8)  length, chain (16)  own text (n × 8)  state (deflated)

A revision of an earlier version is read back to the oldest in `_LOADERS`: its decisions stay, so an upgrade does not
change the prompts of running agents. A revision of a later version is ignored, as is one that does not match: the run's
decisions are then made again.

The state is a list of JSON numbers, deflated: a run with 500 trimmed items takes about 2 kB.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from hashlib import sha256
from hmac import compare_digest
from typing import Final

import msgspec

from prompt_sidecar.trim import own_text
from prompt_sidecar.trim.earlier import load_5, load_6
from prompt_sidecar.trim.ids import sign
from prompt_sidecar.trim.ledger import STATE, Ledger
from prompt_sidecar.trim.ledger.decisions import Fit

_TAG: Final = 16
RULES: Final = 10
"""Version of the rules that decisions follow, and of a revision's content. It is raised where either changes so that an
older version could not go on; the code that reads the previous version then moves to `prompt_sidecar.trim.earlier`."""
RULES_9: Final = 9
"""First version of which a run condenses by version 2, leaves small results whole at cuts, says of dropped iterations
how many at least, counts framing in the share of the oldest, and has room for our own text that follows from the limit
as it is before any report."""
RULES_10: Final = 10
"""First version of which a run's labels list names, where the registry stays as it is."""
COMPACTED: Final = 7
"""First version that does not change what precedes a provider's compaction."""
WINDOWED: Final = 7
"""First version whose revisions carry the windows and the ceiling that a run began with."""
DIRECTIVES: Final = own_text.ALL_DIRECTIVES
"""All directives that a run can have, none included; a revision refers to one by its index."""
MAX_STATE_BYTES: Final = 8_388_608
"""Most bytes of a decompressed state. A signed revision cannot be a decompression bomb; this enforces it."""


class Revision(msgspec.Struct, frozen=True, array_like=True):
    """An opened revision."""

    run: bytes
    length: int
    """Records of the untrimmed history; the last evaluation saw all of them."""
    chain: bytes
    own: list[bytes]
    """Keyed digests of our own messages in the prompt that this revision came with."""
    state: bytes
    directives: int = 0
    """Index into `DIRECTIVES` of the run's directives; later inputs do not change them."""
    registry_room: int = 0
    """Token budget of the registry when it was last written."""
    closing_room: int = 0
    """Token budget of the registry's end at that time."""
    factor: float = 1.0
    """The factor of token counts that was in force."""
    opaque_factor: float = 1.0
    """The factor for encrypted text."""
    bound: bool = False
    """Whether reasoning was treated as bound to its prompt."""
    learned_limit: int = 0
    """The limit learned from provider errors; 0 if there is none."""
    rules: bytes = b""
    """Digest of the guard's rules by which the history is masked; empty if it is not."""
    ids: list[tuple[int, int, str]] = msgspec.field(default_factory=list)
    """Message, item and id of what was trimmed before its message was masked."""
    used: tuple[int, float, int] = (0, 0.0, 0)
    """The run's use: input tokens, cost, model calls."""
    version: int = RULES
    """Version of the rules that the decisions follow."""
    note_waits: bool = False
    """Whether what a note says waits for the registry in this run; see `prompt_sidecar.providers.gpt`."""
    windows: list[tuple[bytes, int, int, int, int]] = msgspec.field(default_factory=list)
    """The windows found for the models of the run's prompts (`engine/steps/windows.py`). A revision of version 6 or 5
    has none."""
    ceiling: int | None = None
    """The settings' `policy.ceiling_tokens` at the run's first prompt; None if unknown."""
    results_by_name: bool = False
    """Whether the texts of one result are numbered in the order of their names. A revision without it numbers them as
    they were sent (`Format.as_sent`), and so does its run to the end."""
    supersedes: bool = False
    """Whether texts that frameworks inject in mid-run are clipped once a later one supersedes them. Before version 8
    they were not, and a run that began then keeps it so."""
    began_under: int = 8
    """Version of the rules that the run began under: it keeps what has changed since. Before version 9 it was not
    saved, and nothing that has changed since depends on which it was."""


# Created before threads start: msgspec crashes the process where two threads decode a type for the first time at once.
_revision: Final = msgspec.msgpack.Decoder(Revision)


def _load(ledger: Ledger, plain: bytes, fit: Fit | None) -> None:
    ledger.load(STATE.decode(plain), fit)


_LOADERS: Final[Mapping[int, Callable[[Ledger, bytes, Fit | None], None]]] = {
    5: load_5,
    6: load_6,
    7: _load,
    8: _load,
    9: _load,
    RULES: _load,
}
"""The functions that load a state, by the version that wrote it."""


def run_digest(of_run: bytes) -> bytes:
    """Digest of the run in a revision, from which the run id cannot be derived."""
    return sha256(of_run).digest()[:8]


def pack_state(ledger: Ledger) -> bytes:
    """Encode the decisions."""
    return zlib.compress(msgspec.msgpack.encode(ledger.save()), 1)


def seal(key: bytes, revision: Revision) -> bytes:
    """Encode and sign."""
    content = bytes([revision.version]) + msgspec.msgpack.encode(revision)
    return sign(key, content) + content


def unseal(key: bytes, sealed: bytes) -> Revision | None:
    """Open a revision. Returns None if this key did not sign it, or if this version does not read its rules."""
    tag, content = sealed[:_TAG], sealed[_TAG:]
    if len(tag) < _TAG or not compare_digest(sign(key, content), tag) or content[0] not in _LOADERS:
        return None
    return msgspec.structs.replace(_revision.decode(content[1:]), version=content[0])


def apply_state(ledger: Ledger, revision: Revision, fit: Fit | None = None) -> bool:
    """Load a revision's decisions into a ledger of the same history about which nothing was decided.

    `fit` adapts elisions to texts that have been masked since; None if no text has. Returns False if the state is too
    large.
    """
    inflater = zlib.decompressobj()
    plain = inflater.decompress(revision.state, MAX_STATE_BYTES)
    if inflater.unconsumed_tail:
        return False
    _LOADERS[revision.version](ledger, plain, fit)
    return True
