"""Gemini's generateContent and streamGenerateContent.

The model is in the path. A history is `contents`, each with a role and parts; a call is one part, complete even in a
stream, and may have no id. With `alt=sse` a stream is server-sent events, each a piece of the answer with its own
parts. SDKs add each piece to their history as a content, so consecutive contents of the model are one answer. Functions
are declared in one tool: of several tools, some models read only the first.

A part may be signed, and models reject a turn's first call without its original signature. A signature covers the
thinking before it, so signatures of hidden turns are not sent to the agent: from the first signed part on, a stream
waits until it is known whether its turn is hidden, mostly until the last piece. If the sidecar's call has the signature
and the agent's call behind it has none, the agent gets the placeholder that the provider accepts; when the turn is
restored, it has the original.

ai.google.dev/api/generate-content and /gemini-api/docs/thought-signatures.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import orjson

from prompt_sidecar.answers.answer_json import read, write_sound
from prompt_sidecar.answers.base import BETWEEN, Dialect, EarlierTurns, Filter, ModelTurn, add_output, error_text
from prompt_sidecar.answers.histories import NamedCall, arguments_digest, gist_of, named
from prompt_sidecar.answers.restoring import restored
from prompt_sidecar.answers.sse import Event, written
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.prompt.members import Members, NotJson, array, elements, loads
from prompt_sidecar.providers.api import ProviderApi
from prompt_sidecar.providers.gemini_contents import ERROR_STATUS, call_of
from prompt_sidecar.providers.gemini_contents import parts as parts_of
from prompt_sidecar.providers.surrogates import paired
from prompt_sidecar.providers.table import APIS
from prompt_sidecar.providers.untyped import member, objects, ordinal, string, within
from prompt_sidecar.providers.usage import ProviderUsage

API: Final = APIS["gemini_contents"]
PLACEHOLDER: Final = "skip_thought_signature_validator"
"""Accepted by the provider in place of a missing signature."""
_SIGNATURES: Final = ("thoughtSignature", "thought_signature")
_CONFIGURATIONS: Final = ("toolConfig", "tool_config")
_CALLING: Final = ("functionCallingConfig", "function_calling_config")
_ALLOWED: Final = ("allowedFunctionNames", "allowed_function_names")
_FREE: Final = frozenset({"", "AUTO", "MODE_UNSPECIFIED", "VALIDATED"})
"""Modes in which the model may answer with text, or call any function that is allowed. Under VALIDATED its calls are
also checked against their schemas (ai.google.dev/api/caching, FunctionCallingConfig; read in November 2026)."""
_ANY: Final = "ANY"
"""The mode in which it must call a function, one of `allowedFunctionNames` if these are given."""
_STOP: Final = "STOP"
"""The finish reason of a turn that ended normally."""
_NOTHING: Final = {"text": ""}
"""The part of a piece that only marks the end of the answer."""


def declarations(tool: bytes) -> tuple[str, bytes]:
    """Return name and value of the member of a Gemini tool that declares functions; empty if there is none."""
    try:
        members = Members(tool)
    except NotJson:
        return "", b""
    name = next((name for name in ("functionDeclarations", "function_declarations") if name in members), "")
    return name, members.raw(name)


class GeminiContents(Dialect):
    """See the module."""

    api: ClassVar[ProviderApi] = API
    answers_have_entries: ClassVar[bool] = True

    def speaker(self, entry: Any) -> str:
        """Return whom a content is from; one without a role is the user's."""
        role = member(entry, "role")
        return "model" if role == "model" else "user" if role in (None, "user") else "other"

    def agent_tools(self, members: Members) -> list[bytes]:
        """Return the declarations of the agent's functions."""
        return [each for raw in elements(members.raw("tools")) for each in elements(declarations(raw)[1])]

    def text(self, entry: Any) -> str | None:
        """Return a content's text."""
        parts = parts_of(entry)
        return "".join(
            [each["text"] for each in parts if isinstance(each.get("text"), str) and not each.get("thought")]
        )

    def calls(self, entry: Any) -> list[NamedCall]:
        """Return a content's calls."""
        found = [call for each in parts_of(entry) if (call := call_of(each)) is not None]
        return [named(call.get("id"), call.get("name"), call.get("args")) for call in found]

    def gist(self, entry: Any) -> str | None:
        """Return a gist of a content's text and calls; calls are identified by arguments, as agents may change ids."""
        calls = [call for each in parts_of(entry) if (call := call_of(each)) is not None]
        named = [(arguments_digest(call.get("args")), call.get("name")) for call in calls]
        return gist_of(self.text(entry) or "", named)

    calls_may_come_first: ClassVar[bool] = False

    def recall(self, members: Members) -> RecallOffer:
        """Whether the model need not call any function, gives one answer, and sends each call complete."""
        _, _, calling = _calling(members)
        if not (_is_free(calling) or _mode(calling) == "NONE" or (_mode(calling) == _ANY and _allowed(calling))):
            return RecallOffer.FORCED
        if _either(calling, "streamFunctionCallArguments"):
            return RecallOffer.UNREADABLE
        several = _either(_either(members, "generationConfig"), "candidateCount")
        return RecallOffer.OFFERED if several in (None, 0, 1) else RecallOffer.SEVERAL_ANSWERS

    def offer(self, members: Members, definitions: Sequence[bytes]) -> None:
        """Add the sidecar's functions behind the agent's, and to the allowed ones if these are listed."""
        self._allow(members, [self.tool_name(loads(each)) for each in definitions])
        tools = elements(members.raw("tools"))
        at = max(index for index, tool in enumerate(tools) if elements(declarations(tool)[1]))
        name, declared = declarations(tools[at])
        tool = Members(tools[at])
        tool.set(name, array([*elements(declared), *definitions]))
        members.set("tools", array([*tools[:at], tool.bytes(), *tools[at + 1 :]]))

    def narrow(self, members: Members) -> bool:
        """Allow only the agent's functions to be called, one of which must be."""
        outer, inner, calling = _calling(members)
        names = [name for each in self.agent_tools(members) if (name := self.tool_name(loads(each)))]
        if _mode(calling) != _ANY or not names:
            return False
        configuration = Members(members.raw(outer))
        choice = Members(configuration.raw(inner))
        choice.set(_ALLOWED[_CALLING.index(inner)], write_sound(names))
        configuration.set(inner, choice.bytes())
        members.set(outer, configuration.bytes())
        return True

    def withdraw(self, members: Members, names: Collection[str]) -> None:
        """Remove functions that were offered, by their names."""
        tools = []
        for each in elements(members.raw("tools")):
            name, declared = declarations(each)
            tool = Members(each)
            if name:
                kept = [one for one in elements(declared) if self.tool_name(loads(one)) not in names]
                tool.set(name, array(kept))
            tools.append(tool.bytes())
        members.set("tools", array(tools))

    @staticmethod
    def _allow(members: Members, names: Sequence[str]) -> None:
        """Add functions to the allowed ones, if a free choice is limited by name; a forced call stays the agent's."""
        outer, inner, calling = _calling(members)
        spelling = next((each for each in _ALLOWED if member(calling, each)), "")
        if not spelling or not _is_free(calling):
            return
        configuration = Members(members.raw(outer))
        choice = Members(configuration.raw(inner))
        allowed = elements(choice.raw(spelling))
        if allowed:  # otherwise it is not a list, and the provider reports that
            choice.set(spelling, array([*allowed, *map(orjson.dumps, names)]))
            configuration.set(inner, choice.bytes())
            members.set(outer, configuration.bytes())

    def forbid_tools(self, members: Members, _: Sequence[Any]) -> None:
        """Make the model answer without functions."""
        outer, inner, _calls = _calling(members)
        try:
            configuration = Members(members.raw(outer))
        except NotJson:
            configuration = Members(b"{}")
        configuration.set(inner, b'{"mode":"NONE"}')
        members.set(outer, configuration.bytes())

    def joined(self, answers: Sequence[Any], following: Sequence[bytes]) -> list[bytes]:
        """Put the sidecar's results into the content that contains the agent's."""
        first = loads(following[0]) if following else None
        if not answers or not isinstance(first, dict) or first.get("role") == "model":
            return [*map(orjson.dumps, answers), *following]
        merged = Members(following[0])
        raw = merged.raw("parts")
        theirs = elements(raw) if isinstance(first.get("parts"), list) else [raw]
        ours = [orjson.dumps(part) for part in answers[0]["parts"]]
        merged.set("parts", array([*ours, *theirs]))
        return [merged.bytes(), *following[1:]]

    def gists(self, entries: Sequence[Any]) -> list[str | None]:
        """Return the gists; consecutive contents of the model have one, at the last of them."""
        found: list[str | None] = []
        answer: list[Any] = []
        for index, entry in enumerate(entries):
            if self.speaker(entry) != "model":
                found.append("")
                continue
            answer += parts_of(entry)
            goes_on = index + 1 < len(entries) and self.speaker(entries[index + 1]) == "model"
            found.append(None if goes_on else self.gist({"parts": answer}))
            answer = answer if goes_on else []
        return found

    def own_calls(self, entries: Sequence[Any], own: Collection[str]) -> list[Any]:
        """Return the sidecar's calls in a turn, as parts."""
        return [part for entry in entries for part in parts_of(entry) if _is_own(part, own)]

    def calling(self, entries: Sequence[Any], own: Collection[str]) -> list[Any]:
        """Return a content with these calls, of which the first needs a signature."""
        calls = self.own_calls(entries, own)
        if not calls:
            return []
        if not _is_signed(calls[0]):
            calls[0] = {**calls[0], "thoughtSignature": PLACEHOLDER}
        return [{"role": "model", "parts": calls}]

    def called_too(self, entries: Sequence[bytes], calls: Sequence[bytes]) -> list[bytes]:
        """Add calls to the last content, behind calls of the agent's if there are any."""
        if not calls:
            return list(entries)
        values = [loads(each) for each in entries]
        at = next((at for at in range(len(values) - 1, -1, -1) if self.calls(values[at])), len(values) - 1)
        last, raw = Members(entries[at]), Members(entries[at]).raw("parts")
        parts = elements(raw) if isinstance(member(values[at], "parts"), list) else [raw]
        last.set("parts", array([*filter(None, parts), *calls]))
        return [*entries[:at], last.bytes(), *entries[at + 1 :]]

    def read(self, answer: Mapping[str, Any], own: Collection[str]) -> ModelTurn:
        """Read a whole answer."""
        candidate = _first(answer) or {}
        usage = API.usage.read(answer)
        return self.turn(parts_of(candidate.get("content")), candidate.get("finishReason"), own, usage)

    def turn(
        self, parts: list[dict[str, Any]], finish: Any, own: Collection[str], usage: ProviderUsage | None
    ) -> ModelTurn:
        """Return the turn that has these parts and this reason to finish."""
        entries = [{"role": "model", "parts": parts}] if parts else []
        return self.turn_of(entries, own, usage, whole=finish == _STOP, finish=finish)

    def show(self, shown: EarlierTurns, turn: ModelTurn) -> None:
        """Keep a hidden turn's text."""
        for entry in turn.entries:
            text = "".join(part["text"] for part in entry["parts"] if _is_user_text(part))
            if text:
                shown.texts.append({"text": BETWEEN + text if shown.texts else text})

    def written(self, answer: dict[str, Any], shown: EarlierTurns, own: Collection[str]) -> Sequence[Any]:
        """Turn the last answer into the one for the agent."""
        candidate = _first(answer)
        if candidate is None:
            return []
        content = candidate.get("content")
        content = candidate["content"] = dict(content) if isinstance(content, dict) else {"role": "model"}
        kept = list(_Signing().agents(parts_of(content), own))
        if shown.texts:
            kept = list(_separated(kept))
        content["parts"] = [*shown.texts, *kept] or [_NOTHING]
        _add_output(answer, shown.output_tokens)
        return [content]

    def filter(self, own: Collection[str], _: Members | None) -> Filter:
        """Create a filter."""
        return _Pieces(self, own)

    def stream_error(self, status: int, body: bytes) -> bytes:
        """End a stream with an error."""
        found = member(read(body), "error")
        name = ERROR_STATUS.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
        fallback = {"code": status, "message": error_text(body, status), "status": name}
        return written({"error": found if isinstance(found, dict) else fallback})


