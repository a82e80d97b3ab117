"""The formats, by name: one row each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prompt_sidecar.prompt import (
    ai_sdk,
    anthropic_messages,
    bedrock_converse,
    conversation,
    gemini_contents,
    mcp_tool_result,
    openai_chat,
    openai_responses,
)
from prompt_sidecar.prompt.format import Format

FORMATS: Final[Mapping[str, Format]] = {
    format_.name: format_
    for format_ in (
        openai_chat.FORMAT,
        anthropic_messages.FORMAT,
        ai_sdk.FORMAT,
        mcp_tool_result.FORMAT,
        openai_responses.FORMAT,
        gemini_contents.FORMAT,
        bedrock_converse.FORMAT,
        conversation.FORMAT,
    )
}
"""A new format is a file in this package and a row above (and a value of the proto's enum, for JSON formats)."""
