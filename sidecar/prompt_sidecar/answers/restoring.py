"""Replaces masks in the arguments of the agent's calls by their values, on their way to the agent.

The guard (`guard.restore`) decides what may be restored, from a whole JSON text. In a stream the arguments arrive in
pieces, and only text that may be a part of a mask waits for the next one.

Theory. Arguments are JSON, so a mask is part of a string, and its value is escaped as that string requires: a complete
mask is passed to the guard as the only string of an array, and replaced by the result. One case cannot be decided in
this way. A string may itself be JSON, such as the body of a request; then a value is escaped once more, and names of
members are never filled. Only its end shows whether a string is JSON. So if it is JSON so far, and the value would need
escapes, or the mask may be in a name, the rest of that string waits for its end, and is passed to the guard as a whole.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final

import orjson

from prompt_sidecar.answers.answer_json import read, write
from prompt_sidecar.process.logs import frames
from prompt_sidecar.providers.surrogates import escaped, has_halves, paired

_log = logging.getLogger(__name__)

Restore = Callable[[str, str], str]
"""Called with a tool's name and a call's arguments as JSON text; returns the arguments with values."""

_OPENING: Final = r"⟦|(?<!\\)\\+u(?:27e6|\{0{0,2}27e6\})|%e2%9f%a6|(?<!\\)\\+342\\+237\\+246"
"""How a mask begins, as `guard.masks` reads it: a model may escape it. Backslashes double with each level of JSON. A
match begins at the first of them: trying each one, a million would take hours."""
_CLOSING: Final = r"⟧|\\+u(?:27e7|\{0{0,2}27e7\})|%e2%9f%a7|\\+342\\+237\\+247"
_BEGUN: Final = re.compile(_OPENING, re.IGNORECASE)
_MASK: Final = re.compile(rf"(?:{_OPENING})[a-z0-9_]{{1,64}}(?::|%3a)[a-z0-9]+(?:{_CLOSING})", re.IGNORECASE)
_PART: Final = re.compile(r"[a-z0-9_:%\\{}]*", re.IGNORECASE)
"""Characters allowed between a mask's beginning and its end."""
_LONGEST: Final = 192
"""Characters of a mask after its beginning: kind and id, and an end escaped by four levels of JSON."""
_CUT: Final = re.compile(
    r"(?:[\ud800-\udbff]|%(?:e(?:2(?:%(?:9(?:f(?:%a?)?)?)?)?)?)?|\\{1,64}(?:u(?:2(?:7e?)?|\{0{0,2}(?:2(?:7(?:e6?)?)?)?)?|3(?:4(?:2(?:\\+(?:2(?:3(?:7(?:\\+(?:24?)?)?)?)?)?)?)?)?)?)\Z",
    re.IGNORECASE,
)
"""At the end of a text: a lone surrogate, or an incomplete escape or beginning of a mask."""
_LONGEST_CUT: Final = 256
_TOKEN: Final = re.compile(rf'(?P<end>")|(?P<mask>{_OPENING})|\\.|[^"\\⟦%]+|%', re.IGNORECASE | re.DOTALL)
"""A token in a string: its end, the beginning of a mask, an escape, other text."""
_OUTSIDE: Final = re.compile(r'[^"]*')
_STRUCTURE: Final = re.compile(r"[{}\[\],:]")
_SPACE: Final = r"(?: |\\[ntr]|\\u00(?:20|0[9ad]))*"
_NESTED: Final = re.compile(_SPACE + r"(?:[{\[]|\\u00[57]b)", re.IGNORECASE)
"""The beginning of a string that may itself be JSON."""
_PERHAPS_NESTED: Final = re.compile(_SPACE + r"(?:\\u[0-9a-f]{0,3})?\Z", re.IGNORECASE)
_LONGEST_SPACE: Final = 1_000
"""White space at a string's beginning, in characters, after which it counts as one that may be JSON."""
_WHITE: Final = " \t\r\n"
_MOST_NESTED: Final = 65_536
"""Characters of such a string that are parsed to decide about one mask."""


