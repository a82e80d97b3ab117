"""Providers' refusals, in the words that they were met in, and texts that must teach nothing."""

# ruff: noqa: E501 - the messages are quoted as they came

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.tokens.refusals import LEAST_TOKENS, MOST_CHARACTERS, MOST_TOKENS, RefusalNumbers, read_refusal

OPENAI = "This model's maximum context length is "

KNOWN = {
    "anthropic": ("prompt is too long: 209353 tokens > 199999 maximum", RefusalNumbers(199_999, 209_353)),
    "anthropic with answer": (
        (
            "input length and `max_tokens` exceed context limit: 189136 + 20000 > 204648, decrease input length or "
            "`max_tokens` and try again"
        ),
        RefusalNumbers(204_648, 189_136, 20_000),
    ),
    "anthropic through bedrock": (
        (
            "An error occurred (ValidationException): The model returned the following errors: prompt is too long: "
            "200049 tokens > 200000 maximum"
        ),
        RefusalNumbers(200_000, 200_049),
    ),
    "bedrock": ("Input is too long for requested model.", RefusalNumbers()),
    "openai": (
        (
            f"{OPENAI}128000 tokens. However, your messages resulted in 130000 tokens. Please reduce the length of the "
            "messages."
        ),
        RefusalNumbers(128_000, 130_000),
    ),
    "openai with tools": (
        (
            f"{OPENAI}8192 tokens. However, your messages resulted in 9005 tokens (8105 in the messages, 900 in the "
            "functions). Please reduce the length of the messages or functions."
        ),
        RefusalNumbers(8_192, 9_005),
    ),
    "openai with answer": (
        (
            f"{OPENAI}4097 tokens. However, you requested 4295 tokens (3245 in the messages, 1050 in the completion). "
            "Please reduce the length of the messages or completion."
        ),
        RefusalNumbers(4_097, 3_245, 1_050),
    ),
    "openai with tools and answer": (
        (
            f"{OPENAI}4097 tokens. However, you requested 4500 tokens (3500 in the messages, 500 in the functions, and "
            "500 in the completion)."
        ),
        RefusalNumbers(4_097, 4_000, 500),
    ),
    "openai completions": (
        f"{OPENAI}8191 tokens, however you requested 10346 tokens (10341 in your prompt; 5 for the completion). Please",
        RefusalNumbers(8_191, 10_341, 5),
    ),
    "openai responses": (
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        RefusalNumbers(),
    ),
    "openai gpt-5": (
        (
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 289650 tokens. Please "
            "reduce the length of the messages."
        ),
        RefusalNumbers(272_000, 289_650, input_only=True),
    ),
    "openai a minute's tokens": (
        "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 42011.",
        RefusalNumbers(30_000),
    ),
    "gemini": (
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048576).",
        RefusalNumbers(1_048_576, 1_196_265, input_only=True),
    ),
    "gemini without size": (
        "The input token count exceeds the maximum number of tokens allowed (1048576).",
        RefusalNumbers(1_048_576, input_only=True),
    ),
    "vertex": (
        "Unable to submit request because the input token count is 32825 but model only supports up to 32760.",
        RefusalNumbers(32_760, 32_825, input_only=True),
    ),
    "vllm": (
        f"{OPENAI}8192 tokens. However, you requested 9000 tokens (8500 in the messages, 500 in the completion).",
        RefusalNumbers(8_192, 8_500, 500),
    ),
    "vllm at least": (
        (
            f"{OPENAI}262144 tokens. However, you requested 128000 output tokens and your prompt contains at least 134145 "
            "input tokens, for a total of at least 262145 tokens. (parameter=input_tokens, value=134145)"
        ),
        RefusalNumbers(262_144, None, 128_000),
    ),
    "vllm no answer": (
        f"{OPENAI}262144 tokens. However, you requested 0 output tokens and your prompt contains at least 262145 input",
        RefusalNumbers(262_144, None, 0),
    ),
    "vllm passed": (
        (
            "You passed 30001 input tokens and requested 4096 output tokens. However, the model's context length is only "
            "32768 tokens, resulting in a maximum input length of 28672 tokens."
        ),
        RefusalNumbers(32_768, 30_001, 4_096),
    ),
    "vllm decoder prompt": (
        "The decoder prompt (length 17772) is longer than the maximum model length of 16384. Make sure that",
        RefusalNumbers(16_384, 17_772),
    ),
    "vllm total length": (
        "The prompt (total length 25938) is too long to fit into the model (context length 4096). Make sure",
        RefusalNumbers(4_096, 25_938),
    ),
    "sglang": (
        "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
        RefusalNumbers(40_960, 61_709),
    ),
    "sglang allowed": (
        "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",
        RefusalNumbers(59_862, 160_062, input_only=True),
    ),
    "sglang with answer": (
        (
            "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of "
            "40000 tokens: 30000 tokens from the input messages and 10000 tokens for the completion."
        ),
        RefusalNumbers(32_768, 30_000, 10_000),
    ),
    "tgi": (
        (
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 3474 `inputs` tokens and "
            "60 `max_new_tokens`"
        ),
        RefusalNumbers(2_048, 3_474, 60),
    ),
    "llama.cpp": (
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        RefusalNumbers(),
    ),
    "llama.cpp sizes": (
        "request (14429 tokens) exceeds the available context size (8192 tokens), try increasing it",
        RefusalNumbers(8_192, 14_429),
    ),
    "llama.cpp fields": (
        (
            '{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context '
            'size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":14429,"n_ctx":8192}}'
        ),
        RefusalNumbers(8_192, 14_429),
    ),
    "llama-cpp-python": ("Requested tokens (2285) exceed context window of 2048", RefusalNumbers(2_048, 2_285)),
    "lm studio": (
        (
            "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context "
            "length of only 32768 tokens, which is not enough."
        ),
        RefusalNumbers(32_768, 111_490),
    ),
    "xai": (
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        RefusalNumbers(131_072, 537_812, input_only=True),
    ),
    "mistral": (
        "Prompt contains 140000 tokens and 0 draft tokens, too large for model with 131072 maximum context length",
        RefusalNumbers(131_072, 140_000),
    ),
    "groq": ("Please reduce the length of the messages or completion.", RefusalNumbers()),
    "cerebras": (
        "Please reduce the length of the messages or completion. Current length is 42328 while limit is 40000",
        RefusalNumbers(40_000, 42_328),
    ),
    "cohere": (
        "too many tokens: total number of tokens (prompt and prediction) cannot exceed 2048 - received 6354. Try using",
        RefusalNumbers(2_048),
    ),
    "moonshot": ("Your request exceeded model token limit: 262144 (requested: 270001)", RefusalNumbers(262_144)),
    "copilot": (
        (
            '{"error":{"message":"prompt token count of 65446 exceeds the limit of 64000","code":"model_max_prompt_tokens_'
            'exceeded"}}'
        ),
        RefusalNumbers(64_000, 65_446, input_only=True),
    ),
    "openrouter": (
        (
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 141607 tokens (130535 "
            "of text input, 64 of tool input, 11008 in the output). Please reduce the length of either one, or use the "
            '"middle-out" transform to compress your prompt automatically.'
        ),
        RefusalNumbers(131_072, 130_599, 11_008),
    ),
    "openrouter without answer": (
        (
            "This endpoint's maximum context length is 16384 tokens. However, you requested about 94307 tokens (94307 of "
            "text input)."
        ),
        RefusalNumbers(16_384),
    ),
    "another": ("The conversation does not fit the context window of 65,536 tokens", RefusalNumbers(65_536)),
}


