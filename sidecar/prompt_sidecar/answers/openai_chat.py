"""OpenAI's chat completions, and the many servers with the same API.

A stream's chunks contain pieces of one message in `choices[0].delta`; calls are assembled by their index. Only the
chunk with `finish_reason` shows that no call follows; usage, if requested, is in a separate chunk after it.
platform.openai.com/docs/api-reference/chat-streaming. For other servers' pieces of calls see
`prompt_sidecar.providers.call_pieces`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from prompt_sidecar.answers.answer_json import read, write_sound
from prompt_sidecar.answers.base import BETWEEN, Dialect, EarlierTurns, Filter, ModelTurn, add_output, error_text
from prompt_sidecar.answers.histories import NamedCall, named
from prompt_sidecar.answers.restoring import StreamedArguments
from prompt_sidecar.answers.sse import DONE, Event, written
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.prompt.members import Members, array, elements, loads
from prompt_sidecar.providers.api import ProviderApi
from prompt_sidecar.providers.openai_chat import PiecedCall
from prompt_sidecar.providers.openai_choice import (
    ALLOWED,
    REQUIRED,
    allowed_functions,
    is_of_openai,
    limits_free_choice,
    must_call_any,
)
from prompt_sidecar.providers.surrogates import paired
from prompt_sidecar.providers.table import APIS
from prompt_sidecar.providers.untyped import member, object_of, objects, ordinal, text_of, within
from prompt_sidecar.providers.usage import ProviderUsage

API: Final = APIS["openai_chat"]
_THOUGHTS: Final = ("reasoning_content", "reasoning", "reasoning_details")
"""Members of a message in which servers with this API return the model's thinking."""
_ENDS: Final = frozenset({"tool_calls", "function_call", "stop"})
"""Finish reasons after which calls are complete; some servers send `stop` after calls."""


class OpenAIChat(Dialect):
    """See the module."""

    api: ClassVar[ProviderApi] = API

    def text(self, entry: Any) -> str | None:
        """Return a message's text."""
        return text_of(member(entry, "content"), "text")

    def calls(self, entry: Any) -> list[NamedCall]:
        """Return a message's calls, of functions and of tools with a text as input."""
        found = []
        for each in objects(member(entry, "tool_calls")):
            held = each.get("function") or each.get("custom")
            found.append(
                named(each.get("id"), member(held, "name"), member(held, "arguments") or member(held, "input"))
            )
        return found

    def recall(self, members: Members) -> RecallOffer:
        """Whether the model need not call any of the tools, and gives one answer."""
        if must_call_any(members.get("tool_choice")):
            return RecallOffer.FORCED
        return RecallOffer.OFFERED if members.get("n") in (None, 1) else RecallOffer.SEVERAL_ANSWERS

    def narrow(self, members: Members) -> bool:
        """Require a call of one of the agent's tools."""
        if members.get("tool_choice") != REQUIRED or not is_of_openai(members.get("model")):
            return False
        allowed = allowed_functions(map(loads, self.agent_tools(members)))
        if allowed is not None:
            choice = {"type": ALLOWED, ALLOWED: {"mode": REQUIRED, "tools": allowed}}
            members.set("tool_choice", write_sound(choice))
        return allowed is not None

    def offer(self, members: Members, definitions: Sequence[bytes]) -> None:
        """Add the sidecar's tools behind the agent's, and to the allowed ones if these are listed."""
        super().offer(members, definitions)
        if limits_free_choice(members.get("tool_choice")) and (added := allowed_functions(map(loads, definitions))):
            choice = Members(members.raw("tool_choice"))
            limited = Members(choice.raw(ALLOWED))
            limited.set("tools", array([*elements(limited.raw("tools")), *map(write_sound, added)]))
            choice.set(ALLOWED, limited.bytes())
            members.set("tool_choice", choice.bytes())

    def forbid_tools(self, members: Members, _: Sequence[Any]) -> None:
        """Make the model answer without tools."""
        members.set("tool_choice", b'"none"')

    def own_calls(self, entries: Sequence[Any], own: Collection[str]) -> list[Any]:
        """Return the sidecar's calls in a turn."""
        calls = [call for entry in entries for call in objects(member(entry, "tool_calls"))]
        return [each for each in calls if within(member(each, "function", "name"), own)]

    def calling(self, entries: Sequence[Any], own: Collection[str]) -> list[Any]:
        """Return the turn's message without its text."""
        called = [(entry, self.own_calls([entry], own)) for entry in entries]
        return [{**entry, "content": None, "tool_calls": calls} for entry, calls in called if calls]

    def called_too(self, entries: Sequence[bytes], calls: Sequence[bytes]) -> list[bytes]:
        """Add calls to the message."""
        if not calls:
            return list(entries)
        last = Members(entries[-1])
        last.set("tool_calls", array([*elements(last.raw("tool_calls")), *calls]))
        return [*entries[:-1], last.bytes()]

    def read(self, answer: Mapping[str, Any], own: Collection[str]) -> ModelTurn:
        """Read a whole answer."""
        choices = objects(answer.get("choices"))
        message = member(choices[0], "message") if choices else None
        usage = API.usage.read(answer)
        if not isinstance(message, dict):
            return ModelTurn(usage=usage)
        return self.turn(message, member(choices[0], "finish_reason"), own, usage)

    def turn(
        self, message: dict[str, Any], finish: Any, own: Collection[str], usage: ProviderUsage | None
    ) -> ModelTurn:
        """Return the turn of a message."""
        waits = bool(message.get("function_call"))
        return self.turn_of([message], own, usage, whole=within(finish, _ENDS), waits=waits, finish=finish)

    def show(self, shown: EarlierTurns, turn: ModelTurn) -> None:
        """Keep a hidden turn's text."""
        for entry in turn.entries:
            if text := text_of(entry.get("content"), "text"):
                shown.texts.append(text)

    def written(self, answer: dict[str, Any], shown: EarlierTurns, own: Collection[str]) -> Sequence[Any]:
        """Turn the last answer into the one for the agent."""
        choices = objects(answer.get("choices"))
        message = choices[0].get("message") if choices else None
        if not isinstance(message, dict):
            return []
        message = choices[0]["message"] = dict(message)  # the turn contains the original
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            kept = [each for each in calls if not within(member(each, "function", "name"), own)]
            if kept:
                message["tool_calls"] = kept
            elif len(kept) < len(calls):
                del message["tool_calls"]
        if shown.texts:
            text = text_of(message.get("content"), "text")
            message["content"] = BETWEEN.join([*shown.texts, *([text] if text else [])])
        add_output(answer.get("usage"), "completion_tokens", shown.output_tokens)
        return [message]

    def filter(self, own: Collection[str], _: Members | None) -> Filter:
        """Create a filter."""
        return _Chunks(self, own)

    def stream_error(self, status: int, body: bytes) -> bytes:
        """End a stream with an error."""
        fallback = {"message": error_text(body, status), "type": "server_error", "code": str(status)}
        found = member(read(body), "error")
        return written({"error": found if isinstance(found, dict) else fallback})


