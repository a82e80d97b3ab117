"""OpenAI's responses.

A response is a list of items: reasoning, messages, calls. A stream numbers its events and identifies each item by its
index in `output`; the last event contains the whole response. If the agent continues by `previous_response_id`, the
provider has the history, hidden turns included, as the id that the agent got is that of the last turn.
platform.openai.com/docs/api-reference/responses-streaming.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from prompt_sidecar.answers.answer_json import read, write_sound
from prompt_sidecar.answers.base import Dialect, EarlierTurns, Filter, ModelTurn, add_output, error_text
from prompt_sidecar.answers.histories import NamedCall, named
from prompt_sidecar.answers.restoring import StreamedArguments, restored
from prompt_sidecar.answers.sse import Event, written
from prompt_sidecar.errors import TooLarge
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.prompt.members import Members, NotJson, appended, array, each_element, elements, loads
from prompt_sidecar.providers.api import ProviderApi
from prompt_sidecar.providers.openai_choice import (
    ALLOWED,
    REQUIRED,
    allowed_items,
    is_of_openai,
    limits_free_choice,
    must_call_any,
)
from prompt_sidecar.providers.openai_responses import ADDITIONAL_TOOLS, AGENT_ANSWERS
from prompt_sidecar.providers.surrogates import sound
from prompt_sidecar.providers.table import APIS
from prompt_sidecar.providers.untyped import member, objects, ordinal, string, text_of, within
from prompt_sidecar.providers.usage import ProviderUsage

API: Final = APIS["openai_responses"]
_BEGINNINGS: Final = frozenset({"response.created", "response.in_progress", "response.queued"})
_ENDS: Final = frozenset({"response.completed", "response.incomplete"})
_FAILURES: Final = frozenset({"error", "response.failed"})
_OFFERS: Final = f'"{ADDITIONAL_TOOLS}"'.encode()
"""Present in an item with tools: other items are not parsed for them."""


class OpenAIResponses(Dialect):
    """See the module."""

    api: ClassVar[ProviderApi] = API
    answers_have_entries: ClassVar[bool] = True

    def entries(self, members: Members) -> Iterator[bytes]:
        """Yield the history's items; a string is a message of the user's."""
        raw = members.raw("input")
        return iter([b'{"role":"user","content":' + raw + b"}"]) if raw.lstrip()[:1] == b'"' else each_element(raw)

    def speaker(self, entry: Any) -> str:
        """Return whom an item is from; without a role, results have no speaker, and other items are the model's."""
        kind = member(entry, "type")
        if kind == ADDITIONAL_TOOLS:
            return "other"
        if member(entry, "role") is not None:
            return super().speaker(entry)
        return "other" if isinstance(kind, str) and kind.endswith(("_output", "_response")) else "model"

    def text(self, entry: Any) -> str | None:
        """Return a message's text."""
        if member(entry, "role") is not None:
            return text_of(member(entry, "content"), "input_text", "output_text", "text")
        return None if member(entry, "type") == "reasoning" else ""

    def calls(self, entry: Any) -> list[NamedCall]:
        """Return a call, if the entry is one."""
        kind = member(entry, "type")
        if member(entry, "role") is not None or kind == "reasoning":
            return []
        called = member(entry, "arguments") if kind == "function_call" else member(entry, "input")
        return [named(member(entry, "call_id") or member(entry, "id"), member(entry, "name") or kind, called)]

    def item(self, entry: Any) -> str:
        """Return an item's id."""
        return string(member(entry, "id"))

    def referred(self, entry: Any) -> str:
        """Return the id in a reference, whose type may be left out."""
        is_reference = member(entry, "type") == "item_reference" or (isinstance(entry, dict) and entry.keys() == {"id"})
        return self.item(entry) if is_reference else ""

    def agent_tools(self, members: Members) -> list[bytes]:
        """Return the agent's tool definitions to which others may be added: in `tools`, else in an item with tools.

        Tools added to an item that the provider stores would be offered in all later responses.
        """
        found = super().agent_tools(members)
        if found or members.raw("store") != b"false" or self.continues_stored(members):
            return found
        return next((tools for _, item in _offering(members) if (tools := _tools(item))), [])

    def tool_names(self, members: Members) -> frozenset[str]:
        """Return the names of all of the agent's tools, including those in namespaces."""
        tools = [*super().agent_tools(members), *(each for _, item in _offering(members) for each in _tools(item))]
        definitions = [loads(each) for each in tools]
        inner = [each for definition in definitions for each in objects(member(definition, "tools"))]
        return frozenset(map(self.tool_name, (*definitions, *inner)))

    def offer(self, members: Members, definitions: Sequence[bytes]) -> None:
        """Add the sidecar's tools behind the agent's, where those are, and to the allowed ones if these are listed."""
        if limits_free_choice(members.get("tool_choice")) and (added := allowed_items(map(loads, definitions))):
            choice = Members(members.raw("tool_choice"))
            choice.set("tools", array([*elements(choice.raw("tools")), *map(write_sound, added)]))
            members.set("tool_choice", choice.bytes())
        if super().agent_tools(members):
            super().offer(members, definitions)
            return
        for place, item in _offering(members):
            if _tools(item):
                item.set("tools", appended(item.raw("tools"), definitions))
                entries = list(self.entries(members))
                entries[place] = item.bytes()
                members.set("input", array(entries))
                return

    def recall(self, members: Members) -> RecallOffer:
        """Whether the model need not call any of the tools, and answers immediately."""
        if must_call_any(members.get("tool_choice")):
            return RecallOffer.FORCED
        return RecallOffer.UNREADABLE if members.raw("background") == b"true" else RecallOffer.OFFERED

    def narrow(self, members: Members) -> bool:
        """Require a call of one of the agent's tools."""
        if members.get("tool_choice") != REQUIRED or not is_of_openai(members.get("model")):
            return False
        tools = [*super().agent_tools(members), *(each for _, item in _offering(members) for each in _tools(item))]
        allowed = allowed_items(map(loads, tools))
        if allowed is not None:
            members.set("tool_choice", write_sound({"type": ALLOWED, "mode": REQUIRED, "tools": allowed}))
        return allowed is not None

    def withdraw(self, members: Members, names: Collection[str]) -> None:
        """Remove tools that were offered, wherever they are."""
        super().withdraw(members, names)
        entries: list[bytes] = []
        for place, item in _offering(members):
            entries = entries or list(self.entries(members))
            item.set("tools", array(each for each in _tools(item) if self.tool_name(loads(each)) not in names))
            entries[place] = item.bytes()
        if entries:
            members.set("input", array(entries))

    def forbid_tools(self, members: Members, _: Sequence[Any]) -> None:
        """Make the model answer without tools."""
        members.set("tool_choice", b'"none"')

    def own_calls(self, entries: Sequence[Any], own: Collection[str]) -> list[Any]:
        """Return the sidecar's calls in a turn, without ids of items.

        The provider refuses a stored item without the reasoning before it: "… was provided without its required
        'reasoning' item".
        """
        return [{name: each[name] for name in each if name != "id"} for each in entries if _is_own(each, own)]

    def calling(self, entries: Sequence[Any], own: Collection[str]) -> list[Any]:
        """Return the calls, which are items of their own."""
        return self.own_calls(entries, own)

    def called_too(self, entries: Sequence[bytes], calls: Sequence[bytes]) -> list[bytes]:
        """Put calls behind the agent's items."""
        return [*entries, *calls]

    def read(self, answer: Mapping[str, Any], own: Collection[str]) -> ModelTurn:
        """Read a whole response."""
        return self.turn(answer, objects(answer.get("output")), own)

    def awaited(self, entry: Any) -> list[NamedCall]:
        """Return a call, if the entry is one that the agent or the sidecar answers."""
        kind = member(entry, "type")
        return self.calls(entry) if kind == "function_call" or within(kind, AGENT_ANSWERS) else []

    def turn(self, response: Mapping[str, Any], items: list[dict[str, Any]], own: Collection[str]) -> ModelTurn:
        """Return the turn of a response with these items."""
        response_id = sound(str(response.get("id") or ""))
        stored_id = "" if response.get("store") is False else response_id
        whole = response.get("status") == "completed"
        usage = API.usage.read(response)
        return self.turn_of(
            items, own, usage, whole=whole, finish=_finish(response), id=stored_id, response_id=response_id
        )

    def show(self, shown: EarlierTurns, turn: ModelTurn) -> None:
        """Keep a hidden turn's messages."""
        shown.texts += [item for item in turn.entries if item.get("type") == "message"]

    def written(self, answer: dict[str, Any], shown: EarlierTurns, own: Collection[str]) -> Sequence[Any]:
        """Turn the last response into the one for the agent."""
        items = [item for item in objects(answer.get("output")) if not _is_own(item, own)]
        answer["output"] = [*shown.texts, *items]
        add_output(answer.get("usage"), "output_tokens", shown.output_tokens)
        return list(answer["output"])

    def as_entries(self, members: Members) -> None:
        """Write an input that is a string as a message."""
        raw = members.raw("input")
        if raw.lstrip()[:1] == b'"':
            members.set("input", array([b'{"role":"user","content":' + raw + b"}"]))

    def sendable(self, entries: Sequence[Any], members: Members) -> Sequence[Any]:
        """Leave out reasoning that the provider did not store, unless it is encrypted.

        "Item with id … not found. Items are not persisted when `store` is set to false" is the provider's error
        otherwise.
        """
        if members.raw("store") != b"false":
            return entries
        return [each for each in entries if each.get("type") != "reasoning" or each.get("encrypted_content")]

    def finished(self, entries: Sequence[Any]) -> Sequence[Any]:
        """Leave out incomplete calls and reasoning."""
        return [each for each in entries if each.get("type") == "message" or each.get("status") != "incomplete"]

    def filter(self, own: Collection[str], members: Members | None) -> Filter:
        """Create a filter."""
        return _Items(self, own, stored=members is None or members.raw("store") != b"false")

    def stream_error(self, status: int, body: bytes) -> bytes:
        """End a stream with an error."""
        found = member(read(body), "error")
        code, message = member(found, "code") or str(status), error_text(body, status)
        # SDKs raise for the member `error`; the others are those of the API's own event.
        error = {"code": code, "message": message, "param": None}
        return written({"type": "error", **error, "error": error}, "error")