@pytest.mark.parametrize(("message", "expected"), KNOWN.values(), ids=KNOWN)
def test_known_wordings(message: str, expected: RefusalNumbers) -> None:
    """Limit, size and answer are read from each wording."""
    assert expected == read_refusal(message)


@pytest.mark.parametrize(("message", "expected"), KNOWN.values(), ids=KNOWN)
def test_a_wrapped_refusal_is_read(message: str, expected: RefusalNumbers) -> None:
    """A message is read as well inside JSON, an exception's text, capitals and broken lines."""
    wrapped = "litellm.BadRequestError: Error code: 400 - " + json.dumps({"error": {"message": message}, "code": 400})
    assert expected == read_refusal(wrapped)
    assert expected == read_refusal(message.upper().replace(" ", "\n   "))


@pytest.mark.parametrize(
    "message",
    [
        "",
        "max_tokens for `llama-3.1-8b-instant` must be less than or equal to 8000",
        "The maximum tokens you requested exceeds the model limit of 32768. Try again with a lower value.",
        "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.",
        "prompt is too long: many tokens > few maximum",
        "128000 200000 8192",
    ],
)
def test_nothing_is_learned(message: str) -> None:
    """Other limits, such as an answer's or a minute's that was used up, are not taken for the prompt's."""
    assert RefusalNumbers() == read_refusal(message)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("prompt is too long: 300 tokens > 255 maximum", RefusalNumbers(real_tokens=300)),
        ("prompt is too long: 999999999999 tokens > 200000 maximum", RefusalNumbers(200_000)),
        (f"prompt is too long: 1 tokens > {MOST_TOKENS + 1} maximum", RefusalNumbers()),
        ("prompt is too long: 100 tokens > 200000 maximum", RefusalNumbers(200_000)),
        ("prompt is too long: 150000 tokens > 200000 maximum", RefusalNumbers(200_000)),
        ("prompt is too long: 209,353 tokens > 200,000 maximum", RefusalNumbers(200_000, 209_353)),
        ("prompt is too long: ٣٠٠٠٠ tokens > ٢٠٠٠٠ maximum", RefusalNumbers()),
    ],
)
def test_numbers_are_held_to_their_bounds(message: str, expected: RefusalNumbers) -> None:
    """A number that no model has, and a size that would have fitted, are not believed."""
    assert expected == read_refusal(message)


