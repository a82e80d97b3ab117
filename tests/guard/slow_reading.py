r"""The slow twin of `reading`: one expression for each kind of reading, with a function for each match."""

from __future__ import annotations

import re

_SIGNS = {sign: sign for sign in b"\"'=:,<>{}[]()| \n\r\t"} | {ord("&"): ord(" ")}
_LETTERS = {b"n": 10, b"r": 10, b"t": 9, b'"': 34, b"'": 39}
_ENTITIES = {b"quot": 34, b"apos": 39, b"amp": 38, b"lt": 60, b"gt": 62, b"nbsp": 32}
_CODE = re.compile(
    rb"[\x1b\\%&=](?:(?<=\x1b)\[[0-9;?]*[A-Za-z]"
    rb"|(?<=\\)\\*(?:(?:u001[bB]|x1[bB]|033)\[[0-9;?]*[A-Za-z]|u00(?P<unicode>[2-7][0-9A-Fa-f])|(?P<letter>[\"'nrt]))"
    rb"|(?<=%)(?P<percent>0[9AaDd]|[2-7][0-9A-Fa-f])"
    rb"|(?<==)(?:\r?\n=)?(?P<quoted>3D)(?:=\r?\n)?(?=[!-~])"
    rb"|(?<=&)(?:#(?P<decimal>[0-9]{1,3})|#x(?P<hex>[0-9A-Fa-f]{1,2})|(?P<entity>quot|apos|amp|lt|gt|nbsp));)"
)
_JOINT = re.compile(
    r"[\\=\"'](?:(?<=\\)\n[+-]?[ \t]*|(?<=[!-<>-~]=)\r?\n(?=[!-~])"
    r"|(?:(?<=[\"'])|(?P<twice>(?<=\")\"|(?<=')')|(?P<four>(?<=\")\"{3}|(?<=')'{3}))(?=[ \t+.\\\n])[ \t]*[+.]?[ \t]*"
    r"(?:\\?\n[+-]?[ \t]*(?:[+.][ \t]*)?[bfru]{0,2}|(?<=[ +.]))"
    r"(?:(?(twice)(?:\"{2}|'{2})|(?(four)(?:\"{4}|'{4})|[\"']))))"
)
_ONE_JOINT = re.compile(
    r"\\\n[+-]?[ \t]*|(?<=[!-<>-~]=)\r?\n(?=[!-~])"
    r"|[\"'][ \t]*[+.]?[ \t]*(?:\\?\n[+-]?[ \t]*(?:[+.][ \t]*)?[bfru]{0,2}|(?<=[ +.]))[\"']"
)
_WRITTEN = re.compile(
    r"%(?P<percent>[2-7][0-9A-Fa-f])"
    r"|\\+(?:u00(?P<unicode>[2-7][0-9A-Fa-f])|u\{0{0,4}(?P<braced>[2-7][0-9A-Fa-f])\}|x(?P<hex>[2-7][0-9A-Fa-f]))"
)
_TABLE = re.compile(
    r"^(?P<names>[^\n]*\|[^\n]*|[ \t]*[A-Za-z0-9_.-]+[ \t]*)\n[ \t]*[|+]?[-+|: \t]*--[-+|: \t]*\n"
    r"(?P<rows>(?:[^\n]*\|[^\n]*(?:\n|$)|[ \t]*[^\s|()]+[ \t]*(?:\n|$))+)",
    re.MULTILINE,
)


def read(data: bytes) -> bytes:
    """What `reading.read` returns."""
    return _CODE.sub(_meaning, data)


def _meaning(code: re.Match[bytes]) -> bytes:
    length = len(code[0])
    kind = code.lastgroup
    if kind is None:
        return b"\x7f" * length
    if kind == "quoted":
        return b" " * (length - 1) + b"="
    known = _LETTERS if kind == "letter" else _ENTITIES if kind == "entity" else None
    sign = _SIGNS.get(int(code[kind], 10 if kind == "decimal" else 16) if known is None else known[code[kind]])
    if sign is None:
        return code[0]
    return bytes([sign]) * length if sign in b"\"'\t " else b" " * (length - 1) + bytes([sign])


def joined(text: str) -> str:
    """The text of `reading.joined`, or the text itself."""
    return _JOINT.sub("", text)


def value_end(text: str, at: int) -> int:
    """Where a value ends that includes a character: at the first blank, quote or backslash that begins no joint."""
    behind: dict[int, int] = {}
    for start in range(1, len(text)):
        joint = _ONE_JOINT.match(text, start)
        if joint is not None:
            behind[start] = joint.end()
    at = behind.get(at - 1, at)
    while at < len(text):
        if at in behind:
            at = behind[at]
        elif text[at].isspace() or text[at] in "\"'\\":
            break
        else:
            at += 1
    return at


def written(text: str) -> str:
    """The text of `reading.written`, before it is read."""
    return _WRITTEN.sub(lambda code: chr(int(code[code.lastgroup or 0], 16)), text)


def cells(text: str) -> tuple[str, list[int]]:
    """The text of `reading.cells`, and where each value is in the table."""
    written, places = "", []
    for table in _TABLE.finditer(text):
        names = [cell.strip() for cell in table["names"].split("|")]
        at = table.start("rows")
        for row in table["rows"].splitlines(keepends=True):
            start = at
            for name, cell in zip(names, row.rstrip("\n").split("|"), strict=False):
                if name and cell.strip() and " " not in cell.strip():
                    written += f"{name} = {cell.strip()}\n"
                    places.append(start + len(cell) - len(cell.lstrip()))
                start += len(cell) + 1
            at += len(row)
    return written, places
