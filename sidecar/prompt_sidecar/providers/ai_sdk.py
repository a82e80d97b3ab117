"""Messages of Vercel's AI SDK (`ModelMessage`), which no provider accepts: the SDK translates them itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from prompt_sidecar.providers.messages import (
    Format,
    FormatMessages,
    Message,
    has_type,
    parts_of,
    role_of,
    texts_of,
    value_of,
)


class AiSdk(FormatMessages):
    """See the module."""

    format: ClassVar[Format] = "ai_sdk"
    system: ClassVar[tuple[str, ...]] = ("system",)

    def from_model(self, message: Message) -> bool:
        """See `FormatMessages`."""
        return bool(role_of(message) == "assistant")

    def calls(self, message: Message) -> list[str]:
        """See `FormatMessages`."""
        return texts_of([part for part in parts_of(message) if has_type(part, "tool-call")], "toolCallId")

    def answers(self, message: Message) -> list[str]:
        """See `FormatMessages`."""
        return texts_of(parts_of(message), "toolCallId") if role_of(message) == "tool" else []

    def compaction(self, message: Message) -> str:
        """See `FormatMessages`. It is Anthropic's compaction, as a text."""
        return "".join(texts_of([part for part in parts_of(message) if _is_compaction(part)], "text"))

    def words(self, message: Message) -> Message | None:
        """See `FormatMessages`."""
        return None if role_of(message) in ("assistant", "tool") else message


def _is_compaction(part: Any) -> bool:
    options = value_of(part, "providerOptions")
    return isinstance(options, Mapping) and any(has_type(each, "compaction") for each in options.values())
