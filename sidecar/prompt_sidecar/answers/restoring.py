"""Masks in the arguments of the agent's calls become values again on their way to the agent.

What may be restored is the guard's to decide (`guard.restore`), which is given a whole JSON text. In a stream the
arguments come in pieces, and only what may be a part of a mask waits for the next one.

Theory. Arguments are JSON, so a mask is part of a string, and its value is escaped as that string asks for: a mask that
is whole is given to the guard as the only string of an array, and what comes back is put in its place. One case cannot
be decided there. A string may itself be JSON, such as the body of a request, and then a value is escaped once more; and
names of members are never filled. Whether a string is JSON shows at its end. So where it is until now, and the value
would be escaped, or the mask may be in a name, the rest of that string waits for its end, and is given to the guard
whole.
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
"""Takes a tool's name and a call's arguments, JSON text; returns them with values."""

_OPENING: Final = r"⟦|(?<!\\)\\+u27e6|%e2%9f%a6|(?<!\\)\\+342\\+237\\+246"
"""How a mask begins, as `guard.masks` reads it: a model may escape it. Backslashes double with each level of JSON. They
are looked at from the first of them: from each, a million would take hours."""
_CLOSING: Final = r"⟧|\\+u27e7|%e2%9f%a7|\\+342\\+237\\+247"
_BEGUN: Final = re.compile(_OPENING, re.IGNORECASE)
_MASK: Final = re.compile(rf"(?:{_OPENING})[a-z0-9_]{{1,64}}(?::|%3a)[a-z0-9]+(?:{_CLOSING})", re.IGNORECASE)
_PART: Final = re.compile(r"[a-z0-9_:%\\]*", re.IGNORECASE)
"""What may be between a mask's beginning and its end."""
_LONGEST: Final = 192
"""Characters of a mask without its beginning: kind and id, and an end that four levels of JSON have escaped."""
_CUT: Final = re.compile(
    r"(?:[\ud800-\udbff]|%(?:e(?:2(?:%(?:9(?:f(?:%a?)?)?)?)?)?)?|\\{1,64}(?:u(?:2(?:7e?)?)?|3(?:4(?:2(?:\\+(?:2(?:3(?:7(?:\\+(?:24?)?)?)?)?)?)?)?)?)?)\Z",
    re.IGNORECASE,
)
"""At the end of a text: a lone surrogate, half an escape, or half the beginning of a mask."""
_LONGEST_CUT: Final = 256
_TOKEN: Final = re.compile(rf'(?P<end>")|(?P<mask>{_OPENING})|\\.|[^"\\⟦%]+|%', re.IGNORECASE | re.DOTALL)
"""Of a string: its end, the beginning of a mask, an escape, other text."""
_OUTSIDE: Final = re.compile(r'[^"]*')
_STRUCTURE: Final = re.compile(r"[{}\[\],:]")
_SPACE: Final = r"(?: |\\[ntr]|\\u00(?:20|0[9ad]))*"
_NESTED: Final = re.compile(_SPACE + r"(?:[{\[]|\\u00[57]b)", re.IGNORECASE)
"""How a string begins that may be JSON itself."""
_PERHAPS_NESTED: Final = re.compile(_SPACE + r"(?:\\u[0-9a-f]{0,3})?\Z", re.IGNORECASE)
_LONGEST_SPACE: Final = 1_000
"""Characters at a string's beginning after which it counts as one that may be."""
_WHITE: Final = " \t\r\n"
_MOST_NESTED: Final = 65_536
"""Characters of such a string that are looked at for the sake of one mask."""


class StreamedArguments:
    """The arguments of one call in a stream."""

    def __init__(self, name: str, restore: Restore) -> None:
        self._name = name
        self._restore = restore
        self._given: list[str] = []
        self._sent: list[str] = []
        self._rest = ""
        """What was given and has not been looked at."""
        self._enclosing: tuple[str, Any] | None = None
        """What encloses the place that was reached: `{` or `[`, and in the same form what encloses that."""
        self._before = ""
        """The last of JSON's signs outside strings."""
        self._in_string = False
        self._string: list[str] = []
        """What was looked at of the string that was reached, unless it is no JSON."""
        self._nested: bool | None = None
        """Whether that string may be JSON itself; None: there was only space so far."""
        self._string_sent: list[str] = []
        """What of it was sent."""
        self._waiting: list[str] | None = None
        """What of it waits for its end; None: nothing does."""

    @property
    def waits(self) -> bool:
        """Whether something that was given has not gone on yet."""
        return bool(self._rest) or self._waiting is not None

    def feed(self, piece: str) -> str:
        """Take a piece; return what goes on now."""
        self._given.append(piece)
        self._rest = paired(self._rest + piece)
        return self._kept(self._advance(last=False))

    def rest(self) -> str:
        """Return what has waited, at the end of the call."""
        out = self._advance(last=True)
        out += "".join(self._waiting or ()) + self._rest  # the call was cut off in them
        self._waiting, self._rest = None, ""
        return self._kept(out)

    def undo(self) -> Callable[[], None]:
        """Return what takes back all that happens from now on."""
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
        """Return all that was sent, if `given` is all that was taken; None: it is something else."""
        return "".join(self._sent) if paired(given) == paired("".join(self._given)) else None

    def _kept(self, out: str) -> str:
        self._sent.append(out)
        return out

    def _advance(self, *, last: bool) -> str:
        """Look at what can be looked at now; return what goes on."""
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
            if found is None:  # half an escape
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
        """Whether what follows the beginning of a mask may be the rest of one that has not come yet."""
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
        """Take a piece of a string that is not filled; return what of it goes on."""
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
        """Take a mask; return what goes on."""
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
        """Take the end of a string; return what has waited, and the end."""
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
    """What a place in a string is, if the string is JSON."""

    NO_JSON = auto()
    """The string is none."""
    VALUE = auto()
    """In a member's value that is no JSON in its turn."""
    ELSEWHERE = auto()
    """In a name, or somewhere that is not looked into."""

    @classmethod
    def of(cls, string: str) -> _StringPlace:
        """Look at the end of `string`, which is the beginning of one, as written in JSON text."""
        if len(string) > _MOST_NESTED:
            return cls.ELSEWHERE
        try:
            text: str = orjson.loads(f'"{string}"')
        except orjson.JSONDecodeError:
            return cls.ELSEWHERE
        try:
            json.loads(text + "x")  # what a mask is to JSON; an escape at the very end would be taken for half of one
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
    """Restore the arguments that a member holds, as text or as an object; return whether they have changed."""
    value = holder.get(member)
    text = value if isinstance(value, str) else write(value).decode()
    if not _BEGUN.search(text):
        return False
    if has_halves(text):  # what gives values reads strict JSON: it is given each mask alone
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
    """Return what leaves arguments as they are where `restore` fails: half a mask may wait for the rest of it.

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
