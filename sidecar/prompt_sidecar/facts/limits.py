"""The bounds of what the sidecar keeps, and of recall by the model."""

from __future__ import annotations

from dataclasses import dataclass, field

from prompt_sidecar.facts.known_models import Models
from prompt_sidecar.recall.found import SearchLimits
from prompt_sidecar.recall.retrieve import MAX_PAGE_TOKENS
from prompt_sidecar.values import DAY, GIB, KIB, MIB, byte_count, seconds, setting, whole


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on runs and on what they keep. Sizes are in bytes, times in seconds."""

    stash_bytes: int = setting(
        268_435_456,
        byte_count(MIB, 1024 * GIB),
        "Originals of all runs together, as held in memory; less where the container's limit leaves no room for it.",
        "256 MiB fit a small pod in addition to the process's own 100.",
    )
    run_stash_bytes: int = setting(
        67_108_864,
        byte_count(64 * KIB, 1024 * GIB),
        "Originals of one run, as held in memory; at most stash_bytes.",
        "Four such runs fill the stash before one of them can starve the others.",
    )
    original_bytes: int = setting(
        67_108_864,
        byte_count(KIB, 2 * GIB),
        "The largest original that may be taken from a prompt; what is larger is never trimmed. At most "
        "run_stash_bytes. The same for all replicas, as it decides.",
        "As large as a request may be by default.",
        advanced=True,
    )
    time_to_live: float = setting(
        3_600.0,
        seconds(1, 30 * DAY),
        "How long an original is kept after it was last received or retrieved.",
        "Few turns take an hour.",
    )
    runs: int = setting(
        10_000,
        whole(1, 10_000_000, "runs"),
        "Runs remembered; beyond it the one that was idle for longest is forgotten.",
        "It bounds how many there are; what they keep is bounded in bytes, by stash_bytes and memory_bytes.",
    )
    run_messages: int = setting(
        100_000,
        whole(10, 10_000_000, "messages"),
        "Messages in one prompt.",
        "A hundred times what the longest recorded run holds.",
        advanced=True,
    )
    default_window: int = setting(
        128_000,
        whole(256, 100_000_000, "tokens"),
        "Tokens of the context window where neither the agent nor the model's name says how many.",
        "A common window of current models (docs/windows.md).",
    )
    run_items: int = setting(
        250_000,
        whole(10, 10_000_000, "items"),
        "Items in one prompt.",
        "More than two for each message that it may have; each costs about 15 us the first time.",
        advanced=True,
    )
    memory_bytes: int = setting(
        536_870_912,
        byte_count(MIB, 1024 * GIB),
        "What all runs keep in addition to their originals, estimated: last prompts, ledgers, indexes, records; less "
        "where the container's limit leaves no room for it.",
        "512 MiB hold a hundred and fifty runs of a megabyte.",
    )
    process_bytes: int = setting(
        0,
        byte_count(0, 1024 * GIB),
        "What the process may take in all; a prompt that may need more than is left is refused before any work. 0: the "
        "container's limit, if it has one.",
        "Nobody knows the container's limit better than the container.",
    )
    revision_bytes: int = setting(
        65_536,
        byte_count(0, 64 * MIB),
        "Bytes of a revision; beyond it the state is left out, and a fresh process decides again.",
        "It travels with every prompt and answer, so it must stay small compared with them.",
        advanced=True,
    )


@dataclass(frozen=True, slots=True)
class RecallLimits:
    """Bounds on recall by the model."""

    page_tokens: int = setting(
        4_000,
        whole(200, MAX_PAGE_TOKENS, "tokens"),
        "Tokens of one page of a retrieval.",
        "A few per cent of a common window.",
    )
    repeats: int = setting(
        3,
        whole(1, 1_000, "times"),
        "How often a model is shown the same range of the same content before it is refused while the prompt holds it; "
        "the answer says at which iteration. What the prompt holds no more is shown, however often it is asked for.",
        "A loop of retrieve, trim, retrieve once ran for 24 minutes.",
    )


@dataclass(frozen=True, slots=True)
class CoreLimits:
    """All limits of the core, and facts about models for their prompts."""

    kept: Limits = field(default_factory=Limits)
    search: SearchLimits = field(default_factory=SearchLimits)
    recall: RecallLimits = field(default_factory=RecallLimits)
    journal_entries: int = 0
    """Prompts, and as many recalls, that the journal of a run keeps; 0: no journals."""
    models: Models = field(default_factory=Models)
