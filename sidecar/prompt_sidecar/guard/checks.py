"""What a match must pass beyond its pattern to be a find: check digits, randomness, decodable headers.

A check is asked about each match of its rule, with the value and the text around it. Its work is linear in the value.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

Check = Callable[[str, str, str], bool]
"""Takes the value and at most `CONTEXT` characters before and after it."""
CONTEXT: Final = 64
GENERATION: Final = 1
"""Counts changes of checks in this module, for the digest of rules: a check that decides otherwise finds otherwise."""
_EXAMINED: Final = 4_096
"""Characters of a value that a check looks at: a longer one is as random as its beginning."""

IBAN_COUNTRIES: Final = {
    15: "NO",
    16: "BE",
    18: "DK FI FK FO GL NL SD",
    19: "MK SI",
    20: "AT BA EE KZ LT LU MN XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ OM SO TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "BI DJ FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU YE",
    31: "MT SC",
    32: "LC",
    33: "RU",
}
"""Countries by the length of their IBANs: the registry of ISO 13616, release 99."""

_BEFORE_PART: Final = re.compile(r"(?:[.\-_/#+&?@]|[0-9][ -])$")
_AFTER_PART: Final = re.compile(r"[\w/-]|\.[0-9]|[ -][0-9]")
_CARD_NAME: Final = re.compile(r"(?i:card|pan|number|no|cc)[\w\"' .]{0,12}[:=][\"']?$")
_NO_DIGITS: Final = re.compile("[^0-9]+")
_DOUBLED: Final = str.maketrans("0123456789", "0246813579")
"""The sum of the digits of a digit's double."""
_CARD_LENGTHS: Final = range(13, 20)  # ISO/IEC 7812-1
_TEMPLATE: Final = re.compile(
    r"x{5}|X{5}|\*{3}|\.{3}|(?i:example|placeholder|your[_-]|redacted|changeme|(?:key|token|secret|_)here\b)"
)
"""What documents write in place of a part of a key."""
_PLACEHOLDER: Final = re.compile(
    r"example|sample|placeholder|change[_-]?(?:me|it|this)|replace|insert|dummy|your|redacted|removed|hidden|masked|"
    r"undefined|secret|password|passwd|(?-i:x{4}|X{4})|\*{3}|\.{3}|[<>]|\$\{|\{\{|%\(|%s|^\$\w|^%\w+%$|^@\w+@$|process\.env|environ|null|none|true|false|"
    r"12345|abcdef|qwerty",
    re.IGNORECASE,
)
"""What stands in documents, templates and code in place of a random value."""
_NO_SECRET: Final = re.compile(
    r"(?i:(?:next|prev(?:ious)?|page|paging|continuation|sync|cursor|csrf|xsrf|start|end|stop|pad|eos|bos|unk|"
    r"special|max|min|num|input|output|total|prompt|completion|cached?|public|primary|foreign|sort|partition)"
    r"[a-z]{0,12}[_-]?(?:tokens?|keys?)"
    r"|(?:tokens?|keys?|secrets?|passwords?|auth|credentials?|pwd)[_-]?(?:id|ids|name|names|path|file|files|dir|url|uri|"
    r"ref|arn|type|types|kind|count|len|length|size|limit|index|field|class|version|prefix|suffix|format|label|"
    r"hash|sha|digest|expiry|expires|expiration|created|at|ttl|info|data|list|map|provider|mode|method|scheme|or|ors|ority|entic[a-z]{0,8})"
    r"[a-z_-]{0,8}"
    r"|tokeniz[a-z]{0,6})[\"'`\\\]]{0,3}[ \t]{0,4}(?:=>|:{0,3}=|\?=|\|\||[:>])[ \t]{0,4}[bruf]{0,2}[\"'`\\]{0,3}$"
)
"""Names that hold one of the words for secrets and name none; at the end of the text before a value."""
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_UUID_NAME: Final = re.compile(
    r"(?:(?i:key|secret|passw)[A-Za-z0-9_-]{0,24}|_TOKEN)[\"'`\\\]]{0,3}"
    r"[ \t]{0,4}(?:=>|:{0,3}=|\?=|:|>)[ \t]{0,4}[\"'`]{0,3}$"
)
_LISTED_NAME: Final = re.compile(
    r"([A-Za-z0-9_.-]+)[\"'\\]{0,3}[ \t\r\n,\\nrt]{0,32}[\"'\\]{0,3}[A-Za-z]{5,15}[\"'\\]{0,3}[ \t]{0,3}[:=][ \t]{0,3}"
    r"[\"'\\]{0,3}$"
)
"""The name in a list of names and values, at the end of the text before the value."""
_CLASSES: Final = re.compile(r"[a-z]+|[A-Z]+|[0-9]+|[^A-Za-z0-9]+")
_LOWER_RUN: Final = re.compile(r"[a-z]{6}")
_FILE: Final = re.compile(r"\.[A-Za-z]{2,4}(?::[0-9]+)*$")
_NO_HOST: Final = re.compile(r"\.(?:png|jpe?g|gif|svg|webp|css|js|ts|py|go|rs|md|json|ya?ml|html?|local|lan)$")


