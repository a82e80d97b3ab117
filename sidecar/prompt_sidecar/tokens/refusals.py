"""Reading a provider's error about a too long prompt: the limit, and the prompt's real size.

Agents forward the message verbatim, perhaps inside JSON, a log line or an exception's text. It is untrusted: it is cut
at `MOST_CHARACTERS`, stripped of quotes and line breaks, and matched with RE2, whose time is linear in the text. The
tables below have one row for each wording, the most specific first. The first match is used, and a number out of its
bounds is ignored. No number is learned from an unknown message; only the agent states that it was a rejection.

Two numbers must not be mistaken for the prompt's limit: the most tokens that an *answer* may have ("max_tokens must be
at most 8192"), which has no row, and the count at which a server stopped counting ("at least 134145 input tokens"),
which repeats a limit and is not a size.

The wordings are those quoted in public issue threads from 2023 to 2026.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import re2

MOST_CHARACTERS: Final = 4_096
"""Characters of a message that are read: the longest known has 300, and wrappers add some hundred."""
LEAST_TOKENS: Final = 256
MOST_TOKENS: Final = 100_000_000
"""Bounds of plausible numbers: no model for agents has a smaller or a larger window."""

_DROPPED: Final = str.maketrans("", "", "\"'`\\’‘“”*")
"""Quotes and escapes, which wrappers add and remove."""
_NUMBER: Final = r"\d{1,3}(?:,\d{3})+|\d{1,12}"

_OPENAI: Final = "maximum context length is {limit} tokens[.,] however,? "
"""Beginning of the message of OpenAI and of others with its API: Azure, DeepSeek, vLLM, OpenRouter."""

_SHARED: Final = (
    # Anthropic, also through Bedrock
    "prompt is too long: {real} tokens > {limit} maximum",
    "input length and max_tokens exceed context limit: {real} [+] {output} > {limit}",
    # OpenAI and others with its API, with the parts of the sum; OpenRouter writes "about"
    _OPENAI
    + "you requested (?:about )?{total} tokens [(][^()]{{0,120}}?\\b{output} (?:in|for) the (?:completion|output)",
    _OPENAI + "(?:your )?messages resulted in {real} tokens",
    # vLLM; with "at least" it stopped counting there
    _OPENAI + "you requested {output} output tokens and your prompt contains {real} input tokens",
    _OPENAI + "you requested {output} output tokens and your prompt contains at least",
    _OPENAI + "you requested (?:about )?{total} tokens",
    "{real} input tokens and requested {output} output tokens. however, the models context length is only {limit}",
    "prompt [(](?:total )?(?:length )?{real}(?: tokens)?[)] is (?:too long|longer than)[^0-9]{{0,60}}{limit}",
    # SGLang
    "context length of {limit} tokens. [^0-9]{{0,40}}{total} tokens: {real} tokens[^0-9]{{0,40}}{output} tokens",
    "the input [(]{real} tokens[)] is longer than the models context length [(]{limit}",
    # Mistral
    "prompt contains {real} tokens[^0-9]{{0,20}}\\d*[^0-9]{{0,40}}too large for model with {limit} maximum",
    # Text Generation Inference
    "tokens [+] max_new_tokens must be <= {limit}. given: {real} inputs? tokens and {output} max_new_tokens",
    "tokens [+] max_new_tokens must be <= {limit}",
    # llama.cpp: its error's fields, in either order, or its message; llama-cpp-python
    "n_prompt_tokens ?: ?{real} ?, ?n_ctx ?: ?{limit}",
    "n_ctx ?: ?{limit} ?, ?n_prompt_tokens ?: ?{real}",
    "request [(]{real} tokens[)] exceeds the available context size [(]{limit} tokens",
    "requested tokens [(]{real}[)] exceed context window of {limit}",
    # LM Studio
    "keep the first {real} tokens when[^0-9]{{0,80}}context length of only {limit} tokens",
    # Cerebras
    "current length is {real} while limit is {limit}",
    # Cohere
    "cannot exceed {limit} - received {total}",
    # Moonshot
    "exceeded model token limit: {limit} [(]requested: {total}",
    # OpenAI and Groq, where one request is larger than a minute's allowance
    "request too large.{{0,160}}[(]tpm[)]: limit {limit}, requested {total}",
)
"""Wordings of a limit that prompt and answer share. {limit}, {real}, {output} and {total} (the sum of prompt and
answer) are numbers. Lower case and without quotes, as is the text."""

_PROMPT_ONLY: Final = (
    # Google
    "input token count(?:[ (is]{{1,5}}{real}[)]?)? exceeds the maximum number of tokens allowed[ (]{{1,2}}{limit}",
    "input token count is {real} but (?:the )?model only supports up to {limit}",
    # OpenAI
    "input tokens exceed the configured limit of {limit} tokens. your messages resulted in {real} tokens",
    "input tokens exceed the configured limit of {limit}",
    # xAI
    "maximum prompt length is {limit} but the request contains {real} tokens",
    # GitHub Copilot
    "prompt token count of {real} exceeds the limit of {limit}",
    # SGLang
    "input length [(]{real} tokens[)] exceeds the maximum allowed length [(]{limit} tokens",
    # Replicate
    "max input length is {limit} tokens, but you supplied {real} tokens",
)
"""Wordings of a limit for the prompt alone."""

_LAST: Final = ("context (?:length|window|size|limit)(?: [a-z]+){{0,4}}[ :(]{{1,3}}{limit}(?: tokens|[).,;]|$)",)
"""Tried last: any wording with a context size. The prompt and the answer share it."""


@dataclass(frozen=True, slots=True)
class RefusalNumbers:
    """The numbers in a message. None: absent, or implausible."""

    limit: int | None = None
    """Tokens, by the provider's count."""
    real_tokens: int | None = None
    """Tokens of the rejected prompt, by the provider's count."""
    output_tokens: int | None = None
    """Tokens that the request reserved for the answer."""
    input_only: bool = False
    """Whether the limit is for the prompt alone; otherwise prompt and answer share it."""

    def input_limit(self, reserve: int) -> int | None:
        """The limit for a prompt: the limit less the answer's tokens, or less `reserve` if these are not stated.

        At least half the limit: a request that reserves more than that for its answer must reduce the reserve.
        """
        if self.limit is None or self.input_only:
            return self.limit
        kept = self.output_tokens if self.output_tokens is not None else reserve
        return max(self.limit - kept, self.limit // 2)


def read_refusal(message: str) -> RefusalNumbers:
    """Read a provider's message. Any text is accepted; nothing is learned from unknown wordings.

    Takes less than a millisecond, whatever the text.
    """
    text = " ".join(message[:MOST_CHARACTERS].translate(_DROPPED).lower().split())
    for pattern, input_only in _patterns():
        found = pattern.search(text)
        if found is not None:
            named = {name: _plausible(name, value) for name, value in found.groupdict().items() if value is not None}
            return _refusal(named, input_only=input_only)
    return RefusalNumbers()


def _refusal(named: dict[str, int | None], *, input_only: bool) -> RefusalNumbers:
    limit, real, output = named.get("limit"), named.get("real"), named.get("output")
    if "output" not in named and "total" in named:
        real = None  # prompt and answer in one sum
    elif real is None and (total := named.get("total")) is not None and output is not None and total > output:
        real = total - output
    if limit is None:
        return RefusalNumbers(real_tokens=real)
    if real is not None and real + (0 if input_only else output or 0) <= limit:
        real = None  # a prompt that fits is not rejected, so one of the numbers means something else
    return RefusalNumbers(limit, real, output, input_only)


def _plausible(name: str, digits: str) -> int | None:
    number = int(digits.replace(",", ""))
    least = 0 if name == "output" else LEAST_TOKENS
    return number if least <= number <= MOST_TOKENS else None


@cache
def _patterns() -> tuple[tuple[Any, bool], ...]:
    """The rows, compiled at the first use: most processes never need them."""
    groups = {name: f"(?P<{name}>{_NUMBER})" for name in ("limit", "real", "output", "total")}
    return tuple(
        (re2.compile(row.replace(". ", "[.] ").format(**groups)), rows is _PROMPT_ONLY)
        for rows in (_SHARED, _PROMPT_ONLY, _LAST)
        for row in rows
    )
