"""What `complete` needs to read from each provider's SDK: one row of functions for each format.

The objects are the SDKs' own, or dicts of the same shape; neither SDK is imported. A turn of the model is added to the
history as the SDK's own objects, which the SDK accepts as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from prompt_sidecar.client.arguments import Format, Usage

_LABEL: Final = re.compile(
    r"\[(?:content|page|screenshot) (?:clipped|elided)[a-z0-9, ]* (?:—|\\u2014) id=[a-hjkmnp-tv-z0-9]{10}, "
)
"""A label as `prompt_sidecar.trim.elide` writes it, in JSON text."""
_MASK: Final = re.compile(r"⟦|\\u27e6|%e2%9f%a6|\\342\\+237\\+246", re.IGNORECASE)
"""How a mask begins, as `prompt_sidecar.guard.masks` writes it and models escape it."""


def has_masks(arguments: str) -> bool:
    """Whether a call's arguments, JSON text, may hold masks of secrets, however they are escaped."""
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
    dialect: Dialect
    masks_left: int = 0
    """Masks in the arguments that the sidecar did not replace: the tool may not have the values, or they are gone."""

    @property
    def has_masks(self) -> bool:
        """Whether the arguments may hold masks of secrets, however they are escaped."""
        return has_masks(self.arguments)

    @property
    def copied_label(self) -> bool:
        """Whether the arguments hold a label that the sidecar put in place of text, with its id.

        Models copy what they see: a tool that is run with such arguments would write the label where the text belongs.
        """
        return _LABEL.search(self.arguments) is not None

    def result(self, content: str, *, is_error: bool = False) -> dict[str, Any]:
        """Return the tool's answer as an entry of this provider's history."""
        return self.dialect.answer(self.id, content, is_error)


@dataclass(frozen=True, slots=True)
class Dialect:
    """One provider's API."""

    format: Format
    prompt: str
    """The keyword that holds the history."""
    history: Callable[[Any], list[Any]]
    """The history, from that keyword's value."""
    tool_name: Callable[[Any], Any]
    """The name in a tool's definition; empty or None if it has none."""
    turn: Callable[[Any], list[Any]]
    """The entries that a response adds to the history."""
    functions: Callable[[Any], Iterable[tuple[Any, Any, Any, Any]]]
    """Id, name, arguments and the native object of each call of a function in a response."""
    others: Callable[[Any], bool]
    """Whether a response holds anything else that the caller has to answer."""
    answer: Callable[[str, str, bool], dict[str, Any]]
    """A tool's answer, from the call's id, the content, and whether it is an error."""
    joined: Callable[[Sequence[Any]], list[Any]]
    """Answers of one turn's calls as the history holds them."""
    counted: Callable[[Any], Usage]
    """What the provider counted, from a response's usage."""

    def calls(self, response: Any) -> list[ModelCall]:
        """Return the calls of functions in a response."""
        return [
            ModelCall(_text(id), _text(name), _arguments(arguments), native, self)
            for id, name, arguments, native in self.functions(response)
        ]

    def usage(self, response: Any) -> Usage:
        """Return what the provider counted; empty if the response holds no usage."""
        usage = member(response, "usage")
        told = {} if usage is None else self.counted(usage)
        return {name: count for name, count in told.items() if _is_count(count)}  # type: ignore[return-value]

    def names(self, definitions: Iterable[Any]) -> frozenset[str]:
        """Return the names in tools' definitions."""
        return frozenset(str(name) for each in definitions if (name := self.tool_name(each)))


def _text(value: Any) -> str:
    """A text; empty where an answer holds something else in its place."""
    return value if isinstance(value, str) else ""


def _arguments(value: Any) -> str:
    """Arguments as JSON text; some servers give an object."""
    return json.dumps(value) if isinstance(value, Mapping | list) else _text(value)


def _is_count(value: Any) -> bool:
    """Whether a value is a number of tokens, or that there is none; providers' answers may hold anything."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value is None or (whole and 0 <= value <= _MOST_TOKENS)


_MOST_TOKENS: Final = 100_000_000
"""The largest number of tokens that is believed: no prompt has more, and the sidecar accepts no more."""


def member(value: Any, *path: str) -> Any:
    """A member of an SDK's object or of a dict, or None."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value


def _chat_message(response: Any) -> Any:
    choices = member(response, "choices")
    if not choices:
        raise ValueError("the response has no choices")
    return member(choices[0], "message")


def _chat_calls(response: Any) -> Sequence[Any]:
    return member(_chat_message(response), "tool_calls") or ()


def _chat_functions(response: Any) -> Iterable[tuple[Any, Any, Any, Any]]:
    for call in _chat_calls(response):
        if member(call, "function") is not None:
            yield member(call, "id"), member(call, "function", "name"), member(call, "function", "arguments"), call


def _chat_counted(usage: Any) -> Usage:
    return {
        "input_tokens": member(usage, "prompt_tokens"),
        "cached_tokens": member(usage, "prompt_tokens_details", "cached_tokens"),
        "output_tokens": member(usage, "completion_tokens"),
    }


_CHAT: Final = Dialect(
    format="openai_chat",
    prompt="messages",
    history=list,
    tool_name=lambda definition: member(definition, "function", "name") or member(definition, "custom", "name"),
    turn=lambda response: [_chat_message(response)],
    functions=_chat_functions,
    others=lambda response: any(member(call, "function") is None for call in _chat_calls(response)),
    # The format has no flag for an error; the content describes it.
    answer=lambda call_id, content, _: {"role": "tool", "tool_call_id": call_id, "content": content},
    joined=list,
    counted=_chat_counted,
)

