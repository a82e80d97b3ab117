"""Tool calls, usage and refusals in the objects that a provider's SDK returns and raises."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from prompt_sidecar.client.arguments import Usage
from prompt_sidecar.providers.refusals import (
    MOST_CHARACTERS,
    TOO_LONG_STATUS,
    says_bound_thinking,
    says_too_long,
)
from prompt_sidecar.providers.sdk import SdkApi
from prompt_sidecar.providers.table import SDKS
from prompt_sidecar.providers.untyped import sdk_member, string
from prompt_sidecar.providers.usage import ProviderUsage

_LABEL: Final = re.compile(
    r"\[(?:content|page|screenshot) (?:clipped|elided)[a-z0-9, ]* (?:—|\\u2014) id=[a-hjkmnp-tv-z0-9]{10}, "
)
"""A label as `prompt_sidecar.trim.elide` writes it, in JSON text."""
_MASK: Final = re.compile(r"⟦|\\u(?:27e6|\{0{0,2}27e6\})|%e2%9f%a6|\\342\\+237\\+246", re.IGNORECASE)
"""How a mask begins, as `prompt_sidecar.guard.masks` writes it and models escape it."""


def has_masks(arguments: str) -> bool:
    """Whether a call's arguments, as JSON text, may contain masks of secrets, however they are escaped."""
    return _MASK.search(arguments) is not None


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A tool call of the model."""

    id: str
    name: str
    arguments: str
    """JSON text, as the model wrote it; from `complete`, with values in place of masks where the sidecar allows it."""
    native: Any
    """The SDK's own object, with the arguments as the model wrote them."""
    api: SdkApi
    masks_left: int = 0
    """Masks in the arguments that the sidecar did not replace: the tool may not have the values, or they are lost."""

    @property
    def has_masks(self) -> bool:
        """Whether the arguments may contain masks of secrets, however they are escaped."""
        return has_masks(self.arguments)

    @property
    def copied_label(self) -> bool:
        """Whether the arguments contain a label with its id, which the sidecar put in place of text.

        Models copy labels: a tool that is run with such arguments would write the label in place of the text.
        """
        return _LABEL.search(self.arguments) is not None

    def result(self, content: str, *, is_error: bool = False) -> dict[str, Any]:
        """Return the tool's answer as an entry of this provider's history."""
        return self.api.tool_result(self.id, self.name, content, is_error=is_error)


def model_calls(api: SdkApi, response: Any) -> list[ModelCall]:
    """Return the calls of functions in a response."""
    return [
        ModelCall(string(id), string(name), _arguments(arguments), native, api)
        for id, name, arguments, native in api.functions(response)
    ]


def tool_names(api: SdkApi, definitions: Iterable[Any]) -> frozenset[str]:
    """Return the names in tools' definitions."""
    return frozenset(str(name) for each in definitions if (name := api.tool_name(each)))


def usage_of(api: SdkApi, response: Any) -> Usage:
    """Return the provider's usage; empty if the response contains none."""
    usage = sdk_member(response, api.usage.usage)
    return {} if usage is None else counted(ProviderUsage(*api.usage.counts(usage, sdk_member)))


def _arguments(value: Any) -> str:
    """Return arguments as JSON text; some servers send an object."""
    return json.dumps(value) if isinstance(value, Mapping | list) else string(value)


def counted(usage: ProviderUsage) -> Usage:
    """Return an answer's usage in the client's form; empty if it reports none."""
    if usage.input_tokens is None:
        return {}
    found: Usage = {
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.cached_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
    }
    return {name: count for name, count in found.items() if count is not None}  # type: ignore[return-value]


def too_long(error: BaseException) -> str:
    """Return the text with which a provider refused a prompt as too long; empty if the error has another cause.

    The SDKs of openai and anthropic raise errors with a `status_code` and a text that contains the response's body;
    Google's have the status in `code`, and botocore's in `response`.
    """
    status = next((each for each in _statuses(error) if isinstance(each, int)), None)
    if status is not None and status not in TOO_LONG_STATUS:
        return ""
    code = getattr(error, "code", None)
    text = f"{code if isinstance(code, str) else ''} {error}"
    return text.strip()[:MOST_CHARACTERS] if says_too_long(text) else ""


def refuses_thinking(error: BaseException) -> bool:
    """Whether a provider refused a prompt because its thinking is bound to another prompt."""
    status = next((each for each in _statuses(error) if isinstance(each, int)), 400)
    return status == 400 and says_bound_thinking(str(error))


def _statuses(error: BaseException) -> Iterable[Any]:
    yield getattr(error, "status_code", None)
    yield getattr(error, "code", None)
    yield sdk_member(getattr(error, "response", None), "ResponseMetadata", "HTTPStatusCode")


def only_strict(format: str, create: Any) -> bool:
    """Whether an SDK's function rejects tools that are not strict."""
    while isinstance(create, partial):
        create = create.func
    return SDKS[format].strict_only(getattr(create, "__name__", ""))
