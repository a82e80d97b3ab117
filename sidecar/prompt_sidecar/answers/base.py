"""The interface to a provider's API that the doors to providers need.

Theory. The model is offered the agent's tools and the sidecar's. One answer of the model is a *turn*. Calls of the
sidecar's tools in a turn are never sent to the agent:

    only text, or calls of the agent's        the agent gets it
    calls of the sidecar's alone              a hidden turn: answered here, and the model is asked again
    both                                      the agent gets its own calls; ours are answered when it sends its results

So one answer to the agent may be made of several turns of the model: the text of a hidden turn is sent to the agent, as
it is streamed before the turn is known to be hidden; its thinking is not. The agent's copy of the answer then differs
from the model's turns. A splice (`doors/http/hidden.py`) restores the turns in later requests. It finds the agent's
copy by its *gist*: its text without surrounding space, and the ids and names of its calls; if an agent sends the copy
back changed, by the parts that are left of it (`doors/http/placing.py`).

A dialect is functions over JSON; its `Filter` turns a stream's events into the bytes for the agent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, Protocol

import orjson

from prompt_sidecar.answers.answer_json import read, write, write_sound
from prompt_sidecar.answers.histories import History, NamedCall
from prompt_sidecar.answers.restoring import Restore, StreamedArguments
from prompt_sidecar.answers.sse import EVENTS, Event, Splitter
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.prompt.members import Members, appended, array, elements, loads
from prompt_sidecar.providers.surrogates import sound
from prompt_sidecar.providers.untyped import member, string, token_count
from prompt_sidecar.providers.usage import ProviderUsage

BETWEEN: Final = "\n\n"
"""Separator between the texts of two turns, if an answer has one text."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call in a turn."""

    id: str
    name: str
    arguments: str
    """JSON text, as the model wrote it."""


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One answer of the model."""

    entries: Sequence[Any] = ()
    """Its entries in the history, in the format's own form."""
    own: Sequence[Call] = ()
    """Calls of the sidecar's tools."""
    waits: bool = False
    """Whether the agent has to answer calls in it."""
    whole: bool = True
    """Whether it ended normally. A turn that was cut off may contain an incomplete call."""
    usage: ProviderUsage | None = None
    """The provider's usage, or None."""
    id: str = ""
    """The id under which the provider stores it; empty if it does not."""
    compaction: str = ""
    """A compaction that the provider has made in it, or an empty string. See `Messages.compaction`."""
    finish: str = ""
    """Why the model stopped, in the form for spans; empty if unknown. See `ProviderApi.finish_reason`."""
    response_id: str = ""
    """The provider's id of it, whether it is stored or not; empty if it has none to continue from."""

    @property
    def hidden(self) -> bool:
        """Whether the sidecar answers it."""
        return bool(self.own) and not self.waits and self.whole

    @property
    def mixed(self) -> bool:
        """Whether the sidecar's results are only given together with the agent's."""
        return bool(self.own) and self.waits and self.whole


@dataclass(slots=True)
class EarlierTurns:
    """The content that the turns before the last one gave the agent, in one answer."""

    texts: list[Any] = field(default_factory=list)
    """Their text: blocks, items or strings, depending on the format."""
    output_tokens: int = 0