def luhn(value: str, before: str, after: str) -> bool:
    """Whether a number of a payment card has the right check digit (ISO/IEC 7812-1, annex B).

    A number inside a longer one, a decimal, a path or an identifier is none.
    """
    digits = _NO_DIGITS.sub("", value)
    doubled = digits[-2::-2].translate(_DOUBLED)
    if sum(map(int, digits[-1::-2] + doubled)) % 10 or len(digits) not in _CARD_LENGTHS or len(set(digits)) == 1:
        return False
    inside = _BEFORE_PART.search(before[-2:]) or _AFTER_PART.match(after)
    return not inside or (after[:1] not in {"-", "/"} and _CARD_NAME.search(before) is not None)


def iban(value: str, before: str, after: str) -> bool:
    """Whether an IBAN has its country's length and the right check digits (ISO 13616, mod 97)."""
    del before, after
    plain = value.replace(" ", "").upper()
    if plain[:2] not in IBAN_COUNTRIES.get(len(plain), "").split():
        return False
    return int("".join(str(int(character, 36)) for character in plain[4:] + plain[:4])) % 97 == 1


def jwt(value: str, before: str, after: str) -> bool:
    """Whether the first part of a token is the header of a JWT (RFC 7519): a JSON object that names an algorithm."""
    del before, after
    header = value.split(".", 1)[0]
    if len(header) > _EXAMINED:
        return False
    try:
        decoded = json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return False
    return isinstance(decoded, dict) and "alg" in decoded


def jwt_in_base64(value: str, before: str, after: str) -> bool:
    """Whether a text in base64 is a JWT."""
    try:
        decoded = base64.urlsafe_b64decode(value[: _EXAMINED - _EXAMINED % 4].rstrip("=") + "==").decode()
    except (binascii.Error, ValueError):
        return False
    return "." in decoded and jwt(decoded, before, after)


def email(value: str, before: str, after: str) -> bool:
    """Whether an address may be a person's: its host is no file, and it is no URL's user."""
    del after
    return _NO_HOST.search(value.lower()) is None and not value.lower().startswith("git@") and not before.endswith("//")


def phone(value: str, before: str, after: str) -> bool:
    """Whether an international number has the digits that E.164 asks for."""
    del before, after
    return 8 <= sum(character.isdigit() for character in value) <= 15


def key(value: str, before: str, after: str) -> bool:
    """Whether a key of a known form is filled in: not the one of a document, such as `ghp_xxxx…`."""
    del before, after
    body = value[:_EXAMINED]
    return _TEMPLATE.search(body) is None and entropy(body) >= 2.5


def random(value: str, before: str, after: str) -> bool:
    """Whether a value of no known form is as random as keys are, and no placeholder."""
    del before, after
    return is_random(value[:_EXAMINED])


def url_password(value: str, before: str, after: str) -> bool:
    """Whether the password of a URL is one, though it may be weak: no placeholder, and no port of a host."""
    del after
    user = re.search(r"//([^/:]*):$", before)
    return (
        _PLACEHOLDER.search(value) is None
        and value.lower() not in {"pass", "pwd", "user", "token", "pw"}
        and not (user is not None and user[1].lower() == value.lower())
    )


def assignment(value: str, before: str, after: str) -> bool:
    """Whether what follows the name of a secret is one: random, and no code, path or placeholder."""
    value = value.rstrip(".,;:=&?!")[:_EXAMINED] or value
    if after[:1] in {"(", "[", "{"}:
        return False
    if "://" in value or value.startswith(("/", "./", "../", "--")) or "~/" in value or _FILE.search(value):
        return False
    if _UUID.fullmatch(value):
        # A token is often the name of a place in a list; in capitals it is what programs are given to start with.
        return _UUID_NAME.search(before) is not None and _NO_SECRET.search(before) is None
    return is_random(value) and _NO_SECRET.search(before) is None


def listed(value: str, before: str, after: str) -> bool:
    """Whether the value of a member that stands behind the name of a secret is one, as `assignment` decides."""
    name = _LISTED_NAME.search(before)
    return assignment(value, f"{name[1]}=" if name else before, after)


def is_random(value: str) -> bool:
    """Whether characters follow each other as at random, and not as in words, names and numbers."""
    if len(value) < 8 or _PLACEHOLDER.search(value) or (_LOWER_RUN.search(value) and len(value) < 24):
        return False
    digits = sum(character.isdigit() for character in value)
    letters = sum(character.isalpha() for character in value)
    if not digits or not letters:
        # Without digits only a long mixture of both cases is no word; 20 random letters have a digit 97 times in 100.
        return bool(letters) and len(value) >= 20 and _changes(value) >= 0.35 and entropy(value) >= 3.5
    return _changes(value) >= 0.2 and entropy(value) >= 2.6


def _changes(value: str) -> float:
    """How often a character is of another class than the one before: lower, upper, digit, other."""
    return (len(_CLASSES.findall(value)) - 1) / max(len(value) - 1, 1)


def entropy(value: str) -> float:
    """Shannon entropy of the value's characters, in bits a character."""
    if not value:
        return 0.0
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values())


CHECKS: Final[Mapping[str, Check]] = {
    "key": key,
    "random": random,
    "assignment": assignment,
    "listed": listed,
    "url_password": url_password,
    "jwt": jwt,
    "jwt_in_base64": jwt_in_base64,
    "luhn": luhn,
    "iban": iban,
    "email": email,
    "phone": phone,
}
"""Every check by its name."""
