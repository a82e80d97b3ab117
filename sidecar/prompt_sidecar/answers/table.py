"""All dialects, by the format of their prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prompt_sidecar.answers.anthropic_messages import AnthropicMessages
from prompt_sidecar.answers.base import Dialect
from prompt_sidecar.answers.bedrock_converse import BedrockConverse
from prompt_sidecar.answers.gemini_contents import GeminiContents
from prompt_sidecar.answers.openai_chat import OpenAIChat
from prompt_sidecar.answers.openai_responses import OpenAIResponses

DIALECTS: Final[Mapping[str, Dialect]] = {
    each.format: each
    for each in (OpenAIChat(), OpenAIResponses(), AnthropicMessages(), GeminiContents(), BedrockConverse())
}
