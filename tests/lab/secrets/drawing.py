"""Values of made secrets, drawn from a small language of templates: `ghp_<A36>` is `ghp_` and 36 letters or digits."""

from __future__ import annotations

import base64
import random
import re
import string
from typing import Final

ALPHABETS: Final = {
    "A": string.ascii_letters + string.digits,
    "L": string.ascii_letters,
    "a": string.ascii_lowercase + string.digits,
    "U": string.ascii_uppercase + string.digits,
    "d": string.digits,
    "h": "0123456789abcdef",
    "H": "0123456789ABCDEF",
    "b": string.ascii_letters + string.digits + "+/",
    "u": string.ascii_letters + string.digits + "-_",
    "2": string.ascii_uppercase + "234567",
    "z": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
}
"""By the letter of a template. `z`: the letters of bech32 (BIP 173), in capitals."""
_PART = re.compile(r"<([AaLUdhHbu2z])(\d+)(?:-(\d+))?>|<(uuid|jwt|pem|json|basic)>")
_WORDS = [
    "summer",
    "winter",
    "river",
    "copper",
    "falcon",
    "orange",
    "marble",
    "tiger",
    "harbor",
    "maple",
    "silver",
    "rocket",
    "garden",
]


def drawn(template: str, chance: random.Random) -> str:
    """Return a value of the template."""

    def part(found: re.Match[str]) -> str:
        if found[4]:
            return _SPECIAL[found[4]](chance)
        return letters(ALPHABETS[found[1]], chance, int(found[2]), int(found[3] or found[2]))

    return _PART.sub(part, template)


def letters(alphabet: str, chance: random.Random, least: int, most: int) -> str:
    """Return letters of an alphabet, with two of them a digit where it has digits, as generators make sure of."""
    return "".join(chance.choices(alphabet, k=chance.randint(least, most)))


def uuid(chance: random.Random) -> str:
    """Return a UUID of version 4 (RFC 9562)."""
    digits = letters(ALPHABETS["h"], chance, 32, 32)
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def encoded(data: bytes) -> str:
    """Return base64 of RFC 4648."""
    return base64.b64encode(data).decode()


def of_json(chance: random.Random) -> str:
    """Return a small JSON object in base64url without padding, which begins with `eyJ`."""
    text = f'{{"iat":{chance.randint(10**9, 2 * 10**9)},"o":"{letters(ALPHABETS["A"], chance, 20, 40)}"}}'
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def jwt(chance: random.Random) -> str:
    """Return a signed token (RFC 7519)."""
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    return f"{head}.{of_json(chance)}.{letters(ALPHABETS['u'], chance, 43, 43)}"


def pem(chance: random.Random) -> str:
    """Return the lines of a key's body (RFC 7468), which begin with an ASN.1 sequence."""
    lines = chance.randint(8, 20)
    body = encoded(b"\x30\x82\x04\xa4\x02\x01\x00" + chance.randbytes(48 * lines - 7))
    return "\n".join(body[start : start + 64] for start in range(0, len(body), 64))


def basic(chance: random.Random) -> str:
    """Return user and password of RFC 7617."""
    return encoded(f"deploy:{printable(chance)}".encode())


def printable(chance: random.Random) -> str:
    """Return a password of all printable characters but space, as password managers make them."""
    marks = "!#$%&*+-./:;<=>?@^_{|}~()[],"
    value = [chance.choice(each) for each in (string.ascii_lowercase, string.ascii_uppercase, string.digits, marks)]
    value += chance.choices(string.ascii_letters + string.digits + marks, k=chance.randint(5, 20))
    chance.shuffle(value)
    return "".join(value)


def lower(chance: random.Random) -> str:
    """Return a password of small letters and digits, as `openssl` and `pwgen` are asked for them."""
    return chance.choice(string.ascii_lowercase) + letters(ALPHABETS["a"], chance, 9, 19) + chance.choice(string.digits)


def alphabetic(chance: random.Random) -> str:
    """Return a password of letters alone."""
    return letters(string.ascii_letters, chance, 12, 24)


def human(chance: random.Random) -> str:
    """Return a password as people make them: a word, digits, a mark."""
    word = chance.choice(_WORDS)
    word = "".join({"a": "@", "e": "3", "o": "0"}.get(each, each) if chance.random() < 0.4 else each for each in word)
    return f"{word.capitalize()}{chance.choice(['', '_', '-'])}{chance.randint(10, 9999)}{chance.choice('!#$?*')}"


def password(chance: random.Random) -> str:
    """Return a password of one of the ways that are in use."""
    return chance.choices((printable, lower, alphabetic, human), (5, 3, 1, 2))[0](chance)


_SPECIAL: Final = {"uuid": uuid, "jwt": jwt, "pem": pem, "json": of_json, "basic": basic}