_CALLER_ANSWERS: Final = frozenset(
    {"computer_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "mcp_approval_request"}
)
"""Items of a response that wait for an output of the caller."""


def _output(response: Any) -> Sequence[Any]:
    return member(response, "output") or ()


def _response_functions(response: Any) -> Iterable[tuple[Any, Any, Any, Any]]:
    for item in _output(response):
        if member(item, "type") == "function_call":
            yield member(item, "call_id"), member(item, "name"), member(item, "arguments"), item


def _response_counted(usage: Any) -> Usage:
    return {
        "input_tokens": member(usage, "input_tokens"),
        "cached_tokens": member(usage, "input_tokens_details", "cached_tokens"),
        "output_tokens": member(usage, "output_tokens"),
    }


_RESPONSES: Final = Dialect(
    format="openai_responses",
    prompt="input",
    history=lambda given: [{"role": "user", "content": given}] if isinstance(given, str) else list(given),
    tool_name=lambda definition: member(definition, "name"),
    turn=lambda response: list(_output(response)),
    functions=_response_functions,
    others=lambda response: any(member(item, "type") in _CALLER_ANSWERS for item in _output(response)),
    answer=lambda call_id, content, _: {"type": "function_call_output", "call_id": call_id, "output": content},
    joined=list,
    counted=_response_counted,
)


def _blocks(response: Any) -> Sequence[Any]:
    return member(response, "content") or ()


def _block_functions(response: Any) -> Iterable[tuple[Any, Any, Any, Any]]:
    for block in _blocks(response):
        if member(block, "type") == "tool_use":
            yield member(block, "id"), member(block, "name"), json.dumps(member(block, "input")), block


def _tool_result(call_id: str, content: str, is_error: bool) -> dict[str, Any]:
    result = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return result | {"is_error": True} if is_error else result


def _block_counted(usage: Any) -> Usage:
    return {
        "input_tokens": member(usage, "input_tokens"),
        "cached_tokens": member(usage, "cache_read_input_tokens"),
        "cache_write_tokens": member(usage, "cache_creation_input_tokens"),
        "output_tokens": member(usage, "output_tokens"),
    }


_ANTHROPIC: Final = Dialect(
    format="anthropic_messages",
    prompt="messages",
    history=list,
    tool_name=lambda definition: member(definition, "name"),
    # A turn without content is refused when it comes back.
    turn=lambda response: [{"role": "assistant", "content": _blocks(response)}] if _blocks(response) else [],
    functions=_block_functions,
    # The provider's own tools are answered in the turn itself; a turn that pauses for them is the caller's to send on.
    others=lambda response: bool(member(response, "stop_reason") == "pause_turn"),
    answer=_tool_result,
    # All results of a turn are in one user message, or the provider refuses it.
    joined=lambda results: [{"role": "user", "content": list(results)}] if results else [],
    counted=_block_counted,
)

DIALECTS: Final[Mapping[str, Dialect]] = {dialect.format: dialect for dialect in (_CHAT, _RESPONSES, _ANTHROPIC)}

MOST_REFUSAL_CHARACTERS: Final = 4_096
"""Characters of a provider's refusal that are sent; the sidecar reads no more of them (`PromptRefusal.message`)."""
_TOO_LONG_STATUS: Final = frozenset({400, 413, 422})
_TOO_LONG: Final = (
    "context_length_exceeded",
    "context length",
    "context window",
    "context limit",
    "context size",
    "maximum prompt length",
    "prompt is too long",
    "input is too long",
    "input tokens exceed",
    "input token count",
    "request too large",
    "request_too_large",
    "too many tokens",
    "token limit",
)
"""Parts of the errors by which providers refuse a prompt as too long, in lower case. The sidecar reads the numbers."""


def too_long(error: BaseException) -> str:
    """Return the text with which a provider refused a prompt as too long; empty if the error has another cause.

    The SDKs of openai and anthropic raise errors with a `status_code` and a text that holds the answer's body; those of
    Google have the status in `code`, and botocore's in `response`.
    """
    status = next((each for each in _statuses(error) if isinstance(each, int)), None)
    if status is not None and status not in _TOO_LONG_STATUS:
        return ""
    code = getattr(error, "code", None)
    text = f"{code if isinstance(code, str) else ''} {error}"
    return text.strip()[:MOST_REFUSAL_CHARACTERS] if any(words in text.lower() for words in _TOO_LONG) else ""


def refuses_thinking(error: BaseException) -> bool:
    """Whether a provider refused a prompt for thinking that is bound to another one.

    The text is Anthropic's: platform.claude.com, "Prefix checks on thinking blocks", read on 2026-11-22.
    """
    status = next((each for each in _statuses(error) if isinstance(each, int)), 400)
    return status == 400 and "bound to a different conversation" in str(error).lower()


def _statuses(error: BaseException) -> Iterable[Any]:
    yield getattr(error, "status_code", None)
    yield getattr(error, "code", None)
    yield member(getattr(error, "response", None), "ResponseMetadata", "HTTPStatusCode")


def only_strict(format: str, create: Any) -> bool:
    """Whether an SDK's function refuses tools that are not strict: openai's `chat.completions.parse`."""
    while isinstance(create, partial):
        create = create.func
    return format == _CHAT.format and getattr(create, "__name__", "") == "parse"
