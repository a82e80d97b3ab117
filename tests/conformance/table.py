"""The formats with a validator, one row each."""

from __future__ import annotations

from collections.abc import Mapping

from tests.conformance import (
    ai_sdk,
    anthropic_messages,
    bedrock_converse,
    gemini_contents,
    openai_chat,
    openai_responses,
)
from tests.conformance.case import Case

CASES: Mapping[str, Case] = {
    case.format: case
    for case in (
        openai_chat.CASE,
        anthropic_messages.CASE,
        ai_sdk.CASE,
        openai_responses.CASE,
        gemini_contents.CASE,
        bedrock_converse.CASE,
    )
}
