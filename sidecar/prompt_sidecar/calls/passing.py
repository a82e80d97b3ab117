"""Why a request to an unknown path is forwarded: it may contain a prompt, or does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prompt_sidecar.facts.untrimmed import Untrimmed
from prompt_sidecar.providers.table import may_hold_prompt, passed_at

_NO_JSON: Final = (
    "multipart/",
    "audio/",
    "image/",
    "video/",
    "application/x-www-form-urlencoded",
    "application/x-protobuf",
    "application/pdf",
    "application/zip",
)
"""Content types of bodies that are not JSON. `application/octet-stream` may be: some clients send it if no type is
set."""


def passes(method: str, path: str, headers: Mapping[str, str]) -> Untrimmed:
    """Return why a request to a path of no known API is forwarded untrimmed.

    Args:
        method: the HTTP method.
        path: without the query.
        headers: of the request, names in lower case.
    """
    if "websocket" in headers.get("upgrade", "").lower():
        return Untrimmed.WEBSOCKET
    if method == "POST" and (prompts := passed_at(path)) is not None:
        return Untrimmed(prompts.value)
    has_body = headers.get("content-length", "0").strip() != "0" or "transfer-encoding" in headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    may = method == "POST" and has_body and not kind.startswith(_NO_JSON) and may_hold_prompt(path)
    return Untrimmed.UNKNOWN_PATH if may else Untrimmed.NO_PROMPT
