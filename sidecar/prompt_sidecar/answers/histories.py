"""Where each format's request holds its history, who said an entry of it, and what an entry is known by.

Just enough to tell conversations apart and to find an answer again. The readers of `prompt/` know everything about a
format and are not needed for that.
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
    """A call of a tool in a history."""

    id: str
    """Empty: it has none."""
    name: str
    arguments: Any
    """JSON's types, or text of JSON; bytes: a digest of them."""

    @property
    def digest(self) -> bytes:
        """What its arguments are known by, however they are written."""
        given = self.arguments
        if isinstance(given, bytes):
            return given
        read = loads(given.encode("utf-8", "surrogatepass")) if isinstance(given, str) and given.strip() else given
        return bytes.fromhex(arguments_digest(read if read is not None else given))

    def digested(self) -> NamedCall:
        """Return the call with a digest in place of its arguments, as it is kept."""
        return replace(self, arguments=self.digest)


class History(ABC):
    """One format's history."""

    api: ClassVar[ProviderApi]
    """What is known of the provider's API."""
    answers_have_entries: ClassVar[bool] = False
    """Whether an answer of the model may be several entries."""

    @property
    def format(self) -> str:
        """The format's name, a key of `prompt_sidecar.prompt.formats.FORMATS`."""
        return self.api.format

    @property
    def messages(self) -> str:
        """The member that holds the history."""
        return self.api.messages

    @property
    def system(self) -> tuple[str, ...]:
        """The members that hold the system prompt, where it is not in the history."""
        return self.api.system

    def agent_tools(self, members: Members) -> list[bytes]:
        """The definitions of the agent's tools."""
        return elements(members.raw("tools")) if "tools" in members else []

    def entries(self, members: Members) -> Iterator[bytes]:
        """The history's entries. Those that are not asked for are not copied."""
        return each_element(members.raw(self.messages))

    def speaker(self, entry: Any) -> str:
        """Who an entry is from: `user`, `model`, or something else."""
        role = member(entry, "role")
        return "model" if role == "assistant" else "user" if role == "user" else "other"

    @abstractmethod
    def text(self, entry: Any) -> str | None:
        """What an entry says, without its calls; None: it is reasoning, which an agent may leave out."""

    @abstractmethod
    def calls(self, entry: Any) -> list[NamedCall]:
        """The calls of tools in an entry."""

    def gist(self, entry: Any) -> str | None:
        """What an entry is known by when an agent sends it back; None: it may be missing then, as reasoning."""
        said = self.text(entry)
        return None if said is None else gist_of(said, [(call.id, call.name) for call in self.calls(entry)])

    def item(self, entry: Any) -> str:  # noqa: ARG002 - of those that know entries by ids
        """The id by which a provider that stores entries knows one; empty: none."""
        return ""

    def referred(self, entry: Any) -> str:  # noqa: ARG002 - as above
        """The id of the stored entry that an entry refers to; empty if it refers to none."""
        return ""


def gist_of(text: str, calls: Sequence[tuple[Any, Any]]) -> str:
    """Return the gist of a text with calls, each an id and a name."""
    return "\x1f".join([text.strip(), *(f"{_label(call_id)}\x1e{_label(name)}" for call_id, name in calls)])


def _label(value: Any) -> Any:
    """An id or a name; an array or an object is none, and may be nested deeper than Python can show."""
    return "" if isinstance(value, list | dict) else value


def named(call_id: Any, name: Any, arguments: Any) -> NamedCall:
    """A call, by what stands where its id and its name should be."""
    return NamedCall(call_id if isinstance(call_id, str) else "", name if isinstance(name, str) else "", arguments)


def arguments_digest(value: Any) -> str:
    """A digest of a call's arguments, the same for `1` and `1.0`: some of Google's libraries know no integers."""
    try:
        text = orjson.dumps(value or {}, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # an integer beyond 64 bits, unless it is nested too deep
        try:
            text = orjson.dumps(orjson.loads(json.dumps(value)), option=orjson.OPT_SORT_KEYS)
        except (orjson.JSONEncodeError, ValueError, RecursionError):  # nested too deep
            return ""
    return blake2b(_INTEGRAL.sub(b"", text), digest_size=16).hexdigest()