class Filter(ABC):
    """Processes a stream's events, turn by turn, and returns the bytes for the agent."""

    def __init__(self, dialect: Dialect, own: Collection[str]) -> None:
        """`own` are the names of the sidecar's tools that were offered."""
        self.dialect = dialect
        self.own = own
        self.restore: Restore | None = None
        """Restores masks in the agent's calls; None if there is nothing to restore."""
        self.turns = 0
        """Number of turns that have begun."""
        self.ended = False
        """Whether all calls of the turn are known."""
        self.ids: tuple[str, str] | None = None
        """The id that the agent was given and the provider's id, if they differ."""
        self.output_before = 0
        """Output tokens of the turns before this one."""
        self.last = False
        """Whether this turn is the last one, even if it only calls the sidecar's tools."""
        self.left_out = False
        """Whether an event for the sidecar alone was left out, in any turn."""
        self._decided_to_hide: bool | None = None
        self._undo: list[Callable[[], object]] = []
        """Functions that undo the last event's changes to the waiting bytes, in order."""

    def begin(self) -> None:
        """Begin a turn."""
        self.turns += 1
        self.ended = False
        self._waiting: dict[Any, StreamedArguments] = {}
        """Calls whose arguments are partly waiting, by the dialect's key of a call."""
        self._held: list[Callable[[], bytes]] = []
        """Functions that send the waiting events, in order; for example, reasoning waits until the turn has visible
        content."""
        self._decided_to_hide = None

    @property
    def renumbers(self) -> bool:
        """Whether the agent's indexes differ from the provider's."""
        return self.left_out or self.turns > 1

    @abstractmethod
    def feed(self, event: Event) -> bytes:
        """Process an event; return the bytes to send to the agent now."""

    def _behind(self, send: Callable[[], bytes]) -> bytes:
        """Send an event behind those that wait; return the bytes to send now."""
        if not self._held:
            return send()
        self._held.append(send)
        return b""

    def _flushed(self) -> bytes:
        """Send the waiting events."""
        held, self._held = self._held, []
        return b"".join([send() for send in held])

    def stopped(self) -> Any:
        """Return why the model stopped, from the stream; None if it has not."""
        return None

    @property
    def finish(self) -> str:
        """Return the same in the form for spans; empty if unknown."""
        return self.dialect.api.finish_reason(self.stopped())

    def waits(self) -> bool:
        """Whether a part of a call's arguments is waiting."""
        return bool(self._waiting)

    def keep(self) -> None:
        """Note that an event was processed successfully."""
        self._undo.clear()

    def undo(self) -> None:
        """Undo an event that failed and is forwarded unchanged: the waiting bytes are those from before it."""
        while self._undo:
            self._undo.pop()()

    def _wait(self, call: Hashable, arguments: StreamedArguments | None) -> None:
        """Note whether a part of a call's arguments is waiting; `arguments` is None if not."""
        if arguments is None:
            self._waiting.pop(call, None)
        else:
            self._waiting[call] = arguments

    def _give(self, call: Hashable, arguments: StreamedArguments, piece: str) -> str:
        """Process a piece of a call's arguments; return the part to send now."""
        self._undo += (partial(self._wait, call, self._waiting.get(call)), arguments.undo())
        goes_on = arguments.feed(piece)
        self._wait(call, arguments if arguments.waits else None)
        return goes_on

    def _release(self, call: Hashable) -> str:
        """Return the waiting part of a call's arguments, which have ended or are forwarded unchanged."""
        arguments = self._waiting.pop(call, None)
        if arguments is None:
            return ""
        self._undo += (partial(self._wait, call, arguments), arguments.undo())
        return arguments.rest()

    def hides(self) -> bool:
        """Whether this is a hidden turn. Decided once: events behind a turn's end change nothing."""
        if self._decided_to_hide is not None:
            return self._decided_to_hide
        hides = not self.last and self.turn().hidden
        if self.ended:
            self._decided_to_hide = hides
        return hides

    def rest(self) -> bytes:
        """Return the waiting bytes, as the turn's stream has ended."""
        return b""

    @abstractmethod
    def turn(self) -> ModelTurn:
        """Return the turn as received so far."""

    @abstractmethod
    def counted(self) -> ProviderUsage | None:
        """Return the turn's usage as reported so far, or None."""

    @abstractmethod
    def visible(self) -> Sequence[Any]:
        """Return the entries that the agent has of the answer."""


