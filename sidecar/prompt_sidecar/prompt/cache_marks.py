"""Marks at which a provider caches a prompt: recognised in an agent's prompt, or added to it.

By the APIs' documentation (read in November 2026):

- Anthropic, "Prompt caching": `cache_control` on a block of `system`, of a message or of `tools`, at most four in a
  request; not on thinking, and not on an empty text. At each mark a prefix is written, and one that was written at most
  20 blocks before is looked for. A member `cache_control` of the body has the API place one itself.
- Amazon Bedrock, "Prompt caching": a block `cachePoint` behind what is cached, in `system`, in the content of a message
  and in `toolConfig.tools`, at most four. Models that do not cache refuse it.
- OpenAI, "Prompt caching", "Prompt cache breakpoints", and the types of openai-python 3.57: from GPT-5.6 on
  `prompt_cache_breakpoint` on a part of a message of system, developer or user, or of a tool's output, not on
  `instructions`, tools, or what the model said; at most four writes, one of which the API places itself at the newest
  user or tool message. `prompt_cache_options` says whether it does. `prompt_cache_key` joins requests that begin alike.

Only the marked part of a value is encoded again: everything else in it keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from prompt_sidecar.errors import InvalidJson, TooLarge
from prompt_sidecar.prompt.body import elements_of, members_of

MOST_MARKS: Final = 4
"""Marks in one request, by all three APIs."""
_DEEPEST: Final = 4
"""Depth in a value at which marks are searched: a block in a tool's result is at the third level."""
_HOLDERS: Final = ("content", "output", "tools")
"""Members of blocks, messages and bodies whose values may be marked; others have the agent's data."""


@dataclass(frozen=True, slots=True)
class CacheMarks:
    """How prompts of a format are marked."""

    name: str
    """The member that marks a block, or the only member of a mark's own block."""
    value: bytes
    """The mark's value, as JSON."""
    as_block: bool
    """Whether a mark is a block of its own, after the marked block."""
    text: bytes
    """The beginning of a text part, up to the text, for messages whose content is only a text."""
    roles: frozenset[str]
    """Messages with these roles are marked."""
    at_newest: bool
    """Whether the newest message has to be marked; false: the API does it itself."""
    leads: frozenset[str]
    """Roles of leading messages that are the system prompt; empty: it is a member of the body."""
    places_itself: tuple[str, ...]
    """Members of a body by which an agent controls caching itself."""
    takes: Callable[[str], bool]
    """Whether a model accepts marks, by its name."""

    def holds(self, raw: bytes) -> bool:
        """Whether an agent's value, such as a message, has a mark; False if it cannot be read."""
        if b'"%s"' % self.name.encode() not in raw:
            return False
        try:
            return self._marked(orjson.loads(raw), _DEEPEST)
        except orjson.JSONDecodeError:
            return False

    def _marked(self, value: Any, depth: int) -> bool:
        if type(value) is list:
            return depth > 0 and any(self._marked(each, depth - 1) for each in value)
        if type(value) is not dict:
            return False
        return value.get(self.name) is not None or any(self._marked(value.get(name), depth) for name in _HOLDERS)

    def role(self, raw: bytes) -> str:
        """Return the role of a message; empty if it has none that can be read."""
        try:
            role = orjson.loads(members_of(raw).get("role", b'""'))
        except (InvalidJson, TooLarge, orjson.JSONDecodeError):
            return ""
        return role if type(role) is str else ""

    def message(self, raw: bytes) -> bytes | None:
        """Return a message with a mark at its end, or None if it cannot have one."""
        try:
            members = members_of(raw)
            holder = "output" if "output" in members else "content"
            if holder == "content" and self.role(raw) not in self.roles:
                return None
            # The effect of a text's conversion in a tool's output is not documented, so it stays a text.
            words = holder == "content" and members.get("role") != b'"tool"'
            marked = self.blocks(members.get(holder, b""), words=words)
        except (InvalidJson, TooLarge):
            return None
        if marked is None:
            return None
        members[holder] = marked
        try:
            return b"{" + b",".join(orjson.dumps(name) + b":" + value for name, value in members.items()) + b"}"
        except TypeError:  # a name with a lone surrogate
            return None

    def blocks(self, raw: bytes, *, words: bool = True, leave: int = 0) -> bytes | None:
        """Return an array of blocks, or a text as one, with a mark; None if it cannot have one.

        Args:
            raw: as JSON.
            words: whether a text may become an array.
            leave: number of blocks at the end that stay after the mark.

        Raises:
            InvalidJson: it cannot be read.
        """
        raw = raw.strip()
        if raw[:1] == b'"':
            blocks = [self.text + raw + b"}"] if words and raw != b'""' else []
        else:
            blocks = elements_of(raw) if raw[:1] == b"[" else []
        at = len(blocks) - leave - 1
        if at < 0:
            return None
        marked = self._block(blocks[at])
        if marked is None:
            return None
        blocks[at : at + 1] = marked
        return b"[" + b",".join(blocks) + b"]"

    def _block(self, raw: bytes) -> list[bytes] | None:
        """Return a block and its mark, or None if it cannot have one."""
        raw = raw.strip()
        if raw[:1] != b"{":
            return None
        members = members_of(raw)
        if not members or self.name in members or members.get("text") == b'""':
            return None
        if self.as_block:
            return [raw, b'{"%s":%s}' % (self.name.encode(), self.value)]
        return [raw[:-1].rstrip() + b',"%s":%s}' % (self.name.encode(), self.value)]
