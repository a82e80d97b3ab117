"""`prompt-sidecar models`: what is known about models by their names, and its source."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from prompt_sidecar.config.settings import Settings
from prompt_sidecar.facts.known_models import KnownModel, Models
from prompt_sidecar.providers import catalogue
from prompt_sidecar.providers.catalogue import ModelPrices
from prompt_sidecar.providers.claude import binds_thinking
from prompt_sidecar.tokens.encodings import encoding_for

_SIZES: Final = {"window": "window", "most_input": "most input", "most_output": "most output"}
_UNKNOWN: Final = "unknown"
_UNBOUND: Final = "the window"


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact, and its source."""

    value: int | None
    """Tokens, or None if not known."""
    source: str


@dataclass(frozen=True, slots=True)
class NamedModel:
    """The facts about one model name."""

    known: KnownModel | None
    facts: Mapping[str, Fact]
    encoding: str
    exact: bool
    """Whether the encoding is the model's own vocabulary."""
    thinking_bound: bool
    """Whether the model's thinking is bound to the prompt before it."""


def show(names: Sequence[str], settings: Settings, *, as_json: bool) -> tuple[str, bool]:
    """Return the text to print, and whether all names are known; without names, all known models."""
    if not names:
        return (json.dumps(_counts(settings), indent=2) if as_json else "\n".join(_summary(settings))), True
    models = Models(settings.models)
    shown = {name: _look(name, models, settings) for name in names}
    whole = all(each.known is not None for each in shown.values())
    if as_json:
        return json.dumps({name: _data(each) for name, each in shown.items()}, indent=2), whole
    return "\n\n".join("\n".join(_lines(name, each)) for name, each in shown.items()), whole


def _look(name: str, models: Models, settings: Settings) -> NamedModel:
    known = models.find(name)
    encoding, exact = encoding_for(models.alike(name))
    facts = {fact: _fact(fact, known, settings) for fact in _SIZES}
    return NamedModel(known, facts, encoding, exact, binds_thinking(models.alike(name)))


def _fact(fact: str, known: KnownModel | None, settings: Settings) -> Fact:
    value: int | None = None if known is None else getattr(known.model, fact)
    if known is not None and fact in known.set_by_table:
        setting = f"models.{json.dumps(known.table, ensure_ascii=False)}.{fact}"
        return Fact(value, settings.sources.get(setting, setting))
    if known is not None and value is not None:
        through = f", by models.{json.dumps(known.table, ensure_ascii=False)}.like" if known.like else ""
        return Fact(value, f"row {known.row} of the catalogue{through}")
    if fact == "window":
        return Fact(settings.limits.default_window, "assumed: limits.default_window")
    return Fact(None, _UNKNOWN if fact == "most_output" else _UNBOUND)


def _lines(name: str, shown: NamedModel) -> Iterator[str]:
    yield (name if name.isprintable() else json.dumps(name)) + (": not known" if shown.known is None else "")
    for fact, words in _SIZES.items():
        each = shown.facts[fact]
        if each.value is not None:
            yield f"  {words:<12} {each.value:>11,} tokens   # {each.source}"
        else:
            yield f"  {words:<12} {each.source:>11}"
    yield f"  {'counted in':<12} {shown.encoding:>11}{', its own vocabulary' if shown.exact else ', an estimate'}"
    if shown.thinking_bound:
        yield f"  {'thinking':<12} {'bound':>11} to the prompts before it"
    if shown.known is not None and shown.known.model.mid_run_system:
        yield f"  {'system':<12} {'entries':>11} may be placed between other messages"
    if shown.known is None:
        yield "  Say context_window with each prompt, or give the model a table [models] in the settings."
        return
    model = shown.known.model
    if any(asdict(model.prices).values()):
        yield f"  {'list price':<12} {_prices(model.prices)}; US dollars for a million tokens"
    for tier in model.tiers:
        yield f"  {'':<12} above {tier.above:,} tokens of input: {_prices(tier.prices)}"


def _prices(prices: ModelPrices) -> str:
    return ", ".join(f"{kind} {price:g}" for kind, price in asdict(prices).items() if price is not None)


def _data(shown: NamedModel) -> Mapping[str, object]:
    model = None if shown.known is None else shown.known.model
    return {
        "known": model is not None,
        **{fact: {"tokens": each.value, "from": each.source} for fact, each in shown.facts.items()},
        "encoding": shown.encoding,
        "exact": shown.exact,
        "thinking_bound": shown.thinking_bound,
        "mid_run_system": model is not None and model.mid_run_system,
        "list_prices": None if model is None else asdict(model.prices),
        "list_price_tiers": [] if model is None else [asdict(tier) for tier in model.tiers],
    }


def _counts(settings: Settings) -> Mapping[str, object]:
    built = catalogue.built()
    rows = [row for name in catalogue.names() if (row := catalogue.find(name)) is not None]
    return {
        "built": built.day,
        "built_from": built.sources,
        "names": len(rows),
        "windows": sum(row.window is not None for row in rows),
        "most_inputs": sum(row.most_input is not None for row in rows),
        "most_outputs": sum(row.most_output is not None for row in rows),
        "prices": sum(row.prices.input is not None for row in rows),
        "settings": list(settings.models),
    }


def _summary(settings: Settings) -> Iterator[str]:
    counts = _counts(settings)
    yield f"{counts['names']:,} names, as of {counts['built']}, from {counts['built_from']}."
    yield (
        f"Known are the windows of {counts['windows']:,} of them, the most input of {counts['most_inputs']:,} where it "
        f"is less, the most output of {counts['most_outputs']:,}, and the prices of {counts['prices']:,}."
    )
    if settings.models:
        own = ", ".join(json.dumps(name, ensure_ascii=False) for name in settings.models)
        yield f"The settings say more of {len(settings.models):,}: {own}."
    yield f"Any other model has limits.default_window, {settings.limits.default_window:,} tokens."
    yield "prompt-sidecar models NAME shows what is known of a name, and from where."
