"""The provider APIs, one row each, and the API of a path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from prompt_sidecar.providers.ai_sdk import AiSdk
from prompt_sidecar.providers.anthropic_messages import AnthropicMessages
from prompt_sidecar.providers.api import PassedPrompts, Provider, ProviderApi
from prompt_sidecar.providers.bedrock_converse import BedrockConverse
from prompt_sidecar.providers.gemini_contents import GeminiContents
from prompt_sidecar.providers.messages import Format, FormatMessages
from prompt_sidecar.providers.openai_chat import OpenAIChat
from prompt_sidecar.providers.openai_responses import OpenAIResponses
from prompt_sidecar.providers.sdk import SdkApi

APIS: Final[Mapping[str, ProviderApi]] = {
    api.format: api
    for api in (OpenAIChat(), OpenAIResponses(), AnthropicMessages(), GeminiContents(), BedrockConverse())
}
"""By format."""
SDKS: Final[Mapping[str, SdkApi]] = {name: api for name, api in APIS.items() if isinstance(api, SdkApi)}
"""APIs whose SDKs `complete` drives, by format."""
PROVIDERS: Final = tuple(dict.fromkeys(api.provider for api in APIS.values()))
"""The first is assumed for a request if nothing shows another: other servers implement its APIs too."""
MESSAGES: Final[Mapping[str, FormatMessages]] = {**APIS, AiSdk.format: AiSdk()}
"""Formats with a history, by name. Any other format has none, such as a single tool result."""
LONGEST_PATH: Final = 4_096
"""Characters of a path that are examined; the longest model name in one, an ARN of Amazon, has 2,048."""


@dataclass(frozen=True, slots=True)
class PathFound:
    """What a path shows about the body."""

    api: ProviderApi
    model: str = ""
    """The model named by the path; empty: the body names it."""
    streams: bool = False
    """Whether the path requests a stream; if paths of this API cannot, the body does."""
    counts: bool = False
    """Whether the provider only counts the prompt's tokens."""
    compacts: bool = False
    """Whether the provider answers with a shorter history."""

    @property
    def asks(self) -> bool:
        """Whether the model is asked for the next turn."""
        return not (self.counts or self.compacts)

    @property
    def format(self) -> Format:
        """The body's format."""
        return self.api.format


def api_of(path: str) -> PathFound | None:
    """Return the API that a POST to a path is for, or None if its body is not a prompt.

    Args:
        path: the URL's path, with its query if it has one.
    """
    path = path.partition("?")[0]
    if len(path) > LONGEST_PATH:
        return None
    for api in APIS.values():
        for each in api.paths:
            if (found := each.end.search(path)) is not None:
                named = found.groupdict()
                model, streams = unquote(named.get("model") or ""), "stream" in (named.get("method") or "")
                return PathFound(api, model, streams, each.counts, each.compacts)
    return None


def may_hold_prompt(path: str) -> bool:
    """Whether a POST to a path may have a prompt, though it belongs to no known API.

    Args:
        path: the URL's path, without its query.
    """
    known = (api.without_prompt for api in APIS.values() if api.without_prompt is not None)
    return not any(each.search(path[:LONGEST_PATH]) for each in known)


def passed_at(path: str) -> PassedPrompts | None:
    """Return the kind of prompts that a POST to a path has if it is forwarded unchanged, or None for other paths."""
    path = path.partition("?")[0]
    if len(path) > LONGEST_PATH:
        return None
    return next((why for api in APIS.values() for end, why in api.passed if end.search(path)), None)


def provider_of(path: str, headers: Mapping[str, str]) -> Provider:
    """Return the provider of a request that has no prompt.

    Args:
        path: without the query.
        headers: the request's, their names in lower case.
    """
    claiming = (api.provider for api in reversed([*APIS.values()]) if api.claims(path, headers))
    return next(claiming, PROVIDERS[0])