def _either(holder: Any, name: str) -> Any:
    """Return a member in either spelling, or None."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    if not isinstance(holder, (dict, Members)):
        return None
    found = holder.get(name)
    return holder.get(snake) if found is None else found


def _calling(members: Members) -> tuple[str, str, Any]:
    """Return the names of the members that set how functions are called, in the agent's spelling, and the inner one."""
    outer = next((name for name in _CONFIGURATIONS if name in members), _CONFIGURATIONS[0])
    configuration = members.get(outer)
    inner = next((name for name in _CALLING if member(configuration, name) is not None), _CALLING[0])
    return outer, inner, member(configuration, inner)


def _mode(calling: Any) -> str:
    """Return the mode of calling; empty if there is none, or it is not a string."""
    return string(_either(calling, "mode")).upper()


def _allowed(calling: Any) -> Any:
    """Return the names of the functions that may be called; None if all may."""
    return next((found for each in _ALLOWED if (found := member(calling, each))), None)


def _is_free(calling: Any) -> bool:
    """Whether the model may choose whether it calls a function."""
    mode = _either(calling, "mode")
    return mode is None or (isinstance(mode, str) and mode.upper() in _FREE)


def _first(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the first candidate."""
    return next((each for each in objects(answer.get("candidates")) if ordinal(each.get("index")) in (None, 0)), None)


def _is_own(part: Mapping[str, Any], own: Collection[str]) -> bool:
    call = call_of(part)
    return call is not None and within(call.get("name"), own)


def _is_signed(part: Mapping[str, Any]) -> bool:
    return any(part.get(name) for name in _SIGNATURES)


def _is_user_text(part: Mapping[str, Any]) -> bool:
    """Whether a part is text for the user."""
    return bool(part.get("text")) and isinstance(part["text"], str) and not part.get("thought")


def _shows(part: Mapping[str, Any]) -> bool:
    """Whether a part has visible content, that is, more than thinking."""
    return not part.get("thought") and (part.get("text") != "" or len(part) > 1)


def _separated(parts: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the parts, with space before the first text."""
    begun = False
    for part in parts:
        is_text = _is_user_text(part)
        yield {**part, "text": BETWEEN + part["text"]} if is_text and not begun else part
        begun = begun or is_text


def _add_output(answer: Mapping[str, Any], before: int) -> None:
    add_output(answer.get("usageMetadata"), "candidatesTokenCount", before, "totalTokenCount")


class _Signing:
    """Determines which of a turn's parts go to the agent."""

    def __init__(self) -> None:
        self._signed = False
        """Whether a call of the sidecar's has the signature that the next one needs."""
        self._called = False

    def agents(self, parts: Iterable[dict[str, Any]], own: Collection[str]) -> Iterator[dict[str, Any]]:
        """Yield those of the next parts that are the agent's."""
        for part in parts:
            if _is_own(part, own):
                self._signed = self._signed or _is_signed(part)
                continue
            if call_of(part) is not None:
                first, self._called = not self._called, True
                if first and self._signed and not _is_signed(part):
                    yield {**part, "thoughtSignature": PLACEHOLDER}
                    continue
            yield part


class _Pieces(Filter):
    """Filters the pieces of an answer. The parts of each turn are kept, as a hidden turn must be sent back whole."""

    dialect: GeminiContents

    def __init__(self, dialect: GeminiContents, own: Collection[str]) -> None:
        super().__init__(dialect, own)
        self._id: Any = None
        self._visible: list[dict[str, Any]] = []
        """The parts that the agent has."""

    def begin(self) -> None:
        """Begin a turn."""
        super().begin()
        self._parts: list[dict[str, Any]] = []
        self._signing = _Signing()
        self._own_calls = False
        self._agents_calls = False
        self._waits = False
        """Whether further pieces wait until it is known whether the turn is hidden."""
        self._decided = self.last or not self.own
        """Whether that is known."""
        self._finish: Any = None
        self._hidden = False
        self._separates = any(map(_is_user_text, self._visible))
        """Whether the next text needs space before it."""
        self._usage: dict[str, Any] = {}
        self._model: Any = None

    def feed(self, event: Event) -> bytes:
        """Process a piece."""
        data = event.json()
        if event.data is None:  # a comment that keeps the connection alive
            return event.raw
        if data is None:
            self._held.append(partial(self._sent, event, None, changed=False))
            return b"" if self._held[1:] else self._flushed()
        if "error" in data:
            return self._flushed() + event.raw
        self._count(data)
        candidate = _first(data)
        parts: list[dict[str, Any]] = []
        changed = False
        if candidate is not None:
            parts, changed = self._of_the_agent(candidate)
            if candidate.get("finishReason"):  # some servers send it with each piece
                self._finish, self.ended = candidate["finishReason"], True
                self._hidden = self.hides()
        if changed and not parts and not self.ended:
            return b""
        if self.restore is not None:  # in all candidates
            done = [restored(*each, self.restore) for each in API.call_places(data)]
            changed = changed or any(done)
        self._held.append(partial(self._sent, event, data, changed=changed))
        self._waits = self._waits or any(map(_is_signed, parts))
        self._decided = self._decided or self.ended or any(call_of(part) is not None for part in parts)
        shows = any(map(_shows, parts)) or (candidate is None and len(self._held) == 1)
        return self._flushed() if self._decided or (shows and not self._waits) else b""

    def _count(self, data: dict[str, Any]) -> None:
        if isinstance(usage := data.get("usageMetadata"), dict):
            self._usage |= {name: value for name, value in usage.items() if value is not None}
        self._model = data.get("modelVersion") or self._model

    def _of_the_agent(self, candidate: dict[str, Any]) -> tuple[list[dict[str, Any]], bool]:
        """Remove everything but the agent's parts from a piece; return its parts, and whether it was changed."""
        content = candidate.get("content")
        received = parts_of(content)
        self._parts += [part for part in received if part != _NOTHING]
        for part in received:
            if _is_own(part, self.own):
                self._own_calls = self.left_out = True
            elif call_of(part) is not None:
                self._agents_calls = True
        kept = list(self._signing.agents(received, self.own))
        changed = len(kept) < len(received) or any(one is not other for one, other in zip(kept, received, strict=True))
        if changed:
            assert isinstance(content, dict)
            content["parts"] = kept or [_NOTHING]
        return kept, changed

    def hides(self) -> bool:
        """Whether this is a hidden turn; a piece behind the end may still have calls."""
        return self._own_calls and not self._agents_calls and not self.last and self._finish == _STOP

    def _sent(self, event: Event, data: dict[str, Any] | None, *, changed: bool) -> bytes:
        """Send a piece; of a hidden turn only its text."""
        if data is None:
            return b"" if self._hidden else event.raw
        candidate = _first(data)
        parts = parts_of(candidate.get("content")) if candidate is not None else []
        if self._hidden:
            parts = [{"text": part["text"]} for part in parts if _is_user_text(part)]
            if candidate is None or not parts:
                return b""
            candidate.pop("finishReason", None)
            data.pop("usageMetadata", None)
            changed = True
        if self._separates and any(map(_is_user_text, parts)):
            parts, changed, self._separates = list(_separated(parts)), True, False
        if self._id is None:
            self._id = data.get("responseId")
        if self.turns > 1:
            if "responseId" in data and self._id is not None:
                data["responseId"] = self._id
            _add_output(data, self.output_before)
            changed = True
        self._visible += parts
        if not changed:
            return event.raw
        if candidate is not None and parts:
            candidate["content"] = {**candidate["content"], "parts": parts}
        return event.changed(data).raw

    def rest(self) -> bytes:
        """Return the waiting bytes."""
        return self._flushed()

    def counted(self) -> ProviderUsage | None:
        """Return the provider's usage."""
        reported = {"usageMetadata": self._usage, "modelVersion": self._model}
        return API.usage.read(reported) if self._usage else None

    def stopped(self) -> Any:
        """Return the stream's finish reason."""
        return self._finish

    def turn(self) -> ModelTurn:
        """Return the turn."""
        return self.dialect.turn(list(_merged(self._parts)), self._finish, self.own, self.counted())

    def visible(self) -> Sequence[Any]:
        """Return the content that the agent has."""
        return [{"role": "model", "parts": self._visible}]


def _merged(parts: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the parts, with consecutive plain texts merged."""
    texts: list[str] = []
    for part in parts:
        if part.keys() == _NOTHING.keys() and isinstance(part["text"], str):
            texts.append(part["text"])
            continue
        if texts:
            yield {"text": paired("".join(texts))}
            texts = []
        yield part
    if texts:
        yield {"text": paired("".join(texts))}