def _offering(members: Members) -> Iterator[tuple[int, Members]]:
    """Yield the input's items with tools, with their indices."""
    raw = members.raw("input")
    if _OFFERS not in raw:
        return
    for place, entry in enumerate(each_element(raw)):
        if _OFFERS in entry and member(loads(entry), "type") == ADDITIONAL_TOOLS:
            try:
                yield place, Members(entry)
            except (NotJson, TooLarge):
                continue


def _tools(item: Members) -> list[bytes]:
    return elements(item.raw("tools"))


def _is_own(item: Mapping[str, Any], own: Collection[str]) -> bool:
    return item.get("type") == "function_call" and within(item.get("name"), own)


@dataclass(slots=True, eq=False)
class _Item:
    """An item, from the last event that contained it."""

    content: dict[str, Any]
    place: Any = None
    """The index that the agent gets."""
    shown: dict[str, Any] | None = None
    """The item as the agent has it; None if the agent has none of it."""
    arguments: StreamedArguments | None = None
    """Arguments of an agent's call, if masks are restored."""
    final: dict[str, Any] | None = None
    """The item in the whole response, with values in place of masks; None if it has none."""


class _Items(Filter):
    """Filters events of items, and renumbers them if some are the sidecar's.

    SDKs expect one id from a stream's first event to its last. If the provider stores responses, the first event waits
    for visible content, so that the id is that of the last turn unless an earlier turn had visible content too.
    """

    dialect: OpenAIResponses

    def __init__(self, dialect: OpenAIResponses, own: Collection[str], *, stored: bool) -> None:
        super().__init__(dialect, own)
        self._waits = stored and bool(own)
        self._id: Any = None
        """The id that the agent got."""
        self._next = 0
        """The index of the agent's next item, if one was left out."""
        self._sequence = 0
        """The number of the agent's next event."""
        self._visible: list[_Item] = []
        self._added = False
        """Whether an event was added."""
        self._restores = False
        """Whether a mask was restored."""

    def begin(self) -> None:
        """Begin a turn."""
        super().begin()
        self._items: list[_Item] = []
        self._current: dict[int | None, _Item] = {}
        """Items by the provider's index; without an index the newest."""
        self._by_id: dict[str, _Item] = {}
        self._response: dict[str, Any] = {}
        """The response in the last event, as the provider sent it."""

    def feed(self, event: Event) -> bytes:
        """Process an event."""
        data = event.json()
        kind = "" if data is None else str(data.get("type") or "")
        if event.data is None:  # a comment that keeps the connection alive
            return event.raw
        if data is None or not kind:
            return self._behind(lambda: event.raw)
        if kind in _BEGINNINGS:
            if self._id is not None and self.turns > 1:
                return b""
            if self._waits or self._held:
                self._held.append(partial(self._begun, event, data))
                return b"" if self._waits else self._flushed()
            return self._begun(event, data)
        if kind in _ENDS:
            return self._ended(event, data)
        if kind in _FAILURES:
            self._take_response(data)
            return self._flushed() + self._sent(event, data)
        item = self._item(data)
        if item is None:
            return self._behind(partial(self._sent, event, data))
        if _is_own(item.content, self.own):
            self.left_out = True
            return b""
        if item.content.get("type") == "reasoning" and self.own:
            self._held.append(partial(self._placed, event, data, item))
            return b""
        if self.restore is not None and item.content.get("type") == "function_call":
            return self._flushed() + self._restored(event, data, item)
        return self._flushed() + self._placed(event, data, item)

    def _begun(self, event: Event, data: dict[str, Any]) -> bytes:
        """Send a first event."""
        if self._id is None:
            self._id = member(data, "response", "id")
        return self._sent(event, data)

    def _item(self, data: dict[str, Any]) -> _Item | None:
        """Return the item that an event belongs to, or None."""
        key, content = ordinal(data.get("output_index")), data.get("item")
        content = content if isinstance(content, dict) else None
        if key is None and content is None and "item_id" not in data:
            return None
        named = data.get("item_id") if content is None else content.get("id")
        known = self._by_id.get(named) if isinstance(named, str) else None
        found = known or self._current.get(key)
        if found is not None and known is None and content is not None and isinstance(named, str) and named:
            other = found.content.get("id")
            if data.get("type") == "response.output_item.added" and other and other != named:
                found = None  # another item with the same index
        if found is None:
            found = _Item({})
            self._items.append(found)
        if content is not None:
            found.content = content
            if isinstance(named, str) and named:
                self._by_id[named] = found
        self._current[key] = self._current[None] = found
        return found

    def _restored(self, event: Event, data: dict[str, Any], item: _Item) -> bytes:
        """Send an event of a call, with values in place of masks in its arguments."""
        if item.arguments is None:
            assert self.restore is not None
            item.arguments = StreamedArguments(str(item.content.get("name")), self.restore)
        kind, before, changed = str(data["type"]), b"", False
        if kind.endswith("arguments.delta") and isinstance(text := data.get("delta"), str):
            kept = self._give(item, item.arguments, text)
            data["delta"], changed = kept, kept != text
        elif kind.endswith("arguments.done"):
            before = self._more(item, data, kind.replace(".done", ".delta"))
            changed = self._repeated(data, item)
        elif isinstance(given := data.get("item"), dict):
            if kind.endswith(".done"):
                before = self._more(item, data, "response.function_call_arguments.delta")
            data["item"] = given = dict(given)
            changed = self._repeated(given, item)
        out = before + self._placed(event, data, item, changed=changed)
        if isinstance(data.get("item"), dict):
            item.shown = data["item"]
        self._restores = self._restores or changed
        return out

    def _more(self, item: _Item, data: Mapping[str, Any], kind: str) -> bytes:
        """Return the waiting part of arguments, as an event to send before another one."""
        rest = self._release(item)
        if not rest:
            return b""
        where = {each: data[each] for each in ("item_id", "output_index", "sequence_number") if each in data}
        if "item_id" not in where and isinstance(item.content.get("id"), str):
            where["item_id"] = item.content["id"]
        more = {"type": kind, **where, "delta": rest}
        self._added = True
        return self._placed(Event(b"", kind), more, item, changed=True)

    def _repeated(self, holder: dict[str, Any], item: _Item) -> bool:
        """Restore arguments that an event repeats; return whether they have changed."""
        given = holder.get("arguments")
        sent = item.arguments.whole(given) if item.arguments is not None and isinstance(given, str) else None
        if sent is None:
            assert self.restore is not None
            name = item.content.get("name") or holder.get("name")
            return restored(holder, "arguments", str(name), self.restore)
        holder["arguments"] = sent
        return sent != given

    def rest(self) -> bytes:
        """Return the waiting bytes, after the response was cut off."""
        if self.ended:
            return b""
        where = {"sequence_number": self._sequence} if self._sequence else {}
        return self._flushed() + b"".join(
            [
                self._more(item, {"output_index": item.place, **where}, "response.function_call_arguments.delta")
                for item in list(self._waiting)
            ]
        )

    def _placed(self, event: Event, data: dict[str, Any], item: _Item, *, changed: bool = False) -> bytes:
        given = data.get("output_index")
        if item.shown is None:
            item.place = self._next if self.renumbers else given
            self._next = max(self._next, (ordinal(item.place) or 0) + 1)
            self._visible.append(item)
        item.shown = item.content
        if item.place != given and self.renumbers:
            data["output_index"], changed = item.place, True
        return self._sent(event, data, changed=changed)

    def _sent(self, event: Event, data: dict[str, Any], *, changed: bool = False) -> bytes:
        number = ordinal(data.get("sequence_number"))
        if number is not None:
            if number != self._sequence:
                # A stream that does not begin at 0 keeps its own numbers until an event was left out.
                if not (self.renumbers or self._added):
                    self._sequence = number
                else:
                    data["sequence_number"], changed = self._sequence, True
            self._sequence += 1
        return event.changed(data).raw if changed else event.raw

    def _take_response(self, data: dict[str, Any]) -> dict[str, Any]:
        """Store and return the whole response in the last event."""
        response = data.get("response")
        response = response if isinstance(response, dict) else {}
        self._response = {name: response.get(name) for name in ("id", "status", "store", "model")}
        usage = response.get("usage")
        self._response["usage"] = dict(usage) if isinstance(usage, dict) else None
        return response

    def _ended(self, event: Event, data: dict[str, Any]) -> bytes:
        if self.ended:
            return self._behind(partial(self._sent, event, data))
        response = self._take_response(data)
        self.ended = True
        items = self._finals(objects(response.get("output")))
        if self.hides():
            return b""
        before = self._flushed()
        where = {"sequence_number": data["sequence_number"]} if "sequence_number" in data else {}
        for item in list(self._waiting):  # of a call that no event has ended
            where["output_index"] = item.place
            before += self._more(item, where, "response.function_call_arguments.delta")
        self._restore_finals(items)
        changed = self.turns > 1 or self.left_out or self._restores
        turn = self.turn()
        if changed or turn.own:
            changed = True
            unseen = [item for item in self._items if item.shown is None and not _is_own(item.content, self.own)]
            self._visible += unseen
            if not self.renumbers:  # the indexes are the provider's
                order = {id(item): index for index, item in enumerate(items)}
                self._visible.sort(key=lambda item: order.get(id(item), len(order)))
            for item in self._visible:
                item.shown = item.final or item.shown or item.content
            response["output"] = [item.shown for item in self._visible]
            add_output(response.get("usage"), "output_tokens", self.output_before)
            if self._id is not None and response.get("id") != self._id:
                self.ids = str(self._id), str(response.get("id"))
                response["id"] = self._id
        return before + self._sent(event, data, changed=changed)

    def _finals(self, contents: Sequence[dict[str, Any]]) -> list[_Item]:
        """Return the items of the final response, including those that no event announced."""
        calls = {name: each for each in self._items if isinstance(name := each.content.get("call_id"), str)}
        found: list[_Item] = []
        for index, content in enumerate(contents):
            item = self._by_id.get(string(content.get("id"))) or calls.get(string(content.get("call_id")))
            item = item or self._current.get(index)
            if item is None:
                item = _Item(content)
                self._items.append(item)
            if item.final is None and item.content.get("type") in (None, content.get("type")):
                item.final = dict(content)
                found.append(item)
        return found

    def _restore_finals(self, items: Iterable[_Item]) -> None:
        """Restore masks in the calls of the whole response."""
        for item in items if self.restore is not None else ():
            final = item.final
            if final is None or final.get("type") != "function_call" or _is_own(final, self.own):
                continue
            self._restores = self._repeated(final, item) or self._restores

    def counted(self) -> ProviderUsage | None:
        """Return the provider's usage."""
        return API.usage.read(self._response) if self._response else None

    def stopped(self) -> Any:
        """Return the response's status, or why it is incomplete."""
        return _finish(self._response or {})

    def turn(self) -> ModelTurn:
        """Return the turn."""
        return self.dialect.turn(self._response, [item.content for item in self._items if item.content], self.own)

    def visible(self) -> Sequence[Any]:
        """Return the items that the agent has."""
        return [item.shown for item in self._visible if item.shown is not None]


def _finish(response: Mapping[str, Any]) -> Any:
    """Return a response's stop reason: its status, or why it is incomplete."""
    status = response.get("status")
    return (member(response.get("incomplete_details"), "reason") or status) if status == "incomplete" else status
