"""OpenAI's `tool_choice`, in chat completions and responses.

`none` and `auto` do not depend on other tools; `required` demands a call of any tool; an object names the tool to call,
or its type. `allowed_tools` lists the tools that may be called, under the mode `auto` or `required`, and leaves
`tools`, which are cached, unchanged. developers.openai.com, "Function calling", "Tool choice"; API reference,
`ChatCompletionAllowedTools` and `ToolChoiceAllowed` (read in November 2026).

Other servers of these APIs refuse `allowed_tools`, or treat it as `auto` (llama.cpp), so it is written for OpenAI's own
models only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from prompt_sidecar.providers.catalogue import MAX_NAME_CHARS, forms
from prompt_sidecar.providers.untyped import member

ALLOWED: Final = "allowed_tools"
REQUIRED: Final = "required"
_FREE: Final = (None, "auto", "none")
_OWN_MODELS: Final = re.compile(r"gpt-(?!oss)|chatgpt-|codex-|o[1-9]\b")
_HOSTED: Final = frozenset(
    {"file_search", "web_search", "web_search_preview", "computer_use_preview", "code_interpreter", "image_generation"}
)
"""Tools of responses that a list of allowed tools names by their type only."""


def must_call_any(choice: Any) -> bool:
    """Whether the model must call some tool, so that more tools would change its answer."""
    return choice not in _FREE and not isinstance(choice, dict)


def limits_free_choice(choice: Any) -> bool:
    """Whether the model may answer or call, but only tools of a list."""
    listed = member(choice, ALLOWED) or choice
    return bool(member(choice, "type") == ALLOWED and member(listed, "mode") == "auto")


def is_of_openai(model: Any) -> bool:
    """Whether a model, by the agent's name for it, is one of OpenAI's own, on any server."""
    if not isinstance(model, str) or len(model) > MAX_NAME_CHARS:
        return False
    return any(_OWN_MODELS.match(form) for form in forms(model.lower()))


def allowed_functions(definitions: Iterable[Any]) -> list[Any] | None:
    """Return how a list in chat completions names tools; None if it cannot name one of them."""
    found = []
    for each in definitions:
        kind = member(each, "type")
        name = member(each, kind, "name") if kind in ("function", "custom") else None
        if not isinstance(name, str):
            return None
        found.append({"type": kind, kind: {"name": name}})
    return found


def allowed_items(definitions: Iterable[Any]) -> list[Any] | None:
    """Return how a list in responses names tools; None if it cannot name one, such as a deferred one or a namespace."""
    found = []
    for each in definitions:
        kind, name, label = member(each, "type"), member(each, "name"), member(each, "server_label")
        if member(each, "defer_loading"):
            return None
        if kind in ("function", "custom") and isinstance(name, str):
            found.append({"type": kind, "name": name})
        elif kind == "mcp" and isinstance(label, str):
            found.append({"type": kind, "server_label": label})
        elif isinstance(kind, str) and kind in _HOSTED:
            found.append({"type": kind})
        else:
            return None
    return found
