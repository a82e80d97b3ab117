"""One row for each model out of several sources' entries, and what they disagree on.

A model's row has, fact by fact, our own value, else LiteLLM's, else that of genai-prices, each from the model's maker;
where no source has it from its maker, the window that most hosts give, and no price. A host that offers a model
otherwise than its maker has a row of its own, under the name with which it is asked for.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from prompt_sidecar.providers.catalogue import forms
from tests.lab.catalogue.sources import Entry, Price

_ROUND: Final = frozenset({131_072, 200_000, 262_144, 400_000, 1_000_000, 1_048_576, 1_050_000})
"""Windows that are the sum of the most input and the most output where a table gives the former."""
_OPENAI_OUTPUT: Final = 128_000
_CAPPED: Final = frozenset({400_000, 1_050_000})
"""Windows of OpenAI's models that take no more input than the window less 128,000: "Maximum input tokens" there."""
_NAMED: Final = re.compile(r"[-\d]")
"""In each model's name; what has neither is a provider's, or an alias of whatever is newest."""
_ORDER: Final = ("own", "litellm", "genai-prices")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the catalogue."""

    name: str
    window: int | None
    most_input: int | None
    most_output: int | None
    price: Price
    tiers: tuple[tuple[int, Price], ...]
    mid_run_system: bool

    def line(self) -> str:
        """Return the row as the file has it."""
        tiers = ";".join(f"{above}:{_numbers(price)}" for above, price in self.tiers)
        sizes = (str(size or "") for size in (self.window, self.most_input, self.most_output))
        return "\t".join((self.name, *sizes, _numbers(self.price), tiers, "s" if self.mid_run_system else ""))


@dataclass(slots=True)
class Differences:
    """Where sources differ, by kind of fact: the name, what each says, and what was chosen."""

    found: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def note(self, kind: str, name: str, claims: Mapping[str, object], chosen: object) -> None:
        """Add one."""
        values = ", ".join(f"{source} {value}" for source, value in claims.items())
        self.found[kind].append(f"{name}: {values}; chosen {chosen}")


def rows(entries: Iterable[Entry], differences: Differences) -> list[Row]:
    """Return the rows in the order of their names."""
    groups: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        groups[list(forms(entry.name))[-1]].append(entry)
    made: dict[str, Row] = {}
    for plain, group in groups.items():
        made[plain] = _plain_row(plain, group, differences)
    for plain, group in groups.items():
        for row in _other_rows(made[plain], group):
            made.setdefault(row.name, row)
    known = (row for row in made.values() if (row.window or row.price != Price()) and _NAMED.search(row.name))
    return sorted(known, key=lambda row: row.name + "\t")


def _plain_row(plain: str, group: Sequence[Entry], differences: Differences) -> Row:
    makers = sorted((entry for entry in group if entry.maker), key=lambda entry: (_rank(entry), len(entry.name)))
    hosts = [entry for entry in group if not entry.maker]
    window, most_input = _sizes(plain, makers, differences) if makers else (None, None)
    if window is None:
        window = _most_common(entry.window or entry.most_input for entry in hosts)
    priced = _first(makers, lambda entry: entry if entry.price.input is not None else None)
    _compare_prices(plain, makers, differences)
    return Row(
        plain,
        window,
        most_input,
        _first(makers, lambda entry: entry.most_output) or _most_common(entry.most_output for entry in hosts),
        priced.price if priced else Price(),
        priced.tiers if priced else (),
        mid_run_system=any(entry.mid_run_system for entry in makers),
    )


def _rank(entry: Entry) -> int:
    return _ORDER.index(entry.source)


def _sizes(plain: str, makers: Sequence[Entry], differences: Differences) -> tuple[int | None, int | None]:
    """Window and input cap. LiteLLM's "max_input_tokens" is either; the other table and the most output tell which."""
    for entry in makers:
        if entry.source == "own" and entry.window:
            return entry.window, entry.most_input
    table = _first(makers, lambda entry: entry if entry.source == "litellm" and entry.most_input else None)
    other = _first(makers, lambda entry: entry.window if entry.source == "genai-prices" else None)
    if table is None or table.most_input is None:
        return other, _openai_cap(plain, other)
    total = table.most_input + (table.most_output or 0)
    if table.most_output and table.most_input != table.most_output and (total == other or total in _ROUND):
        sizes: tuple[int, int | None] = (total, table.most_input)
    else:
        sizes = table.most_input, _openai_cap(plain, table.most_input)
    if other and other != sizes[0]:
        differences.note("window", plain, {"litellm": sizes[0], "genai-prices": other}, sizes[0])
    return sizes


def _openai_cap(plain: str, window: int | None) -> int | None:
    return window - _OPENAI_OUTPUT if plain.startswith("gpt-") and window in _CAPPED else None


def _compare_prices(plain: str, makers: Sequence[Entry], differences: Differences) -> None:
    claims = {
        entry.source: entry.price for entry in reversed(makers) if entry.name == plain and entry.price.input is not None
    }
    for kind in ("input", "cached", "written", "output"):
        prices = {source: getattr(price, kind) for source, price in claims.items()}
        if len({price for price in prices.values() if price is not None}) > 1:
            differences.note(f"price of {kind}", plain, prices, next(iter(prices[s] for s in _ORDER if s in prices)))


def _other_rows(plain: Row, group: Sequence[Entry]) -> Iterator[Row]:
    """Give rows of snapshots and hosts that differ from the model's own."""
    for entry in group:
        if entry.name == plain.name or entry.source != "litellm":
            continue
        row = replace(plain, name=entry.name)
        size = entry.most_input
        if size and size not in (plain.window, plain.most_input):
            row = replace(row, window=size, most_input=None, most_output=entry.most_output)
        if entry.price.input is not None and _differ(entry.price, plain.price):
            row = replace(row, price=entry.price, tiers=entry.tiers)
        if replace(row, name=plain.name) != plain:
            yield row


def _differ(one: Price, other: Price) -> bool:
    return (one.input, one.output) != (other.input, other.output)


def _first(entries: Sequence[Entry], pick: Callable[[Entry], T | None]) -> T | None:
    return next((found for entry in entries if (found := pick(entry)) is not None), None)


def _most_common(values: Iterable[int | None]) -> int | None:
    counts = Counter(value for value in values if value)
    return max(counts, key=lambda value: (counts[value], value), default=None)


def _numbers(price: Price) -> str:
    numbers = (price.input, price.cached, price.written, price.output)
    return ",".join("" if number is None else f"{number:.6g}" for number in numbers) if price != Price() else ""
