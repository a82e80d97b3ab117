"""Which format a request's body has, by the path of the provider's API that it is for.

Gateways put a prefix before a provider's path, and Azure the name of a deployment; so a path is known by its end. The
paths are those of OpenAI's, Anthropic's, Google's and Amazon's references, read in November 2026. Google and Amazon
name the model in the path, the others in the body.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

LONGEST_PATH: Final = 4_096
"""Characters of a path that is looked at; the longest model name in one, an ARN of Amazon, has 2,048."""


@dataclass(frozen=True, slots=True)
class ProviderPath:
    """What a path says of the body."""

    format: str
    """A key of `prompt_sidecar.prompt.formats.FORMATS`."""
    model: str = ""
    """The model that the path names; empty: the body does."""
    streams: bool = False
    """Whether the path asks for a stream; where it cannot, the body does."""


_ENDS: Final = (
    (re.compile(r"/chat/completions/?$"), "openai_chat"),
    (re.compile(r"/v\d+/messages/?$"), "anthropic_messages"),
    (re.compile(r"/responses/?$"), "openai_responses"),
    (
        re.compile(r"/(?:models|tunedModels)/([^/:]+)(?::|%3[Aa])(generateContent|streamGenerateContent)$"),
        "gemini_contents",
    ),
    (re.compile(r"/model/([^/]+)/(converse|converse-stream)$"), "bedrock_converse"),
)


def provider_path(method: str, path: str) -> ProviderPath | None:
    """Return what a request's method and path say of its body; None: it is no call of a model.

    Args:
        method: of HTTP, in capitals.
        path: with its query, if it has one.
    """
    path = path.partition("?")[0]
    if method != "POST" or len(path) > LONGEST_PATH:
        return None
    for end, format_ in _ENDS:
        found = end.search(path)
        if found is not None:
            if not end.groups:
                return ProviderPath(format_)
            return ProviderPath(format_, unquote(found[1]), streams="stream" in found[2])
    return None
