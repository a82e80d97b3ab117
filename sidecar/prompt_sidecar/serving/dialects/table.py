"""All dialects, by the format of their prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prompt_sidecar.serving.dialects.anthropic_messages import AnthropicMessages
from prompt_sidecar.serving.dialects.base import Dialect
from prompt_sidecar.serving.dialects.bedrock_converse import BedrockConverse
from prompt_sidecar.serving.dialects.gemini_contents import GeminiContents
from prompt_sidecar.serving.dialects.openai_chat import OpenAIChat
from prompt_sidecar.serving.dialects.openai_responses import OpenAIResponses

DIALECTS: Final[Mapping[str, Dialect]] = {
    each.format: each
    for each in (OpenAIChat(), OpenAIResponses(), AnthropicMessages(), GeminiContents(), BedrockConverse())
}
