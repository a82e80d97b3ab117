"""The maintained tables, as facts of models: genai-prices by its own classes, LiteLLM's table from its wheel."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Final

OWN: Final = Path(__file__).with_name("own.toml")

MAKERS: Final[Mapping[str, str]] = {
    "openai": "openai",
    "anthropic": "anthropic",
    "gemini": "google",
    "vertex_ai-language-models": "google",
    "xai": "x-ai",
    "deepseek": "deepseek",
    "moonshot": "moonshotai",
    "zai": "zai",
    "mistral": "mistral",
    "minimax": "minimax",
    "cohere_chat": "cohere",
    "dashscope": "",
    "qwen_ai_platform": "",
    "qwencloud": "",
    "amazon_nova": "",
    "meta_llama": "meta",
    "meta": "meta",
    "ai21": "",
}
"""LiteLLM's providers that make the models which they offer, and genai-prices' names for them."""
_MODES: Final = frozenset({"chat", "responses", "completion"})
_MILLION: Final = 1_000_000
_ABOVE: Final = "input_cost_per_token_above_"


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens; None: not said."""

    input: float | None = None
    cached: float | None = None
    written: float | None = None
    output: float | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One source's facts of one name."""

    name: str
    source: str
    maker: bool
    """Whether the source has it from the model's maker, not from a host."""
    window: int | None = None
    most_input: int | None = None
    """LiteLLM's `max_input_tokens`, an input cap for some models and the window for others; or our own row's."""
    most_output: int | None = None
    price: Price = Price()
    tiers: tuple[tuple[int, Price], ...] = ()
    mid_run_system: bool = False


def litellm() -> Iterator[Entry]:
    """Give the chat models of LiteLLM's table."""
    # The file, without importing the package, whose own dependencies are many.
    file = metadata.distribution("litellm").locate_file("litellm/model_prices_and_context_window_backup.json")
    for name, row in json.loads(Path(str(file)).read_text("utf-8")).items():
        if row.get("mode") not in _MODES or name == "sample_spec" or "ft:" in name:
            continue
        above = {key.removeprefix(_ABOVE).removesuffix("_tokens") for key in row if _is_tier(key)}
        yield Entry(
            name=name.lower(),
            source="litellm",
            maker=row["litellm_provider"] in MAKERS,
            most_input=_count(row.get("max_input_tokens")),
            most_output=_count(row.get("max_output_tokens")),
            price=_litellm_price(row, ""),
            tiers=tuple((_tokens(at), _litellm_price(row, f"_above_{at}_tokens")) for at in sorted(above, key=_tokens)),
            mid_run_system=bool(row.get("supports_mid_conversation_system")),
        )


def genai(day: datetime) -> Iterator[Entry]:
    """Give the models of genai-prices, with the prices of a day."""
    makers = set(MAKERS.values()) - {""}
    for provider in import_module("genai_prices.data").providers:  # which make catalogue alone installs
        for model in provider.models:
            prices = model.get_prices(day.replace(hour=12))
            first, tiers = _genai_price(prices)
            yield Entry(
                name=model.id.lower() if provider.id in makers else f"{provider.id}/{model.id}".lower(),
                source="genai-prices",
                maker=provider.id in makers,
                window=model.context_window,
                price=first,
                tiers=tiers,
            )


def own() -> Iterator[Entry]:
    """Give our own rows."""
    for name, row in tomllib.loads(OWN.read_text("utf-8")).items():
        yield Entry(
            name=name,
            source="own",
            maker=True,
            window=row.get("window"),
            most_input=row.get("most_input"),
            most_output=row.get("most_output"),
            price=_own_price(row["prices"]) if "prices" in row else Price(),
            tiers=tuple((above, _own_price(prices)) for above, *prices in row.get("tiers", ())),
            mid_run_system=row.get("mid_run_system", False),
        )


def versions() -> str:
    """Name the tables with their versions."""
    return " and ".join(f"{name} {metadata.version(name)}" for name in ("genai-prices", "litellm"))


def today() -> datetime:
    """Return the day of the build."""
    return datetime.now(UTC)


def _is_tier(key: str) -> bool:
    return key.startswith(_ABOVE) and key.endswith("_tokens")


def _tokens(text: str) -> int:
    return int(text.removesuffix("k")) * 1_000 if text.endswith("k") else int(text)


def _count(value: object) -> int | None:
    """A count of tokens; the table has some as texts."""
    try:
        count = int(float(str(value)))
    except ValueError:
        return None
    return count if count > 0 else None


def _litellm_price(row: Mapping[str, Any], suffix: str) -> Price:
    def price(key: str) -> float | None:
        value = row.get(key + suffix)
        return None if value is None else round(float(value) * _MILLION, 6)

    return Price(
        price("input_cost_per_token"),
        price("cache_read_input_token_cost"),
        price("cache_creation_input_token_cost") or None,
        price("output_cost_per_token"),
    )


def _genai_price(prices: Any) -> tuple[Price, tuple[tuple[int, Price], ...]]:
    fields = tuple(getattr(prices, f"{kind}_mtok", None) for kind in ("input", "cache_read", "cache_write", "output"))
    starts = sorted({tier.start for field in fields for tier in getattr(field, "tiers", ())})

    def at(tokens: int) -> Price:
        return Price(*(_at(field, tokens) for field in fields))

    return at(0), tuple((start, at(start + 1)) for start in starts)


def _at(field: Any, tokens: int) -> float | None:
    if field is None:
        return None
    price = getattr(field, "base", field)
    for tier in getattr(field, "tiers", ()):
        if tokens > tier.start:
            price = tier.price
    return float(price)


def _own_price(prices: list[Any]) -> Price:
    return Price(*(float(price) if price != "" else None for price in prices))
