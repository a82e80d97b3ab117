"""OpenAI's responses.

A response is a list of items: reasoning, messages, calls. A stream numbers its events and tells each item by its index
in `output`; the last event holds the whole response. Where the agent goes on by `previous_response_id`, the provider
holds the history, hidden turns included, as the id that the agent was given is that of the last of them.
platform.openai.com/docs/api-reference/responses-streaming.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from prompt_sidecar.serving.dialects.base import Call, Dialect, Filter, Shown, Turn, add_output, error_text
from prompt_sidecar.serving.histories import ResponsesHistory
from prompt_sidecar.serving.members import Members, array, loads
from prompt_sidecar.serving.provider_usage import read_usage
from prompt_sidecar.serving.restoring import Arguments, restored
from prompt_sidecar.serving.sse import Event, written
from prompt_sidecar.serving.untyped import member, objects

_AGENT_ANSWERS: Final = frozenset(
    {
        "computer_call",
        "custom_tool_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "mcp_approval_request",
        "tool_search_call",
    }
)
"""Items, besides calls of functions, that wait for the agent."""
_BEGINNINGS: Final = frozenset({"response.created", "response.in_progress", "response.queued"})
_ENDS: Final = frozenset({"response.completed", "response.incomplete"})


class OpenAIResponses(ResponsesHistory, Dialect):
    """See the module."""

    def free(self, members: Members) -> bool:
        """Whether the model may choose among the tools, and answers at once."""
        return members.get("tool_choice") in (None, "auto") and members.raw("background") != b"true"

    def forbid_tools(self, members: Members, _: Sequence[Any]) -> None:
        """Have the model answer without tools."""
        members.set("tool_choice", b'"none"')

    def answers(self, results: Sequence[tuple[Call, str, bool]]) -> list[Any]:
        """Items that answer calls."""
        return [{"type": "function_call_output", "call_id": call.id, "output": text} for call, text, _ in results]

    def read(self, answer: Mapping[str, Any], own: Collection[str]) -> Turn:
        """Read a whole response."""
        return _turn(answer, objects(answer.get("output")), own)

    def show(self, shown: Shown, turn: Turn) -> None:
        """Remember a hidden turn's messages."""
        shown.texts += [item for item in turn.entries if item.get("type") == "message"]

    def written(self, answer: dict[str, Any], shown: Shown, own: Collection[str]) -> Sequence[Any]:
        """Turn the last response into the agent's."""
        items = [item for item in objects(answer.get("output")) if not _is_own(item, own)]
        answer["output"] = [*shown.texts, *items]
        add_output(answer.get("usage"), "output_tokens", shown.output_tokens)
        return list(answer["output"])

    def arguments(self, answer: Mapping[str, Any]) -> Iterable[tuple[dict[str, Any], str, str]]:
        """Yield what holds each call's arguments."""
        for item in objects(answer.get("output")):
            if item.get("type") == "function_call":
                yield item, "arguments", str(item.get("name"))

    def filter(self, own: Collection[str], members: Members | None) -> Filter:
        """Make a filter."""
        return _Items(own, stored=members is None or members.raw("store") != b"false")

    def stream_error(self, status: int, body: bytes) -> bytes:
        """End a stream with an error."""
        found = member(loads(body), "error")
        code, message = member(found, "code") or str(status), error_text(body, status)
        # SDKs raise for the member `error`; the others are those of the API's own event.
        error = {"code": code, "message": message, "param": None}
        return written({"type": "error", **error, "error": error}, "error")


def sendable(items: Sequence[Any], members: Members) -> list[Any]:
    """Return a response's items as a later request may hold them.

    Reasoning that the provider did not store can come back only encrypted: "Item with id … not found. Items are not
    persisted when `store` is set to false" is its answer to any other.
    """
    if members.raw("store") != b"false":
        return list(items)
    return [each for each in items if each.get("type") != "reasoning" or each.get("encrypted_content")]


def as_items(members: Members) -> None:
    """Write an input that is a string as a message, so that more can be added."""
    raw = members.raw("input")
    if raw.lstrip()[:1] == b'"':
        members.set("input", array([b'{"role":"user","content":' + raw + b"}"]))


def _is_own(item: Mapping[str, Any], own: Collection[str]) -> bool:
    return item.get("type") == "function_call" and item.get("name") in own


def _turn(response: Mapping[str, Any], items: list[dict[str, Any]], own: Collection[str]) -> Turn:
    ours = [item for item in items if _is_own(item, own)]
    theirs = any(
        (item.get("type") == "function_call" and not _is_own(item, own)) or item.get("type") in _AGENT_ANSWERS
        for item in items
    )
    return Turn(
        entries=items,
        own=[Call(str(each.get("call_id")), str(each["name"]), str(each.get("arguments") or "")) for each in ours],
        waits=theirs,
        whole=response.get("status") == "completed",
        usage=read_usage(OpenAIResponses.format, response),
        id="" if response.get("store") is False else str(response.get("id") or ""),
    )


