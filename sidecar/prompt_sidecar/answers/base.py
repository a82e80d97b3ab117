"""What the doors to providers need from a provider's API.

Theory. The model is offered the agent's tools and the sidecar's. What it answers is a *turn*. Of a turn, calls of the
sidecar's tools are never the agent's business:

    only text, or calls of the agent's        the agent gets it
    calls of the sidecar's alone              a hidden turn: answered here, and the model is asked again
    both                                      the agent gets its own calls; ours are answered when it sends its results

So one answer to the agent may be made of several turns of the model: text of a hidden turn is shown, as it flows before
it is known that the turn is one; its thinking is not. What the agent holds then is not what the model said. A splice
(`doors/http/hidden.py`) puts that back into later requests, found by the *gist* of what the agent holds: its text
without space at the ends, and the ids and names of its calls; where an agent sends that back otherwise, by what is left
of it (`doors/http/placing.py`).

A dialect is functions over JSON; its `Filter` takes a stream's events and gives what goes on to the agent.
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
"""Between the texts of two turns, where an answer has one text."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool in a turn."""

    id: str
    name: str
    arguments: str
    """JSON text, as the model wrote it."""


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One answer of the model."""

    entries: Sequence[Any] = ()
    """What it adds to the history, in the format's own form."""
    own: Sequence[Call] = ()
    """Calls of the sidecar's tools."""
    waits: bool = False
    """Whether the agent has to answer something in it."""
    whole: bool = True
    """Whether it ended by itself. One that was cut off may hold half a call."""
    usage: ProviderUsage | None = None
    """What the provider counted; None: it did not say."""
    id: str = ""
    """What the provider stores it under; empty: it does not."""
    compaction: str = ""
    """A compaction that the provider has made in it; empty: none. See `Messages.compaction`."""
    finish: str = ""
    """Why the model stopped, as spans have it; empty if unknown. See `ProviderApi.finish_reason`."""
    response_id: str = ""
    """The provider's id of it, whether it is stored or not; empty: it has none that one can go on from."""

    @property
    def hidden(self) -> bool:
        """Whether it is answered here."""
        return bool(self.own) and not self.waits and self.whole

    @property
    def mixed(self) -> bool:
        """Whether the agent's results are waited for before the sidecar's are given."""
        return bool(self.own) and self.waits and self.whole


@dataclass(slots=True)
class EarlierTurns:
    """What the turns before the last one gave the agent, in one answer."""

    texts: list[Any] = field(default_factory=list)
    """Their text: blocks, items or strings, as the format has them."""
    output_tokens: int = 0