class StreamedArguments:
    """The arguments of one call in a stream."""

    def __init__(self, name: str, restore: Restore) -> None:
        self._name = name
        self._restore = restore
        self._given: list[str] = []
        self._sent: list[str] = []
        self._rest = ""
        """Text received that is not parsed yet."""
        self._enclosing: tuple[str, Any] | None = None
        """The container around the current position: `{` or `[`, and in the same form the container around that."""
        self._before = ""
        """The last structural character outside strings."""
        self._in_string = False
        self._string: list[str] = []
        """The parsed part of the current string, unless it is not JSON."""
        self._nested: bool | None = None
        """Whether that string may itself be JSON; None after only white space."""
        self._string_sent: list[str] = []
        """The part of it that was sent."""
        self._waiting: list[str] | None = None
        """The part of it that waits for its end; None if there is none."""

    @property
    def waits(self) -> bool:
        """Whether received text has not been returned yet."""
        return bool(self._rest) or self._waiting is not None

    def feed(self, piece: str) -> str:
        """Process a piece; return the text to send now."""
        self._given.append(piece)
        self._rest = paired(self._rest + piece)
        return self._kept(self._advance(last=False))

    def rest(self) -> str:
        """Return the waiting text, at the end of the call."""
        out = self._advance(last=True)
        out += "".join(self._waiting or ()) + self._rest  # the call was cut off inside them
        self._waiting, self._rest = None, ""
        return self._kept(out)

    def undo(self) -> Callable[[], None]:
        """Return a function that undoes all changes from now on."""
        rest, enclosing, before, in_string, nested = (
            self._rest,
            self._enclosing,
            self._before,
            self._in_string,
            self._nested,
        )
        texts = self._given, self._sent, self._string, self._string_sent
        waiting = self._waiting
        lengths = [len(each) for each in (*texts, waiting or [])]

        def undo() -> None:
            self._rest, self._enclosing, self._before = rest, enclosing, before
            self._in_string, self._nested = in_string, nested
            self._given, self._sent, self._string, self._string_sent = texts
            self._waiting = waiting
            for each, length in zip((*texts, waiting or []), lengths, strict=True):  # they only grow
                del each[length:]

        return undo

    def whole(self, given: str) -> str | None:
        """Return all text that was sent, if `given` is all text that was received; None otherwise."""
        return "".join(self._sent) if paired(given) == paired("".join(self._given)) else None

    def _kept(self, out: str) -> str:
        self._sent.append(out)
        return out

    def _advance(self, *, last: bool) -> str:
        """Parse as far as possible; return the text to send."""
        out: list[str] = []
        at, text = 0, self._rest
        limit = len(text)
        if not last and (cut := _CUT.search(text, max(0, limit - _LONGEST_CUT))):
            limit = cut.start()
        while at < limit:
            if not self._in_string:
                end = _OUTSIDE.match(text, at, limit).end()  # type: ignore[union-attr]  # it matches anywhere
                for sign in _STRUCTURE.findall(text, at, end):
                    self._sign(sign)
                if end < limit:
                    end += 1
                    self._in_string, self._nested = True, None
                    self._string, self._string_sent = [], []
                out.append(text[at:end])
                at = end
                continue
            found = _TOKEN.match(text, at, limit)
            if found is None:  # an incomplete escape
                break
            end = found.end()
            if found["mask"] is not None:
                whole = _MASK.match(text, at)
                if whole is not None:
                    end = whole.end()
                elif not last and self._may_go_on(text, end):
                    break
            piece = text[at:end]
            if found["end"] is not None:
                out.append(self._ended())
            elif found["mask"] is not None and end > found.end() and not self._is_name():
                out.append(self._filled(piece))
            else:
                out.append(self._passed(piece))
            at = end
        self._rest = text[at:]
        return "".join(out)

    @staticmethod
    def _may_go_on(text: str, end: int) -> bool:
        """Whether the text after the beginning of a mask may be the first part of the rest of the mask."""
        if len(text) - end >= _LONGEST:
            return False
        part = _PART.match(text, end)
        return part is not None and part.end() == len(text)

    def _sign(self, sign: str) -> None:
        if sign in "{[":
            self._enclosing = sign, self._enclosing
        elif sign in "}]" and self._enclosing is not None:
            self._enclosing = self._enclosing[1]
        self._before = sign

    def _is_name(self) -> bool:
        """Whether the string is a member's name."""
        return self._enclosing is not None and self._enclosing[0] == "{" and self._before in "{,"

    def _passed(self, piece: str) -> str:
        """Process a piece of a string that has no mask in it; return the part to send."""
        if self._waiting is not None:
            self._waiting.append(piece)
            return ""
        if self._nested is not False:
            self._string.append(piece)
            self._string_sent.append(piece)
        if self._nested is None:
            begun = "".join(self._string)
            if _NESTED.match(begun) or len(begun) > _LONGEST_SPACE:
                self._nested = True
            elif not _PERHAPS_NESTED.match(begun):
                self._nested = False
        return piece

    def _filled(self, mask: str) -> str:
        """Process a mask; return the text to send."""
        if self._waiting is not None:
            return self._passed(mask)
        value = self._restored(mask)
        place = _StringPlace.of("".join(self._string)) if self._nested else _StringPlace.NO_JSON
        if place is _StringPlace.NO_JSON:
            self._nested = False
        elif place is _StringPlace.VALUE and '"' not in value and "\\" not in value:
            self._string.append(mask)
            self._string_sent.append(value)
        else:
            self._waiting = []
            return self._passed(mask)
        return value

    def _ended(self) -> str:
        """Process the end of a string; return the waiting text, and the end."""
        rest = ""
        if self._waiting is not None:
            rest, sent = escaped("".join(self._waiting)), escaped("".join(self._string_sent))
            whole = self._restored("".join(self._string) + rest)
            rest = whole[len(sent) :] if whole.startswith(sent) else rest
        self._in_string, self._waiting = False, None
        return rest + '"'

    def _restored(self, inside: str) -> str:
        """Fill the masks inside a string."""
        return self._restore(self._name, f'["{escaped(inside)}"]')[2:-2]


