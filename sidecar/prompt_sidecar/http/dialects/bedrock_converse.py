"""Bedrock's Converse and ConverseStream: trimmed on the way, answers as they come.

The model is in the path. A stream is Amazon's event stream, binary frames with a checksum each.
docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prompt_sidecar.http.dialects.base import Dialect
from prompt_sidecar.serving.histories import ConverseHistory
from prompt_sidecar.serving.untyped import member, objects


class BedrockConverse(ConverseHistory, Dialect):
    """See the module."""

    def arguments(self, answer: Mapping[str, Any]) -> Iterable[tuple[dict[str, Any], str, str]]:
        """Yield what holds each call's arguments."""
        for block in objects(member(answer.get("output"), "message", "content")):
            if isinstance(use := block.get("toolUse"), dict):
                yield use, "input", str(use.get("name"))
