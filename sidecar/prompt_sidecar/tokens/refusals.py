"""What a provider says when it refuses a prompt as too long: the limit, and how long the prompt really was.

Agents pass the message on verbatim, perhaps inside JSON, a log line or an exception's text. It is untrusted: it is cut
at `MOST_CHARACTERS`, stripped of quotes and line breaks, and read with RE2, whose time grows with the text and never
faster. The tables below have one row a wording, the most telling first. The first that matches is taken, and a number
out of its bounds counts as not named. A message that no row knows teaches no number; that it was a refusal is the
agent's word.

Two things must not be mistaken for the prompt's limit: the most tokens that an *answer* may have ("max_tokens must be
at most 8192"), which has no row, and a count that a server gave up at ("at least 134145 input tokens"), which is a
limit's echo and no size.

The wordings are those quoted in public issue threads from 2023 to 2026.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import re2

MOST_CHARACTERS: Final = 4_096
"""Characters of a message that are read: the longest known is 300, and wrappers put some hundred around it."""
LEAST_TOKENS: Final = 256
MOST_TOKENS: Final = 100_000_000
"""Bounds of a number that is believed: no model that can run an agent has a smaller window, and none a larger."""

_DROPPED: Final = str.maketrans("", "", "\"'`\\’‘“”*")
"""Quotes and escapes, which wrappers add and take away."""
_NUMBER: Final = r"\d{1,3}(?:,\d{3})+|\d{1,12}"

_OPENAI: Final = "maximum context length is {limit} tokens[.,] however,? "
"""How OpenAI begins, and with it everyone who serves its API: Azure, DeepSeek, vLLM, OpenRouter."""

_SHARED: Final = (
    # Anthropic, also through Bedrock
    "prompt is too long: {real} tokens > {limit} maximum",
    "input length and max_tokens exceed context limit: {real} [+] {output} > {limit}",
    # OpenAI and kin, with what the sum is made of; OpenRouter says "about"
    _OPENAI
    + "you requested (?:about )?{total} tokens [(][^()]{{0,120}}?\\b{output} (?:in|for) the (?:completion|output)",
    _OPENAI + "(?:your )?messages resulted in {real} tokens",
    # vLLM; one that says "at least" stopped counting there
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
"""Wordings of a limit that prompt and answer share. {limit}, {real} and {output} stand for numbers; {total} for prompt
and answer in one sum. All is in lower case and without quotes, as the text is."""

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
"""Wordings of a limit that is the prompt's alone."""

_LAST: Final = ("context (?:length|window|size|limit)(?: [a-z]+){{0,4}}[ :(]{{1,3}}{limit}(?: tokens|[).,;]|$)",)
"""Tried when no other is found: any wording that names a context's size. The prompt and the answer share it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a message taught. None: it named no such number, or one that is not believed."""

    limit: int | None = None
    """Tokens, as the provider counts and names them."""
    real_tokens: int | None = None
    """Tokens of the refused prompt, as the provider counts them."""
    output_tokens: int | None = None
    """Tokens that the request kept for the answer."""
    input_only: bool = False
    """Whether the limit is the prompt's alone; else prompt and answer share it."""

    def input_limit(self, reserve: int) -> int | None:
        """Tokens that a prompt may take: the limit less the answer's, which is `reserve` where none is named.

        At least half the limit: a request that keeps more than that for its answer is mended there.
        """
        if self.limit is None or self.input_only:
            return self.limit
        kept = self.output_tokens if self.output_tokens is not None else reserve
        return max(self.limit - kept, self.limit // 2)


def read_refusal(message: str) -> Refusal:
    """Read a provider's message. Any text is accepted; what is not understood teaches nothing.

    Takes less than a millisecond, whatever the text.
    """
    text = " ".join(message[:MOST_CHARACTERS].translate(_DROPPED).lower().split())
    for pattern, input_only in _patterns():
        found = pattern.search(text)
        if found is not None:
            named = {name: _believed(name, value) for name, value in found.groupdict().items() if value is not None}
            return _refusal(named, input_only=input_only)
    return Refusal()


def _refusal(named: dict[str, int | None], *, input_only: bool) -> Refusal:
    limit, real, output = named.get("limit"), named.get("real"), named.get("output")
    if "output" not in named and "total" in named:
        real = None  # prompt and answer in one sum
    elif real is None and (total := named.get("total")) is not None and output is not None and total > output:
        real = total - output
    if limit is None:
        return Refusal(real_tokens=real)
    if real is not None and real + (0 if input_only else output or 0) <= limit:
        real = None  # what fits is not refused: one of the numbers means something else
    return Refusal(limit, real, output, input_only)


def _believed(name: str, digits: str) -> int | None:
    number = int(digits.replace(",", ""))
    least = 0 if name == "output" else LEAST_TOKENS
    return number if least <= number <= MOST_TOKENS else None


@cache
def _patterns() -> tuple[tuple[Any, bool], ...]:
    """The rows, compiled at the first refusal: most processes never meet one."""
    groups = {name: f"(?P<{name}>{_NUMBER})" for name in ("limit", "real", "output", "total")}
    return tuple(
        (re2.compile(row.replace(". ", "[.] ").format(**groups)), rows is _PROMPT_ONLY)
        for rows in (_SHARED, _PROMPT_ONLY, _LAST)
        for row in rows
    )