class Filter(ABC):
    """Takes a stream's events, turn by turn, and gives what the agent is sent."""

    def __init__(self, dialect: Dialect, own: Collection[str]) -> None:
        """`own` are the names of the sidecar's tools that were offered."""
        self.dialect = dialect
        self.own = own
        self.restore: Restore | None = None
        """Restores masks in the agent's calls; None: there is nothing to restore."""
        self.turns = 0
        """Turns that have begun."""
        self.ended = False
        """Whether all calls of the turn are known."""
        self.ids: tuple[str, str] | None = None
        """The id that the agent was given and the provider's, where they differ."""
        self.output_before = 0
        """Output tokens of the turns before this one."""
        self.last = False
        """Whether this turn is the answer, even if it calls the sidecar's tools alone."""
        self.left_out = False
        """Whether something was kept from the agent that is not its business, in any turn."""
        self._decided_to_hide: bool | None = None
        self._undo: list[Callable[[], object]] = []
        """What takes back what the last event has changed of what waits, in order."""

    def begin(self) -> None:
        """A turn begins."""
        self.turns += 1
        self.ended = False
        self._waiting: dict[Any, StreamedArguments] = {}
        """The calls of which a part of their arguments waits, by what the dialect knows a call as."""
        self._held: list[Callable[[], bytes]] = []
        """What sends the events that wait, such as those of reasoning until the turn shows something, in order."""
        self._decided_to_hide = None

    @property
    def renumbers(self) -> bool:
        """Whether the agent's indexes are not the provider's any more."""
        return self.left_out or self.turns > 1

    @abstractmethod
    def feed(self, event: Event) -> bytes:
        """Take an event; return what goes on to the agent now."""

    def _behind(self, send: Callable[[], bytes]) -> bytes:
        """Send an event behind those that wait; return what goes on now."""
        if not self._held:
            return send()
        self._held.append(send)
        return b""

    def _flushed(self) -> bytes:
        """Send what waits."""
        held, self._held = self._held, []
        return b"".join([send() for send in held])

    def stopped(self) -> Any:
        """Return why the model stopped, as the stream has said it; None: it has not."""
        return None

    @property
    def finish(self) -> str:
        """The same as spans have it; empty if unknown."""
        return self.dialect.api.finish_reason(self.stopped())

    def waits(self) -> bool:
        """Whether a part of a call's arguments has not gone on yet."""
        return bool(self._waiting)

    def keep(self) -> None:
        """Note that an event was taken as it should be."""
        self._undo.clear()

    def undo(self) -> None:
        """Take back an event that failed, and goes on as it came: what waits is what has waited before it."""
        while self._undo:
            self._undo.pop()()

    def _wait(self, call: Hashable, arguments: StreamedArguments | None) -> None:
        """Note whether a part of a call's arguments waits; None: nothing does."""
        if arguments is None:
            self._waiting.pop(call, None)
        else:
            self._waiting[call] = arguments

    def _give(self, call: Hashable, arguments: StreamedArguments, piece: str) -> str:
        """Take a piece of a call's arguments; return what goes on now."""
        self._undo += (partial(self._wait, call, self._waiting.get(call)), arguments.undo())
        goes_on = arguments.feed(piece)
        self._wait(call, arguments if arguments.waits else None)
        return goes_on

    def _release(self, call: Hashable) -> str:
        """Return what has waited of a call's arguments, which are over or go on as they come."""
        arguments = self._waiting.pop(call, None)
        if arguments is None:
            return ""
        self._undo += (partial(self._wait, call, arguments), arguments.undo())
        return arguments.rest()

    def hides(self) -> bool:
        """Whether the turn is answered here. That is decided once: what comes behind a turn's end changes nothing."""
        if self._decided_to_hide is not None:
            return self._decided_to_hide
        hides = not self.last and self.turn().hidden
        if self.ended:
            self._decided_to_hide = hides
        return hides

    def rest(self) -> bytes:
        """Return what has waited, as the turn's stream has ended."""
        return b""

    @abstractmethod
    def turn(self) -> ModelTurn:
        """Return the turn, as far as its stream has come."""

    @abstractmethod
    def counted(self) -> ProviderUsage | None:
        """Return what the provider has counted so far of the turn; None: it did not say."""

    @abstractmethod
    def visible(self) -> Sequence[Any]:
        """Return what the agent holds of the answer, as entries of the history."""