@pytest.mark.parametrize(
    ("refusal", "reserve", "expected"),
    [
        (RefusalNumbers(), 1_000, None),
        (RefusalNumbers(200_000), 8_000, 192_000),
        (RefusalNumbers(200_000, 199_000, 20_000), 8_000, 180_000),
        (RefusalNumbers(131_072, None, 131_072), 0, 65_536),
        (RefusalNumbers(272_000, 289_650, input_only=True), 8_000, 272_000),
        (RefusalNumbers(262_144, None, 0), 8_000, 262_144),
    ],
)
def test_what_is_left_for_the_prompt(refusal: RefusalNumbers, reserve: int, expected: int | None) -> None:
    """The answer's part is taken off a shared limit, at most half of it; a limit of the prompt alone stands."""
    assert expected == refusal.input_limit(reserve)


def test_only_the_start_is_read() -> None:
    """What stands past the bound is not looked at."""
    message = "prompt is too long: 209353 tokens > 200000 maximum"
    assert RefusalNumbers() == read_refusal("x" * MOST_CHARACTERS + message)
    assert RefusalNumbers(200_000, 209_353) == read_refusal(message + "x" * 1_000_000)


@pytest.mark.parametrize(
    "piece",
    [
        "maximum context length is ",
        "(",
        "1,111",
        "9",
        "context length ",
        "n_ctx: 1 ,",
        "prompt (1) is too long ",
        "\u0130",
    ],
)
def test_hostile_texts_cost_little(piece: str) -> None:
    """A text made to be searched for long is answered as its beginning is, which is all that is read."""
    hostile = piece * (1_000_000 // len(piece))
    assert read_refusal(hostile) == read_refusal(hostile[:MOST_CHARACTERS])


WORDS = [word for message, _ in KNOWN.values() for word in message.split()]


@given(st.text(max_size=600) | st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join))
def test_any_text_is_accepted(message: str) -> None:
    """No text raises, and whatever is learned is within bounds."""
    learned = read_refusal(message)
    for number in (learned.limit, learned.real_tokens):
        assert number is None or LEAST_TOKENS <= number <= MOST_TOKENS
    assert learned.output_tokens is None or 0 <= learned.output_tokens <= MOST_TOKENS
