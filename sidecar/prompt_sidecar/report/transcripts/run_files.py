"""A history in one JSON value: this project's run files, one request body, or a bare array of messages.

The prompt of a turn is the messages before an answer of the model, as an agent sends its whole history again at each
call; the last prompt is all of them. A run file may override that by `turns`: the number of messages of each prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from prompt_sidecar.prompt.body import MESSAGES
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.likeness import format_by_members
from prompt_sidecar.providers.table import APIS
from prompt_sidecar.report.transcripts import ai_sdk_ui
from prompt_sidecar.report.transcripts.files import Members, array_of, members_of, text_in, value_in
from prompt_sidecar.report.transcripts.model import CallUsage, RecordedPrompt, Transcript, TranscriptError
from prompt_sidecar.report.transcripts.shapes import format_named, guessed, heads, turns

NOT_A_RUN: Final = (
    'is not a run that can be read: it must be JSON, {"format": …, "messages": […]} or an array of messages with '
    "roles, or a log or session file of a known kind (docs/report.md)"
)
LISTS: Final = tuple(dict.fromkeys(form.messages_field for form in FORMATS.values() if form.is_json))
"""Members with a body's messages."""
_OURS: Final = frozenset({"source", "licence", "format", "turns", "usage"})
"""Members of our run files that no provider's body has."""


def read(path: Path, raw: bytes, named: str | None) -> Transcript:
    """Read a run; `named`: the messages' format if the file does not give it. Raises TranscriptError."""
    members: Members = {}
    if raw.lstrip()[:1] == b"[":
        messages = array_of(raw)
    else:
        members = members_of(raw) or {}
        field = next((name for name in LISTS if name in members), "")
        messages = array_of(bytes(members[field])) if field else None
    if messages is None:
        raise TranscriptError(f"{path} {NOT_A_RUN}")
    return of_messages(path, messages, members, named)


def of_messages(path: Path, messages: Sequence[bytes], members: Members, named: str | None) -> Transcript:
    """Return a run from its messages and the body's other members. Raises TranscriptError."""
    missing: tuple[str, ...] = ()
    if ai_sdk_ui.are(messages):
        messages, missing = ai_sdk_ui.model_messages(messages)
        named = named or ai_sdk_ui.FORMAT
    found = heads(messages)
    if found is None:
        raise TranscriptError(f"{path} {NOT_A_RUN}")
    if not messages:
        raise TranscriptError(f"{path} holds no messages")
    format_name = named or text_in(members, "format")
    form = format_named(path, format_name) if format_name else format_of(members, messages)
    own = bool(_OURS & members.keys())
    model = text_in(members, "model")
    counted = value_in(members, "usage")
    counts = _turns(value_in(members, "turns"), len(messages)) or turns(found, form)
    used = [_usage(one) for one in counted] if isinstance(counted, list) else []
    head = _own_head(members, form) if own else other_members(members)
    return Transcript(
        name=path.name,
        source="run file" if own else "messages",
        form=form,
        prompts=[
            RecordedPrompt(messages[:count], head, model, used[place] if place < len(used) else None)
            for place, count in enumerate(counts)
        ],
        missing=missing,
        lacks_head=own and "tools" not in members,
    )


def format_of(members: Members, messages: Sequence[bytes]) -> str:
    """Return the format of a body, by its members if its messages do not show it."""
    form = format_by_members(members)
    return form if FORMATS[form].messages_field != MESSAGES else guessed(messages, form)


def other_members(members: Members) -> bytes:
    """Return a body without its messages; empty if it has no other member."""
    rest = {name: raw for name, raw in members.items() if name not in LISTS}
    return msgspec.json.encode(rest) if rest else b""


def _own_head(members: Members, form: str) -> bytes:
    """Return the body's members that a run file describes: model, tools and system prompt."""
    taken: dict[str, Any] = {name: members[name] for name in ("model", "tools") if name in members}
    system = text_in(members, "system") or text_in(members, "instructions")
    if system and (member := FORMATS[form].system) is not None:
        taken[member.names[0]] = msgspec.Raw(member.add(None, system))
    if form in APIS and APIS[form].names_model_in_path:
        taken.pop("model", None)
    return msgspec.json.encode(taken) if taken else b""


def _turns(value: Any, most: int) -> list[int]:
    if not isinstance(value, list):
        return []
    return [count for count in value if isinstance(count, int) and 0 < count <= most]


def _usage(value: Any) -> CallUsage | None:
    """Return a run file's usage of a turn: input, cached and output tokens."""
    if not isinstance(value, list) or len(value) < 3 or not all(isinstance(one, int) and one >= 0 for one in value):
        return None
    return CallUsage(input=value[0], cached=value[1], output=value[2])
