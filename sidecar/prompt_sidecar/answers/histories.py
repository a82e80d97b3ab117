"""Where each format's request has its history, whom an entry is from, and what identifies an entry.

Only as much as is needed to distinguish conversations and to find an answer again. The readers in `prompt/` handle
formats completely and are not needed for that.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, ClassVar, Final

import orjson

from prompt_sidecar.prompt.members import Members, each_element, elements, loads
from prompt_sidecar.providers.api import ProviderApi
from prompt_sidecar.providers.untyped import member

_INTEGRAL: Final = re.compile(rb"(?<=\d)\.0+(?![\d.eE])")


@dataclass(frozen=True, slots=True)
class NamedCall:
    """A tool call in a history."""

    id: str
    """The call's id; empty if it has none."""
    name: str
    arguments: Any
    """JSON types, or JSON text; bytes: a digest of them."""

    @property
    def digest(self) -> bytes:
        """Return a digest of its arguments that does not depend on how they are written."""
        given = self.arguments
        if isinstance(given, bytes):
            return given
        read = loads(given.encode("utf-8", "surrogatepass")) if isinstance(given, str) and given.strip() else given
        return bytes.fromhex(arguments_digest(read if read is not None else given))

    def digested(self) -> NamedCall:
        """Return the call with a digest in place of its arguments, for keeping."""
        return replace(self, arguments=self.digest)


class History(ABC):
    """One format's history."""

    api: ClassVar[ProviderApi]
    """The provider's API."""
    answers_have_entries: ClassVar[bool] = False
    """Whether an answer of the model may be several entries."""

    @property
    def format(self) -> str:
        """The format's name, a key of `prompt_sidecar.prompt.formats.FORMATS`."""
        return self.api.format

    @property
    def messages(self) -> str:
        """The member that contains the history."""
        return self.api.messages

    @property
    def system(self) -> tuple[str, ...]:
        """The members that contain the system prompt, if it is not in the history."""
        return self.api.system

    def agent_tools(self, members: Members) -> list[bytes]:
        """Return the definitions of the agent's tools."""
        return elements(members.raw("tools")) if "tools" in members else []

    def entries(self, members: Members) -> Iterator[bytes]:
        """Yield the history's entries; only those consumed are copied."""
        return each_element(members.raw(self.messages))

    def speaker(self, entry: Any) -> str:
        """Return whom an entry is from: `user`, `model`, or another name."""
        role = member(entry, "role")
        return "model" if role == "assistant" else "user" if role == "user" else "other"

    @abstractmethod
    def text(self, entry: Any) -> str | None:
        """Return an entry's text, without its calls; None for reasoning, which an agent may leave out."""

    @abstractmethod
    def calls(self, entry: Any) -> list[NamedCall]:
        """Return the tool calls in an entry."""

    def gist(self, entry: Any) -> str | None:
        """Return what identifies an entry when an agent sends it back; None if it may be left out, like reasoning."""
        text = self.text(entry)
        return None if text is None else gist_of(text, [(call.id, call.name) for call in self.calls(entry)])

    def item(self, entry: Any) -> str:  # noqa: ARG002 - of those that know entries by ids
        """Return an entry's id at a provider that stores entries, or an empty string."""
        return ""

    def referred(self, entry: Any) -> str:  # noqa: ARG002 - as above
        """The id of the stored entry that an entry refers to; empty if it refers to none."""
        return ""


def gist_of(text: str, calls: Sequence[tuple[Any, Any]]) -> str:
    """Return the gist of a text with calls, each an id and a name."""
    return "\x1f".join([text.strip(), *(f"{_label(call_id)}\x1e{_label(name)}" for call_id, name in calls)])


def _label(value: Any) -> Any:
    """Return an id or a name; empty for arrays and objects, which may be nested more deeply than Python can print."""
    return "" if isinstance(value, list | dict) else value


def named(call_id: Any, name: Any, arguments: Any) -> NamedCall:
    """Return a call from the values in place of its id and its name."""
    return NamedCall(call_id if isinstance(call_id, str) else "", name if isinstance(name, str) else "", arguments)


def arguments_digest(value: Any) -> str:
    """Return a digest of a call's arguments, the same for `1` and `1.0`: some Google libraries have no integers."""
    try:
        text = orjson.dumps(value or {}, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # an integer beyond 64 bits, unless it is nested too deeply
        try:
            text = orjson.dumps(orjson.loads(json.dumps(value)), option=orjson.OPT_SORT_KEYS)
        except (orjson.JSONEncodeError, ValueError, RecursionError):  # nested too deeply
            return ""
    return blake2b(_INTEGRAL.sub(b"", text), digest_size=16).hexdigest()