class EventSplitter(Protocol):
    """Splits a stream's bytes into events."""

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that `chunk` completes. Raises BrokenStream."""

    def may_end(self, chunk: bytes) -> bool:
        """Whether `feed` of `chunk` may return an event or raise. If not, it takes no longer for a long event."""

    def last(self) -> list[Event]:
        """Return the events at the stream's end. Raises BrokenStream."""


class Dialect(History):
    """One provider's API."""

    streamed: ClassVar[str] = EVENTS
    """The content type of its streams."""
    calls_may_come_first: ClassVar[bool] = True
    """Whether the provider accepts a history that begins with calls of the model."""

    # -- requests --------------------------------------------------------------------------------------------------

    @abstractmethod
    def recall(self, members: Members) -> RecallOffer:
        """Whether the sidecar's tools may be added: if the model gives one answer, and they do not change it.

        `FORCED`: the model must call any of the tools. If it must call one by name, or none, more tools change nothing.
        """

    def narrow(self, members: Members) -> bool:  # noqa: ARG002 - of those that can
        """Make a model that must call any tool call one of the agent's; return False if the API cannot express that."""
        return False

    def tool_name(self, definition: Any) -> str:
        """Return the name in a tool's definition, or an empty string."""
        return string(self.api.tool_name(definition))

    def tool_names(self, members: Members) -> frozenset[str]:
        """Return the names of the agent's tools."""
        return frozenset(self.tool_name(loads(each)) for each in self.agent_tools(members))

    def offer(self, members: Members, definitions: Sequence[bytes]) -> None:
        """Add the sidecar's tools behind the agent's."""
        members.set("tools", array([*self.agent_tools(members), *definitions]))

    def withdraw(self, members: Members, names: Collection[str]) -> None:
        """Remove tools that were offered, by their names."""
        kept = [each for each in elements(members.raw("tools")) if self.tool_name(loads(each)) not in names]
        members.set("tools", array(kept))

    @abstractmethod
    def forbid_tools(self, members: Members, answers: Sequence[Any]) -> None:
        """Make the model answer without tools; `answers` are the entries that will be the last ones."""

    def answers(self, results: Sequence[tuple[Call, str, bool]]) -> list[Any]:
        """Return entries that answer calls, each with a text and whether it is an error."""
        return self.api.joined(
            [self.api.tool_result(call.id, call.name, text, is_error=is_error) for call, text, is_error in results]
        )

    def joined(self, answers: Sequence[Any], following: Sequence[bytes]) -> list[bytes]:
        """Put the sidecar's results before the agent's results of the same turn, which begin `following`."""
        return [*map(orjson.dumps, answers), *following]

    @abstractmethod
    def own_calls(self, entries: Sequence[Any], own: Collection[str]) -> list[Any]:
        """Return the calls of the sidecar's tools in a turn's entries, in the format's own form."""

    @abstractmethod
    def calling(self, entries: Sequence[Any], own: Collection[str]) -> list[Any]:
        """Return a turn's entries with only these calls: without the agent's calls and the model's text."""

    @abstractmethod
    def called_too(self, entries: Sequence[bytes], calls: Sequence[bytes]) -> list[bytes]:
        """Return an agent's entries of an answer, with these calls of the sidecar's tools, as JSON, added."""

    def continued(self, history: bytes, added: Sequence[bytes]) -> bytes:
        """Return the array of a history with a hidden turn added: the model's entries, and the results."""
        return appended(history, added)

    def continues_stored(self, members: Members) -> bool:
        """Whether a request continues from a history that the provider stores."""
        return any(members.get(name) for name in self.api.stored)

    def stored_id(self, members: Members) -> str:
        """Return the id of the stored response that a request continues from; empty if none is named."""
        return next((string(members.get(name)) for name in self.api.stored), "")

    def go_on_from(self, members: Members, stored_id: str) -> None:
        """Make a request that continues from a stored response continue from another one."""
        for name in self.api.stored[:1]:
            members.set(name, write(stored_id))

    def begin_anew(self, members: Members) -> None:
        """Remove the stored response that a request continues from, as the request has the whole history."""
        for name in self.api.stored[:1]:
            members.drop(name)

    def as_entries(self, members: Members) -> None:
        """Write a history that is one text as entries, so that more can be added."""

    def sendable(self, entries: Sequence[Any], members: Members) -> Sequence[Any]:
        """Return a turn's entries in a form that a later request like this one may contain."""
        del members
        return entries

    def finished(self, entries: Sequence[Any]) -> Sequence[Any]:
        """Return the entries of an answer that was cut off, without incomplete ones, such as a part of a call."""
        return entries

    def gists(self, entries: Sequence[Any]) -> list[str | None]:
        """Return the gists of the model's entries in a history; for other entries empty strings."""
        return [self.gist(entry) if self.speaker(entry) == "model" else "" for entry in entries]

    # -- answers ---------------------------------------------------------------------------------------------------

    def arguments(self, answer: Mapping[str, Any]) -> Iterable[tuple[dict[str, Any], str, str]]:
        """Yield the object and the member that hold each call's arguments in a whole answer, and the tool's name."""
        return self.api.call_places(answer)

    @abstractmethod
    def read(self, answer: Mapping[str, Any], own: Collection[str]) -> ModelTurn:
        """Read a whole answer."""

    def awaited(self, entry: Any) -> list[NamedCall]:
        """Return the tool calls in an entry that need a result."""
        return self.calls(entry)

    def turn_of(
        self,
        entries: Sequence[Any],
        own: Collection[str],
        usage: ProviderUsage | None,
        *,
        whole: bool,
        waits: bool = False,
        finish: Any = None,
        id: str = "",
        response_id: str = "",
    ) -> ModelTurn:
        """Return a turn with these entries.

        `waits`: whether it waits for the agent for any reason other than calls; `finish`: the answer's stop reason.
        """
        calls = [call for entry in entries for call in self.awaited(entry)]
        ours = [Call(sound(call.id), call.name, _text(call.arguments)) for call in calls if call.name in own]
        compaction = "".join(map(self.api.compaction, entries))
        return ModelTurn(
            entries,
            ours,
            waits or len(ours) < len(calls),
            whole,
            usage,
            id,
            compaction=compaction,
            finish=self.api.finish_reason(finish),
            response_id=response_id,
        )

    @abstractmethod
    def show(self, shown: EarlierTurns, turn: ModelTurn) -> None:
        """Keep the part of a hidden turn that the agent got."""

    @abstractmethod
    def written(self, answer: dict[str, Any], shown: EarlierTurns, own: Collection[str]) -> Sequence[Any]:
        """Turn the last answer into the one for the agent, in place; return the entries that the agent then has."""

    def splitter(self, most_bytes: int) -> EventSplitter:
        """Create a splitter of the stream into events of at most `most_bytes`."""
        return Splitter(most_bytes)

    @abstractmethod
    def filter(self, own: Collection[str], members: Members | None) -> Filter:
        """Create a filter for one stream to the agent, given its request."""

    @abstractmethod
    def stream_error(self, status: int, body: bytes) -> bytes:
        """End a stream that has begun with a provider's error, as the provider would."""


def _text(arguments: Any) -> str:
    """Return arguments as JSON text."""
    return sound(arguments) if isinstance(arguments, str) else write_sound(arguments or {}).decode()


def add_output(usage: Any, name: str, before: int, total: str = "total_tokens") -> None:
    """Add the output of earlier turns to a usage, so that its member `name` counts the whole answer."""
    if before and isinstance(usage, dict) and token_count(usage, name) is not None:
        usage[name] += before
        if token_count(usage, total) is not None:
            usage[total] += before


def error_text(body: bytes, status: int) -> str:
    """Return the message of a provider's error."""
    found = read(body)
    message = member(found, "error", "message") or member(found, "message") or member(found, "error")
    return message if isinstance(message, str) else f"the provider answered with status {status}"