class _Items(Filter):
    """Filters events of items, which it numbers anew where some are the sidecar's.

    SDKs want one id from a stream's first event to its last. Where the provider stores responses, the first event waits
    for something to show, so that the id is that of the last turn unless an earlier one said something too.
    """

    def __init__(self, own: Collection[str], *, stored: bool) -> None:
        super().__init__(own)
        self._waits = stored and bool(own)
        self._id: Any = None
        """The id that the agent was given."""
        self._next = 0
        """The index of the agent's next item."""
        self._sequence = 0
        """The number of the agent's next event."""
        self._visible: list[dict[str, Any]] = []
        self._renumbers = False
        """Whether an event was added."""
        self._restores = False
        """Whether a mask was restored."""

    def begin(self) -> None:
        """A turn begins."""
        super().begin()
        self._items: dict[int, dict[str, Any]] = {}
        self._places: dict[int, int] = {}
        self._arguments: dict[int, Arguments] = {}
        """Of the agent's calls, where masks are restored."""
        self._held: list[tuple[Event, dict[str, Any], int]] = []
        """Events of reasoning, until the turn shows something."""
        self._begun: list[tuple[Event, dict[str, Any]]] = []
        """The turn's first events, until it shows something."""
        self._response: dict[str, Any] = {}
        """The last event's, as the provider gave it."""

    def feed(self, event: Event) -> bytes:
        """Take an event."""
        data = event.json()
        kind = "" if data is None else str(data.get("type") or "")
        if data is None or not kind:
            return event.raw
        if kind in _BEGINNINGS:
            if self._id is not None and self.turns > 1:
                return b""
            self._begun.append((event, data))
            return b"" if self._waits else self._flushed()
        if kind in _ENDS:
            return self._ended(event, data)
        index = data.get("output_index")
        if not isinstance(index, int):
            return self._flushed() + self._sent(event, data)
        item = data.get("item")
        if isinstance(item, dict):
            self._items[index] = item
        known = self._items.get(index, {})
        if _is_own(known, self.own):
            return b""
        if known.get("type") == "reasoning" and self.own:
            self._held.append((event, data, index))
            return b""
        if self.restore is not None and known.get("type") == "function_call":
            return self._flushed() + self._restored(event, data, index)
        return self._flushed() + self._placed(event, data, index)

    def _restored(self, event: Event, data: dict[str, Any], index: int) -> bytes:
        """Send an event of a call, with values in place of masks in its arguments."""
        if index not in self._arguments:
            assert self.restore is not None
            self._arguments[index] = Arguments(str(self._items[index].get("name")), self.restore)
        kind, before, changed = str(data["type"]), b"", False
        if kind.endswith("arguments.delta") and isinstance(text := data.get("delta"), str):
            kept = self._give(index, self._arguments[index], text)
            data["delta"], changed = kept, kept != text
        elif kind.endswith("arguments.done"):
            if rest := self._release(index):
                where: dict[str, Any] = {
                    each: data[each] for each in ("item_id", "output_index", "sequence_number") if each in data
                }
                more = {"type": kind.replace(".done", ".delta"), **where, "delta": rest}
                self._renumbers = True
                before = self._placed(Event(b"", str(more["type"])), more, index, changed=True)
            changed = self._repeated(data, index)
        elif isinstance(item := data.get("item"), dict):
            data["item"] = item = dict(item)
            changed = self._repeated(item, index)
        out = before + self._placed(event, data, index, changed=changed)
        if isinstance(data.get("item"), dict):
            self._visible[self._places[index]] = data["item"]
        self._restores = self._restores or changed
        return out

    def _repeated(self, holder: dict[str, Any], index: int) -> bool:
        """Restore arguments that an event repeats; return whether they have changed."""
        given = holder.get("arguments")
        sent = self._arguments[index].whole(given) if isinstance(given, str) else None
        if sent is None:
            assert self.restore is not None
            return restored(holder, "arguments", str(self._items[index].get("name")), self.restore)
        holder["arguments"] = sent
        return sent != given

    def _flushed(self) -> bytes:
        begun, self._begun = self._begun, []
        out = b"".join([self._sent(*each) for each in begun])
        if begun and self._id is None:
            self._id = member(begun[0][1], "response", "id")
        held, self._held = self._held, []
        return out + b"".join([self._placed(*each) for each in held])

    def _placed(self, event: Event, data: dict[str, Any], index: int, *, changed: bool = False) -> bytes:
        if index not in self._places:
            self._places[index] = self._next
            self._next += 1
            self._visible.append({})
        place = self._places[index]
        self._visible[place] = self._items.get(index, {})
        if place != index:
            data["output_index"], changed = place, True
        return self._sent(event, data, changed=changed)

    def _sent(self, event: Event, data: dict[str, Any], *, changed: bool = False) -> bytes:
        number_ = data.get("sequence_number")
        if isinstance(number_, int):
            if number_ != self._sequence:
                # A stream that does not begin at 0 keeps its own numbers until something was left out.
                if self.turns == 1 and not self._left_out():
                    self._sequence = number_
                else:
                    data["sequence_number"], changed = self._sequence, True
            self._sequence += 1
        return written(data, event.name) if changed else event.raw

    def _left_out(self) -> bool:
        return self._renumbers or any(_is_own(item, self.own) for item in self._items.values())

    def _ended(self, event: Event, data: dict[str, Any]) -> bytes:
        response = data.get("response")
        response = response if isinstance(response, dict) else {}
        self.ended = True
        self._response = {name: response.get(name) for name in ("id", "status", "store", "model")}
        self._response["usage"] = dict(response.get("usage") or {}) or None
        for index, item in enumerate(objects(response.get("output"))):
            self._items.setdefault(index, item)
        turn = self.turn()
        if turn.hidden and not self.last:
            return b""
        flushed = self._flushed()
        changed = self.turns > 1 or bool(turn.own) or self._restores
        if changed:
            response["output"] = list(self._visible)
            add_output(response.get("usage"), "output_tokens", self.output_before)
            if self._id is not None and response.get("id") != self._id:
                self.ids = str(self._id), str(response.get("id"))
                response["id"] = self._id
        return flushed + self._sent(event, data, changed=changed)

    def turn(self) -> Turn:
        """Return the turn."""
        return _turn(self._response, [item for _, item in sorted(self._items.items())], self.own)

    def visible(self) -> Sequence[Any]:
        """Return the items that the agent holds."""
        return self._visible