class EventSplitter(Protocol):
    """Takes a stream's bytes as they arrive and gives its events when they are whole."""

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that `chunk` completes. Raises BrokenStream."""

    def last(self) -> list[Event]:
        """Return what the stream ended with. Raises BrokenStream."""


class Dialect(History):
    """One provider's API."""

    streamed: ClassVar[str] = EVENTS
    """The content type of its streams."""
    calls_may_come_first: ClassVar[bool] = True
    """Whether the provider takes a history that begins with calls of the model."""

    # -- requests --------------------------------------------------------------------------------------------------

    @abstractmethod
    def recall(self, members: Members) -> RecallOffer:
        """Whether the sidecar's tools may join the agent's: where the model gives one answer, which they do not change.

        `FORCED`: it must call any of the tools. Where it must call some by name, or none, more tools change nothing.
        """

    def narrow(self, members: Members) -> bool:  # noqa: ARG002 - of those that can
        """Have a model that must call any tool call one of the agent's; False: the API cannot say that."""
        return False

    def tool_name(self, definition: Any) -> str:
        """The name in a tool's definition; empty: it has none."""
        return string(self.api.tool_name(definition))

    def tool_names(self, members: Members) -> frozenset[str]:
        """The names of the agent's tools."""
        return frozenset(self.tool_name(loads(each)) for each in self.agent_tools(members))

    def offer(self, members: Members, definitions: Sequence[bytes]) -> None:
        """Add the sidecar's tools behind the agent's."""
        members.set("tools", array([*self.agent_tools(members), *definitions]))

    def withdraw(self, members: Members, names: Collection[str]) -> None:
        """Take out tools that were offered, by their names."""
        kept = [each for each in elements(members.raw("tools")) if self.tool_name(loads(each)) not in names]
        members.set("tools", array(kept))

    @abstractmethod
    def forbid_tools(self, members: Members, answers: Sequence[Any]) -> None:
        """Have the model answer without tools; `answers` are the entries that will be the last ones."""

    def answers(self, results: Sequence[tuple[Call, str, bool]]) -> list[Any]:
        """Entries that answer calls with a text each, and whether it is an error."""
        return self.api.joined(
            [self.api.tool_result(call.id, call.name, text, is_error=is_error) for call, text, is_error in results]
        )

    def joined(self, answers: Sequence[Any], following: Sequence[bytes]) -> list[bytes]:
        """Put the sidecar's answers before the agent's results of the same turn, which begin `following`."""
        return [*map(orjson.dumps, answers), *following]

    @abstractmethod
    def own_calls(self, entries: Sequence[Any], own: Collection[str]) -> list[Any]:
        """The calls of the sidecar's tools in a turn's entries, in the format's own form."""

    @abstractmethod
    def calling(self, entries: Sequence[Any], own: Collection[str]) -> list[Any]:
        """A turn's entries with these calls alone: without the agent's, and without what the model said."""

    @abstractmethod
    def called_too(self, entries: Sequence[bytes], calls: Sequence[bytes]) -> list[bytes]:
        """Return an agent's entries of an answer with these calls of the sidecar's tools, as JSON, behind its own."""

    def continued(self, history: bytes, added: Sequence[bytes]) -> bytes:
        """Return the array of a history with a hidden turn behind it: what the model said, and what it was answered."""
        return appended(history, added)

    def continues_stored(self, members: Members) -> bool:
        """Whether a request goes on from a history that the provider holds."""
        return any(members.get(name) for name in self.api.stored)

    def stored_id(self, members: Members) -> str:
        """The id of the stored response from which a request goes on; empty: none, or it goes on otherwise."""
        return next((string(members.get(name)) for name in self.api.stored), "")

    def go_on_from(self, members: Members, stored_id: str) -> None:
        """Have a request that goes on from a stored response go on from another one."""
        for name in self.api.stored[:1]:
            members.set(name, write(stored_id))

    def begin_anew(self, members: Members) -> None:
        """Have a request that goes on from a stored response name none, as it holds all that was said."""
        for name in self.api.stored[:1]:
            members.drop(name)

    def as_entries(self, members: Members) -> None:
        """Write a history that is one text as entries, so that more can be added."""

    def sendable(self, entries: Sequence[Any], members: Members) -> Sequence[Any]:
        """Return a turn's entries as a later request like this one may hold them."""
        del members
        return entries

    def finished(self, entries: Sequence[Any]) -> Sequence[Any]:
        """Return the entries of an answer that was cut off, without what nothing can follow, such as half a call."""
        return entries

    def gists(self, entries: Sequence[Any]) -> list[str | None]:
        """The gists of the model's entries in a history; of others empty, as nothing is known by those."""
        return [self.gist(entry) if self.speaker(entry) == "model" else "" for entry in entries]

    # -- answers ---------------------------------------------------------------------------------------------------

    def arguments(self, answer: Mapping[str, Any]) -> Iterable[tuple[dict[str, Any], str, str]]:
        """Yield the object and the member that hold each call's arguments in a whole answer, and the tool's name."""
        return self.api.call_places(answer)

    @abstractmethod
    def read(self, answer: Mapping[str, Any], own: Collection[str]) -> ModelTurn:
        """Read a whole answer."""

    def awaited(self, entry: Any) -> list[NamedCall]:
        """The calls of tools in an entry that somebody has to answer."""
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

        `waits`: whether it waits for the agent in any way besides calls; `finish`: the answer's reason to stop.
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
        """Remember what of a hidden turn the agent is shown."""

    @abstractmethod
    def written(self, answer: dict[str, Any], shown: EarlierTurns, own: Collection[str]) -> Sequence[Any]:
        """Turn the last answer into the agent's, in place; return what the agent then holds, as entries."""

    def splitter(self, most_bytes: int) -> EventSplitter:
        """Make what splits a stream into events of at most `most_bytes`."""
        return Splitter(most_bytes)

    @abstractmethod
    def filter(self, own: Collection[str], members: Members | None) -> Filter:
        """Make a filter for one stream to the agent, by its request."""

    @abstractmethod
    def stream_error(self, status: int, body: bytes) -> bytes:
        """End a stream that has begun with a provider's error, as the provider would."""


def _text(arguments: Any) -> str:
    """Arguments as JSON text."""
    return sound(arguments) if isinstance(arguments, str) else write_sound(arguments or {}).decode()


def add_output(usage: Any, name: str, before: int, total: str = "total_tokens") -> None:
    """Add the output of the turns before to a usage, whose member `name` then counts that of one answer."""
    if before and isinstance(usage, dict) and token_count(usage, name) is not None:
        usage[name] += before
        if token_count(usage, total) is not None:
            usage[total] += before


def error_text(body: bytes, status: int) -> str:
    """Return the message of a provider's error."""
    found = read(body)
    message = member(found, "error", "message") or member(found, "message") or member(found, "error")
    return message if isinstance(message, str) else f"the provider answered with status {status}"