class _StringPlace(Enum):
    """The kind of a position in a string, if the string is JSON."""

    NO_JSON = auto()
    """The string is not JSON."""
    VALUE = auto()
    """In a member's value that is not JSON itself."""
    ELSEWHERE = auto()
    """In a name, or in a place where masks are not restored."""

    @classmethod
    def of(cls, string: str) -> _StringPlace:
        """Parse the end of `string`, the beginning of a string as written in JSON text."""
        if len(string) > _MOST_NESTED:
            return cls.ELSEWHERE
        try:
            text: str = orjson.loads(f'"{string}"')
        except orjson.JSONDecodeError:
            return cls.ELSEWHERE
        try:
            json.loads(text + "x")  # looks like a mask to JSON; an escape at the very end would look incomplete
        except json.JSONDecodeError as error:
            if not error.msg.startswith("Unterminated string starting at"):
                return cls.NO_JSON
            is_value = text[: error.pos].rstrip(_WHITE)[-1:] == ":"
            inner = text[error.pos + 1 :].lstrip(_WHITE)[:1]
            return cls.VALUE if is_value and inner not in ("{", "[") else cls.ELSEWHERE
        except RecursionError:
            return cls.ELSEWHERE
        return cls.NO_JSON


def restored(holder: dict[str, Any], member: str, name: str, restore: Restore) -> bool:
    """Restore the arguments in a member, as text or as an object; return whether they have changed."""
    value = holder.get(member)
    text = value if isinstance(value, str) else write(value).decode()
    if not _BEGUN.search(text):
        return False
    if has_halves(text):  # the restoring function reads strict JSON: it is given each mask alone
        arguments = StreamedArguments(name, restore)
        made = arguments.feed(text) + arguments.rest()
    else:
        made = restore(name, text)
    if made == text:
        return False
    found = made if isinstance(value, str) else read(made.encode())
    if found is None:
        return False
    holder[member] = found
    return True


def safe(restore: Restore, failed: Callable[[], None] = lambda: None) -> Restore:
    """Return a function that leaves arguments unchanged if `restore` fails: a part of a mask may wait for the rest.

    `failed` is called then.
    """

    def filled(tool: str, arguments: str) -> str:
        try:
            return restore(tool, arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, the agent gets its answer, with masks
            _log.error("masks were not restored in an answer: %s", frames(error))
            failed()
            return arguments

    return filled
