"""The bounds of what the sidecar keeps: each with its name, its default and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on runs and on what they keep. Bytes, seconds and tokens, as the names say."""

    stash_bytes: int = 268_435_456
    """Originals of all runs together, as held: 256 MiB fits a small pod beside the process's own 100."""
    run_stash_bytes: int = 67_108_864
    """Originals of one run, as held: four such runs fill the stash before one of them can starve the others."""
    time_to_live: float = 3_600.0
    """Seconds that an original is kept after it was last received or retrieved; few turns take an hour."""
    runs: int = 10_000
    """Runs remembered; past it the one idle for longest is forgotten."""
    run_messages: int = 100_000
    """Messages in one prompt; a hundred times what the longest recorded run holds."""
    default_window: int = 128_000
    """Tokens of a window where neither the agent nor the table of known models tells."""
    run_items: int = 250_000
    """Items in one prompt: more than two for each message that it may have; each costs about 15 us the first time."""
    memory_bytes: int = 536_870_912
    """What all runs keep beside their originals, estimated: last prompts, ledgers, indexes, records. 512 MiB holds a
    hundred and fifty runs of a megabyte."""
    process_bytes: int = 0
    """What the process may take in all. 0: the container's limit, if it has one, as nobody knows better. A prompt that
    may need more than is left is refused before anything is done for it."""
    revision_bytes: int = 65_536
    """Bytes of a revision; past it the state is left out and a fresh process decides anew."""


@dataclass(frozen=True, slots=True)
class RecallLimits:
    """The bounds of recall by the model: each with its default and the reason for it."""

    page_tokens: int = 4_000
    """Tokens of one page of a retrieval: a few per cent of a common window."""
    repeats: int = 3
    """Times that a model is shown the same range of the same content; a fourth time it is told that it has it. A loop
    of retrieve, trim, retrieve once ran for 24 minutes."""
