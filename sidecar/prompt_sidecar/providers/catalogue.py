"""What is known of models: windows, the most input and output, and prices, by the names that agents send.

The facts are in `catalogue.tsv`, which `make catalogue` builds from maintained tables and from our own rows. A name is
looked up unchanged, then without the parts that gateways, clouds and snapshots add, one at a time: the first form with
a row gives the model's facts. A version without a row is unknown: a guess would override an agent that knows better.
Names are untrusted: none is put into a message, and any length takes microseconds.

The file is read at the first look-up, and stays one text: only rows that are looked up are parsed.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Final

MAX_NAME_CHARS: Final = 256
"""Longest name that is looked up; the longest in use, Bedrock's resource names, have about 150."""
NAMES_REMEMBERED: Final = 1_024
"""Names whose facts are cached; callers use a handful, and choose them."""
LONG_CONTEXT: Final = 1_000_000
"""Tokens of the window that the tag `[1m]` selects."""

LONG_CONTEXT_TAG: Final = "[1m]"
"""The tag in Claude Code's model names for the longer window."""
_REGION: Final = re.compile(r"^(?:us|eu|uk|apac|au|ca|sa|jp|global|us-gov)\.")
"""The region prefix of Bedrock's inference profiles."""
_VENDOR: Final = re.compile(
    r"^(?:ai21|amazon|anthropic|cohere|deepseek|google|meta|minimax|mistral|moonshot|moonshotai|nvidia|openai|qwen|writer|zai)\."
)
"""The vendor prefix of Bedrock's model ids."""
_SNAPSHOT: Final = re.compile(r"(?:-v\d+(?::\d+)?|:\d+|[-@](?:20\d{6}|20\d\d-\d\d-\d\d|\d{3,4}|latest|default))$")
"""A version of an offer or a date: `-v1:0` (Bedrock), `@20250929` (Vertex), `-2025-08-07` (OpenAI), `-002` (Google)."""
_TAG: Final = re.compile(r":[a-z][a-z0-9-]*$")
"""A tag of OpenRouter, such as `:free`."""
_DIGIT: Final = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class ModelPrices:
    """US dollars for a million tokens. None if not published."""

    input: float | None
    cached: float | None
    """For tokens read from the provider's cache."""
    written: float | None
    """For tokens written to it, if that costs more than input; with several times to live, the shortest."""
    output: float | None


@dataclass(frozen=True, slots=True)
class Tier:
    """The prices of a whole request with more input than `above` tokens."""

    above: int
    prices: ModelPrices


@dataclass(frozen=True, slots=True)
class Model:
    """What is known of one model."""

    name: str
    """Without the parts that gateways, clouds and snapshots add."""
    window: int | None
    """Tokens of prompt and answer together; if a provider documents the prompt's only, as Google does, those."""
    most_input: int | None
    """Most tokens of a prompt, if fewer than the window however short the answer."""
    most_output: int | None
    prices: ModelPrices
    tiers: tuple[Tier, ...]
    """Ascending."""
    mid_run_system: bool
    """Whether system entries may come between other messages. `prompt-sidecar models` shows it; it decides nothing, as
    the maintained tables leave it out of models that take them (claude-fable-5-2). The place of the sidecar's own text
    depends on whether the model's thinking is bound: all models that bind it accept such entries."""


@dataclass(frozen=True, slots=True)
class Built:
    """When the catalogue was built, and its sources."""

    day: str
    """In ISO 8601."""
    sources: str


@lru_cache(NAMES_REMEMBERED)
def find(name: str) -> Model | None:
    """Return what is known of the model that an agent calls `name`, or None."""
    row = _row_of(name)
    lower = name.lower()
    return None if row is None else _read(row, long_context=lower.endswith(LONG_CONTEXT_TAG) and "claude" in lower)


def row_name(name: str) -> str:
    """Return the name of the row for the model that an agent calls `name`; empty if there is none."""
    return (_row_of(name) or "").partition("\t")[0]


def _row_of(name: str) -> str | None:
    if len(name) > MAX_NAME_CHARS:
        return None
    spellings = list(forms(name.lower().removesuffix(LONG_CONTEXT_TAG)))
    return next((row for form in (*spellings, *_variants(spellings[-1])) if (row := _row(form)) is not None), None)


def forms(name: str) -> Iterator[str]:
    """Yield a name unchanged, then without added parts, one at a time; the plainest last."""
    form = name
    yield form
    while "/" in form:  # bedrock/us.anthropic.claude-sonnet-4-5, openrouter/anthropic/claude-sonnet-4.5
        form = form.partition("/")[2]
        yield form
    owner, colon, rest = form.partition(":")
    if owner == "ft":
        form = rest.partition(":")[0]  # ft:gpt-4o-mini-2024-07-18:team::id
        yield form
    elif colon and owner.isalpha():
        form = rest  # openai:gpt-4o
        yield form
    elif colon and rest and rest[0].isdigit() and not rest.isdecimal():
        form = f"{owner}-{rest}"  # gpt-oss:20b
        yield form
    for added in (_REGION, _VENDOR, _TAG, _SNAPSHOT, _SNAPSHOT):
        shorter = added.sub("", form)
        if shorter != form and shorter:
            form = shorter
            yield form
    if form.startswith("claude-") and "." in form:
        yield form.replace(".", "-")


def _variants(form: str) -> Iterator[str]:
    """Yield names that a form may be a variant of: `gpt-4o-mine` of gpt-4o, not `claude-opus-4-9` of claude-opus-4."""
    while (parts := form.rpartition("-"))[0] and _DIGIT.search(parts[2]) is None and _DIGIT.search(parts[0]):
        form = parts[0]
        yield form


@cache
def _rows() -> tuple[str, ...]:
    text = resources.files(__package__).joinpath("catalogue.tsv").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def built() -> Built:
    """Return when the catalogue was built, and its sources, from its first line."""
    with resources.files(__package__).joinpath("catalogue.tsv").open(encoding="utf-8") as file:
        day, _, sources = file.readline().removeprefix("# ").partition(". ")[0].partition(", ")
        return Built(day, sources)


def names() -> Iterator[str]:
    """Yield the names of all rows, in order."""
    return (row.partition("\t")[0] for row in _rows())


def _row(name: str) -> str | None:
    rows = _rows()
    at = bisect_left(rows, name + "\t")
    return rows[at] if at < len(rows) and rows[at].startswith(name + "\t") else None


def _read(row: str, *, long_context: bool) -> Model:
    name, window, most_input, most_output, prices, tiers, flags = row.split("\t")
    return Model(
        list(forms(name))[-1],
        LONG_CONTEXT if long_context else _whole(window),
        _whole(most_input),
        _whole(most_output),
        _prices(prices),
        tuple(_tier(tier) for tier in tiers.split(";") if tier),
        mid_run_system="s" in flags,
    )


def _whole(text: str) -> int | None:
    return int(text) if text else None


def _prices(text: str) -> ModelPrices:
    return ModelPrices(*(float(price) if price else None for price in (text or ",,,").split(",")))


def _tier(text: str) -> Tier:
    above, _, prices = text.partition(":")
    return Tier(int(above), _prices(prices))