@dataclass(slots=True, eq=False)
class _Called(PiecedCall):
    """A call of the agent's or the sidecar's, while it is assembled."""

    choice: int = 0
    shown: bool = False
    """Whether a part of it was sent to the agent."""
    filled: StreamedArguments | None = None
    """Its arguments, if masks are restored."""


def _number(choice: dict[str, Any]) -> int:
    """Return the number of a choice."""
    return ordinal(choice.get("index")) or 0


class _Chunks(Filter):
    """Filters chunks. The message of each turn is assembled, as a hidden turn must be sent back completely."""

    dialect: OpenAIChat

    def __init__(self, dialect: OpenAIChat, own: Collection[str]) -> None:
        super().__init__(dialect, own)
        self._id: Any = None
        self._shown_text: list[str] = []
        self._shown_calls: list[_Called] = []
        self._next = 0
        """The index of the agent's next call, if one was left out."""

    def begin(self) -> None:
        """Begin a turn."""
        super().begin()
        self._texts: dict[str, list[str]] = {}
        """Pieces of the message's text members."""
        self._message: dict[str, Any] = {"role": "assistant"}
        """The message's other members."""
        self._calls: list[_Called] = []
        self._current: dict[tuple[int, int | None], _Called] = {}
        """Calls by the provider's numbers of choice and call; several calls may have the same."""
        self._newest: dict[str, Any] = {}
        """The newest chunk with a choice."""
        self._finish: Any = None
        self._hidden = False
        self._usage: ProviderUsage | None = None
        self._has_text = False

    def feed(self, event: Event) -> bytes:
        """Process a chunk."""
        chunk = event.json()
        if chunk is None or self.restore is None:
            return self._taken(event, chunk)
        before, changed = self._other_choices(chunk)
        made = self._taken(event.changed(chunk) if changed else event, chunk)
        return made if self._hidden else before + made

    def _taken(self, event: Event, chunk: dict[str, Any] | None) -> bytes:
        """Process a chunk, of which only the first choice is read; None if the event contains no chunk."""
        if chunk is None:
            return self._unread(event)
        usage, before = chunk.get("usage"), self.turns > 1
        if isinstance(usage, dict):
            self._usage = API.usage.read(chunk)
        choices = objects(chunk.get("choices"))
        if not choices or ordinal(choices[0].get("index")) not in (None, 0):
            if self._hidden or (before and self._usage is None):
                return b""
            passed = self._event_bytes(chunk, event, changed=False)
            return self._behind(lambda: passed)
        choice, self._newest = choices[0], chunk
        delta = choice.get("delta")
        delta = choice["delta"] = delta if isinstance(delta, dict) else {}
        self._gather(delta)
        changed, visible = self._of_the_agent(delta)
        finish = choice.get("finish_reason")
        if finish and not self.ended:  # some servers send "" until the end
            self._finish, self.ended = finish, True
            self._hidden = self.hides()
        if finish and self._hidden:
            choice["finish_reason"], changed = None, True
            chunk.pop("usage", None)
            visible = visible and bool(delta)
        elif finish:
            visible = True
        if not visible and self.own:
            thinks = any(delta.get(name) for name in _THOUGHTS)
            if not thinks and (changed or self._hidden or self.turns > 1):
                return b""
            event_bytes = self._event_bytes(chunk, event, changed=changed)
            if not thinks:
                return self._behind(lambda: event_bytes)
            self._held.append(lambda: event_bytes)
            return b""
        if self._hidden:
            self._held.clear()
        rest = b""
        if finish and (pieces := objects(delta.get("tool_calls"))):  # the waiting bytes follow them
            rests = self._rests(0)
            delta["tool_calls"], changed = [*pieces, *rests], changed or bool(rests)
        elif finish:
            rest = self._rest(0, chunk)
        return self._flushed() + rest + self._event_bytes(chunk, event, changed=changed)

    def _unread(self, event: Event) -> bytes:
        if event.data is None:  # a comment that keeps the connection alive
            return event.raw
        if event.data != DONE:
            return self._behind(lambda: event.raw)
        return b"" if self._hidden else self.rest() + event.raw

    def _gather(self, delta: dict[str, Any]) -> None:
        """Add a delta to the message, except its calls."""
        for name, value in delta.items():
            if name in ("tool_calls", "role"):
                continue
            if isinstance(value, str):
                self._texts.setdefault(name, []).append(value)
            elif isinstance(value, list) and value:
                held = self._message.setdefault(name, [])
                if isinstance(held, list):
                    held.extend(value)
            elif value is not None:
                self._message[name] = value

    def _of_the_agent(self, delta: dict[str, Any]) -> tuple[bool, bool]:
        """Reduce a delta to the agent's part; return whether it was changed, and whether anything is left."""
        changed = self._calls_of_the_agent(delta)
        text = delta.get("content")
        if isinstance(text, str) and text:
            if self._shown_text and not self._has_text:
                delta["content"], changed = BETWEEN + text, True
            self._has_text = True
            self._shown_text.append(delta["content"])
        if self.turns > 1 and "role" in delta:  # the message has begun: an SDK would concatenate the two roles
            del delta["role"]
            changed = True
            if not text:
                delta.pop("content", None)
        thoughts = [name for name in _THOUGHTS if delta.get(name)]
        left = [name for name, value in delta.items() if name not in thoughts and (value or name == "role")]
        if "content" in delta and not text and self.turns == 1 and not thoughts:
            left.append("content")
        if thoughts and not text and not delta.get("tool_calls"):
            return changed, False
        return changed, bool(left)

    def _other_choices(self, chunk: dict[str, Any]) -> tuple[bytes, bool]:
        """Restore masks in the choices behind the first, if a request asks for several (`n`), in place.

        Only the first choice can be a hidden turn.

        Returns:
            The waiting parts of choices that end with this chunk, as chunks to send before it, and whether this
            chunk was changed. If it has pieces of such a choice's calls, the waiting parts are put behind them.
        """
        choices = objects(chunk.get("choices"))
        if not any(map(_number, choices)):
            return b"", False
        before, changed, self._newest = b"", False, chunk
        if not all(map(_number, choices[1:])):  # code that reads the first choice finds it at the beginning
            choices.sort(key=lambda each: _number(each) != 0)
            chunk["choices"], changed = choices, True
        for choice in filter(_number, choices):
            number, delta = _number(choice), object_of(choice.get("delta"))
            changed = self._calls_of_the_agent(delta, number) or changed
            if choice.get("finish_reason"):  # some servers send "" until the end
                if pieces := objects(delta.get("tool_calls")):  # the waiting parts follow them
                    rests = self._rests(number)
                    delta["tool_calls"], changed = [*pieces, *rests], changed or bool(rests)
                else:
                    before += self._rest(number, chunk)
        return before, changed

    def _calls_of_the_agent(self, delta: dict[str, Any], choice: int = 0) -> bool:
        """Process pieces of calls, and leave the agent's in a delta; return whether it was changed."""
        pieces, changed = objects(delta.get("tool_calls")), False
        kept: list[dict[str, Any]] = []
        for piece in pieces:
            key = choice, ordinal(piece.get("index"))
            call = self._current.get(key)
            if call is None or call.ends_with(piece):
                if call is not None and (rest := self._rest_of(call)) is not None:
                    kept.append(rest)
                    changed = True
                call = self._current[key] = _Called(choice=choice, place=piece.get("index"))
                if not choice:
                    self._calls.append(call)
            call.take(piece)
            if call.name in self.own and not choice:
                changed = self.left_out = True
                continue
            changed = (not choice and self._placed(call, piece)) or changed
            changed = self._restored(call, piece) or changed
            kept.append(piece)
        if changed and kept:
            delta["tool_calls"] = kept
        elif changed:
            del delta["tool_calls"]
        return changed

    def _placed(self, call: _Called, piece: dict[str, Any]) -> bool:
        """Set a call's index in the answer; return whether the piece was changed."""
        given = piece.get("index")
        if not call.shown:
            call.shown = True
            call.place = self._next if self.renumbers else given
            self._next = max(self._next, (ordinal(call.place) or 0) + 1)
            self._shown_calls.append(call)
        if call.place == given or not self.renumbers:
            return False
        piece["index"] = call.place
        return True

    def _restored(self, call: _Called, piece: dict[str, Any]) -> bool:
        """Hold back what may be a mask; return whether the piece was changed."""
        text = member(piece, "function", "arguments")
        if self.restore is None or not isinstance(text, str):
            return False
        if call.filled is None:
            call.filled = StreamedArguments(call.name, self.restore)
        made = self._give(call, call.filled, text)
        piece["function"]["arguments"] = made
        return made != text

    def _rest_of(self, call: _Called) -> dict[str, Any] | None:
        """Return the held-back part of a call's arguments as a piece, or None."""
        rest = self._release(call)
        return {"index": call.place, "function": {"arguments": rest}} if rest else None

    def _rests(self, choice: int) -> list[dict[str, Any]]:
        """Return the held-back parts of arguments in a choice, as pieces."""
        calls = [call for call in self._waiting if call.choice == choice]
        return [rest for call in calls if (rest := self._rest_of(call)) is not None]

    def _rest(self, choice: int, chunk: dict[str, Any]) -> bytes:
        """Return the held-back parts of arguments in a choice, as a chunk with the members of another one."""
        rests = self._rests(choice)
        if not rests:
            return b""
        head = {name: value for name, value in chunk.items() if name != "usage"}
        if self.turns > 1:
            head["id"] = self._id
        return written({**head, "choices": [{"index": choice, "delta": {"tool_calls": rests}, "finish_reason": None}]})

    def rest(self) -> bytes:
        """Return the waiting bytes, after the message was cut off."""
        if self._hidden:
            return b""
        choices = sorted({call.choice for call in self._waiting}, key=lambda choice: choice == 0)
        return self._flushed() + b"".join([self._rest(choice, self._newest) for choice in choices])

    def _event_bytes(self, chunk: dict[str, Any], event: Event, *, changed: bool) -> bytes:
        if self._id is None:
            self._id = chunk.get("id")
        if self.turns > 1:
            chunk["id"] = self._id
            add_output(chunk.get("usage"), "completion_tokens", self.output_before)
            changed = True
        return event.changed(chunk).raw if changed else event.raw

    def counted(self) -> ProviderUsage | None:
        """Return the provider's usage."""
        return self._usage

    def stopped(self) -> Any:
        """Return the stream's finish reason."""
        return self._finish

    def turn(self) -> ModelTurn:
        """Return the turn."""
        message = self._message | {name: paired("".join(pieces)) for name, pieces in self._texts.items()}
        message.setdefault("content", None)
        if self._calls:
            message["tool_calls"] = [call.entry() for call in self._calls]
        return self.dialect.turn(message, self._finish, self.own, self._usage)

    def visible(self) -> Sequence[Any]:
        """Return the message that the agent has."""
        calls = [call.entry() for call in self._shown_calls]
        return [{"role": "assistant", "content": paired("".join(self._shown_text)), "tool_calls": calls}]
