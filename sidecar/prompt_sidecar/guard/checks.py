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
"""Takes the value, and at most `CONTEXT` characters before it and after it."""
CONTEXT: Final = 64
GENERATION: Final = 7
"""Incremented when a check in this module changes, for the digest of rules, as changed checks find other values."""
EXAMINED: Final = 4_096
"""Characters of a value that a check examines: a longer one is as random as its beginning."""
_SHORT: Final = 64
"""Characters of a value that take less time to examine than the text before it."""

DECODED: Final = "decoded"
"""The check of a text in base64: whether it holds what another rule finds. The scanner runs its rules on it."""

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
"""The digit sum of a doubled digit."""
_CARD_LENGTHS: Final = range(13, 20)  # ISO/IEC 7812-1
_TEMPLATE: Final = re.compile(
    r"x{5}|X{5}|\*{3}|\.{3}|(?i:example|placeholder|your[_-]|redacted|changeme|(?:key|token|secret|_)here\b)"
)
"""What documents write in place of part of a key."""
_PLACEHOLDER: Final = re.compile(
    r"example|sample|placeholder|change[_-]?(?:me|it|this)|replace|insert|dummy|your|redacted|removed|hidden|masked|"
    r"undefined|secret|password|passwd|(?-i:x{4}|X{4})|\*{3}|\.{3}|[<>]|\$\{|\{\{|%\(|%s|^\$\w|^%\w+%$|^@\w+@$|process\.env|environ|null|none|true|false|"
    r"12345|abcdef|abc123|123abc|qwerty",
    re.IGNORECASE,
)
"""What documents, templates and code have in place of a random value."""
_PLACEHOLDER_IN_ALL: Final = re.compile(_PLACEHOLDER.pattern.replace("[<>]", "^<|>$"), re.IGNORECASE)
"""The same for values of all characters: brackets around them make a placeholder, one in them does not."""
_NO_SECRET: Final = re.compile(
    r"(?:(?:(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:sync|start|end|stop|pad|eos|bos|unk|max|min|num|input|output|total|sort)"
    r"|(?i:next|prev(?:ious)?|page|paging|continuation|cursor|csrf|xsrf|postman|websocket|special|prompt|completion|cached?|public|primary|"
    r"foreign|partition|idempotency))(?i:[a-z]{0,12}[_-]?(?:tokens?|keys?))"
    r"|(?i:(?:tokens?|keys?|secrets?|passwords?|auth|credentials?|pwd)[_-]?(?:id|ids|name|names|path|file|files|dir|url|uri|"
    r"ref|arn|type|types|kind|count|len|length|size|limit|index|field|class|version|prefix|suffix|format|label|"
    r"hash|sha|digest|expiry|expires|expiration|created|at|ttl|time|info|data|list|map|provider|mode|method|scheme|or|ors|ority|entic[a-z]{0,8})"
    r"[a-z0-9_-]{0,8}"
    r"|tokeniz[a-z]{0,6}))\Z"
)
"""Names with a word for secrets that do not name a secret; at the end of a text."""
_NO_SECRET_LENGTH: Final = 33
"""The most characters of such a name."""
_NAME_END: Final = re.compile(
    r"[\"'`\\\]]{0,3}[ \t]{0,4}(?:=>|:{0,3}=|\?=|\|\||[:>])[ \t]{0,4}[bruf]{0,2}[\"'`\\]{0,3}$"
)
"""What is between a name and its value."""
_NAME_END_LENGTH: Final = 21
"""The most characters of it, with a line feed."""
_FIRST_PART: Final = re.compile(r"^[A-Za-z0-9]{1,12}[_.:-](?=[^_.:-]*[A-Za-z0-9]{8})")
"""What precedes the first separator: the prefix of a key, if that has one."""
_UNLISTED: Final = 28
"""The fewest letters and digits of a key whose prefix no rule knows."""
_UNLISTED_KEY: Final = 20
"""The same if a word in the prefix says that it is a key."""
_KEY_WORD: Final = re.compile(r"(?i)(?:(?<![aeiou])[srp]k|pat|key|api|tok|token|secret|live)\Z")
_WORD: Final = 8
"""The fewest characters of a part in which a word makes it a name of code."""
_NUMBER: Final = 6
"""The fewest digits of a part that numbers an object, so that the value identifies it."""
_HASH: Final = re.compile("[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}")
_WORDS_BEFORE: Final = re.compile(r"^(?:[a-z]{2,12}[_-])+")
"""Further words of the prefix."""
_UNLISTED_LOWER: Final = 40
"""The same for a key without capital letters: shorter ones are as often hashes of names."""
_IDENTIFIERS: Final = """
    call srvtoolu mcptoolu toolu tooluse tool msg message resp req request chatcmpl cmpl gen run lc thread asst
    file batch step item evt event trace span conv cntr container skill rs fc fco ws fs ci cu ig mcp mcpl mcpr vs
    vsf ctc ctco cmp comp lsh lsho sh sho apc apco amsg tsc tso sess session prompt pmpt ftjob modr eval evalrun
    msgbatch wrkspc pyd upd chunk sha1 sha224 sha256 sha384 sha512 md5 css style styles class id uid guid rev etag
    font img image asset hash digest checksum commit build dpl prj proj project team user usr org acct account cus
    customer sub price product order job task blob data cache layer bundle vendor env tmp temp backup upload
    release version cursor page node doc ref snap ami arn vpc subnet sg vol eni ecdsa ssh base64 nonce srcset
    index main
"""
_NO_KEY: Final = frozenset(_IDENTIFIERS.split())
"""Prefixes of identifiers (those of model providers among them, which agents see most), hashes and names of files."""
_AFTER_NAME: Final = re.compile(r"[(=]|\.[A-Za-z0-9]|/")
"""What follows a name in code, a file or an address."""
_SAME_CLASS: Final = re.compile("[a-z]{10}|[A-Z]{10}|[0-9]{14}")
"""Longer runs than those of drawn letters and digits."""
_BASE64: Final = str.maketrans("-_", "+/")
_TEXT_BYTES: Final = bytes(range(0x20, 0x7F)) + b"\n\r\t"
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_UUID_CHARACTERS: Final = 6
"""Different characters, the dash among them, that a UUID has which is not a placeholder such as `1111…-…1112`."""
_UUID_NAME: Final = re.compile(
    r"(?:(?i:key|secret|passw)[A-Za-z0-9_-]{0,24}|_TOKEN)[\"'`\\\]]{0,3}"
    r"[ \t]{0,4}(?:=>|:{0,3}=|\?=|:|>)[ \t]{0,4}[\"'`]{0,3}$"
)
_KEY_AUTHORIZATION: Final = re.compile(r"(?i:key_?authorization)[^A-Za-z0-9]{1,12}$")
_LISTED_NAME: Final = re.compile(
    r"([A-Za-z0-9_.-]+)[\"'\\]{0,3}[ \t\r\n,\\nrt]{0,32}[\"'\\]{0,3}[A-Za-z]{5,15}[\"'\\]{0,3}[ \t]{0,3}[:=][ \t]{0,3}"
    r"[\"'\\]{0,3}$"
)
"""The name in a list of names and values, at the end of the text before the value."""
_UUID_TOKEN: Final = re.compile(
    r"(?:(?i:[a-z0-9][_-](?:token|key|secret|pass[a-z]*))|[a-z](?:Token|Key|Secret|Password))[\"'`\\\]]{0,9}[\s|]{0,40}"
    r"(?:=>|:{0,3}=|\?=|:[ \t]*[>|]-?|[:=][ \t]*\{\s*[\"']?(?:value|default)[\"']?[ \t]*[:=]"
    r"|,\s*[\"']Type[\"']:[ \t]*[\"']SecureString[\"'],\s*[\"']Value[\"']:|[:>|, ])[\s\"'`]{0,40}$"
)
"""The name of a token before a UUID: with a separator, before a folded text or a block, in a parameter of SSM."""
_CODE: Final = re.compile(
    r"^[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*[(\[]|[)\]]\.|::|->|=>|&&|\|\||(?<![A-Za-z0-9+/]{16})==|\$\{|\$\(|%\(|\{\{|^\$[A-Za-z_]\w*$|^\$[a-z]+[.\-]|</?[a-z]|"
    r"^(?:toolu|call|msg|req|resp|chatcmpl)[_-]|://|@v?[0-9]+\.[0-9]|^[a-z0-9-]+(?:\.[a-z0-9-]+)+/|^\.{0,2}/(?![A-Za-z0-9/]*[+=])|~/|^--|\.[A-Za-z]{2,4}(?::[0-9]+)*$|^AAAA[A-G][0-9A-Za-z]{2}[NVjrz]|^ssh-|^(?:self|this|os|process|window|module|exports|config|settings)\."
    r"|\.[a-z]\w{2,}\(|[:=]![01](?:[,})]|$)|,[A-Za-z]=[A-Za-z]\[|^[A-Z]\{[A-Za-z_][\w.]*\}$"
    r"|^[A-Za-z_]+\$[0-9]+$|^[A-Z]{1,6}#[0-9]+$|^RFC[0-9]|^![01](?![A-Za-z0-9])|^#[0-9A-Fa-f]{3,8}(?:;|$)|;--[a-z]|\{[a-z-]+:"
    r"|^,?[a-z]\.[A-Za-z]\w|^[a-z]\?[a-z]\.|^\{[a-z]\w*\.|\}=[a-z];|[;}](?:const|return|let|class|case|else|break|void|var|if)\b|"
    r"^@[a-z0-9-]+/[a-z]|^arn:aws|^return\b|^\[\*?[a-z_]+\[|^#[a-z]+(?:[_-][a-z]+)+[0-9]{0,2}$|^id_(?:rsa|dsa|ecdsa|ed25519)|^[0-9]+/[a-z]{1,6}(?:/|$)|^\[[a-z-]+\]$|,![01]\}|"
    r"\b(?:application|text|image)/[a-z]|^urn:|^\[\]\w|^&\w[\w.:]*[({]|^__[A-Za-z0-9]+_|^\{\w+:\w"
)
"""What code, paths and templates have after the name of a secret, and public keys of SSH."""
_TERMS: Final = re.compile(
    r"(?i)(?<![a-z0-9])(?:(?:pkcs|rfc|krb|sha|hs|rs|es|ps|aes|a|x|md|hmac|rsa|ecdsa|ed|ecp|modp|curve|oauth|http|tls|ssl|"
    r"utf|ipv|base|iso|pbes|pbkdf|scram|ntlm|mschapv|hkdf|blake|cha|salsa|rc|des|k|s|v|p|int|uint|float)[_-]?[0-9]{1,4})"
    r"(?![0-9])"
)
"""Names of algorithms, standards and versions that have a number."""
_TERM_JOINTS: Final = re.compile(r"[A-Za-z0-9_./:,;(){}\[\]-]+")
"""What names with such terms consist of: characters that separate words, and no marks of passwords."""
_SNAKE: Final = re.compile(
    r"_{0,2}(?:[a-z]{2,}[0-9]{0,4}(?:_(?:[a-z]+[0-9]{0,3}|[0-9]{1,3}))+"
    r"|[A-Z]{2,}[0-9]{0,6}(?:_(?:[A-Z]+[0-9]{0,4}|[0-9]{1,4}))+)"
)
"""A name of several words with underscores."""
_CAMEL: Final = re.compile(r"_{0,2}[A-Z]?[a-z]{2,}(?:[A-Z][a-z]{2,}|By|To|Of|In|On|Id|Is|At|Or|As)+")
_SIGIL: Final = re.compile(r"^[(*&%@{\[]{1,3}(?=[A-Za-z])")
"""What precedes a name in code and its documentation: a pointer, an address, a reference."""
_DOCUMENTED: Final = re.compile(
    "SplxlOBeZQQYbYS6WxSbIA|2YotnFZFEjr1zCsicMWpAA|tGzv3JOkF0XG5Qx2TlKWIA|7Fjfp0ZBr1KtDRbnfVdmIw|gX1fBat3bV|"
    "czZCaGRSa3F0MzpnWDFmQmF0M2JW|mF_9[.]B5f-4[.]1JqM|dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk|"
    "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c|QWxhZGRpbjpvcGVuIHNlc2FtZQ"
)
"""Example values of RFC 6749, 6750, 7515, 7617 and of jwt.io, which documents and tests repeat."""
_LETTER_RUNS: Final = re.compile(r"[A-Za-z]+")
_NO_ARGUMENT: Final = re.compile(
    r"(?i:forward[_-]auth|auth(?:or(?:s|ity|ities|ization)?|entic[a-z]*)|keepass(?:xc)?|bypass|compass|keywords?|recv-keys?|keyserver)"
    r"[\s=:\"'`]{1,40}$"
)
"""Words before a value that have a word for secrets as a part of them and name none."""
_PLAIN_KEY: Final = re.compile(r"(?<![A-Za-z0-9_.-])[Kk]ey[^A-Za-z0-9]{1,40}$")
"""A name that consists of the word alone: as often the name of an object in a store as of a secret."""
_MY_TOKEN: Final = re.compile(r"(?i:(?:my|some|a|the)[-_.]?(?:token|pass|secret|key|pat)|pass[-_.]word)")
"""What documents write for the password of a URL."""
_ASSIGNS: Final = re.compile(r"([A-Za-z][\w.-]*)=[^=]")
"""A name with its value, in place of a value: an argument of a call, a parameter of a URL."""
_PREFIX: Final = re.compile(r"[A-Za-z]{2,12}[_-](?:secret|passw(?:or)?d)[_-](?=[A-Za-z0-9_-]{20})", re.IGNORECASE)
"""What keys of some services begin with."""
_TYPE: Final = re.compile(r"(?:Private|Public|Secret|Signing|Access)?(?:Key|Token|Secret|Password|Credential)s?[,;)]?$")
"""The end of a type's name."""
_DATED: Final = re.compile(r"(?<![0-9])20[0-9]{2}-[01][0-9]-[0-3][0-9](?![0-9])")
_NUMBERED: Final = re.compile(
    r"^[v^~]?[0-9]+(?:\.[0-9]+)+|^[0-9]{4}_[a-z]{2,}(?:_[a-z0-9]+)*$|^[0-9]{4}-[0-9]{2}-[0-9]{2}|^[0-9]+(?:[a-z]{1,3})?$|^[A-Za-z]+[0-9]+\.[0-9]|^[0-9a-f]{2}(?::[0-9a-f]{2})+"
)
_PASSWORD_NAME: Final = re.compile(
    r"(?i:pass|pwd|pw|psk|secret|token|key)[A-Za-z0-9_-]{0,16}[^A-Za-z0-9]{1,40}(?:str[^A-Za-z0-9]{1,8}|body[^A-Za-z0-9]{1,8})?$"
)
_MARK: Final = re.compile(r"[!#%&*+<>?@^|~]|\$$")
_DOTTED: Final = re.compile(r"^[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)+$")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][\w$.]*|[a-z]+[0-9][\w$.]*|[0-9]{1,4}_[a-z_]+", re.ASCII)
_WORDS: Final = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{3,}")
_LETTER_PAIRS: Final = re.compile("(?=([a-z][a-z]))")
_COMMON: Final = (
    "abcdgilmnprstuy baeilosu cacehiklortu dadeilosu eacdefglmnpqrstvwx faefiloru geinrsu haeio iabcdefglmnoprstvz kei "
    "ladeilostuy mabeimopsu nacdefginopstuv obcdgklmnoprstuvw paeiloprstu qu racdegilmnorstuvy sacehilopstuy "
    "tacehiloprstuy "
    "uabceilmnprst vaei waeir xept yps ze"
)
"""Each letter with the letters that follow it most often: the 220 pairs that make 90 % of the words in code and
documents."""
_COMMON_PAIRS: Final = frozenset(row[0] + letter for row in _COMMON.split() for letter in row[1:])
_CLASSES: Final = re.compile(r"[a-z]+|[A-Z]+|[0-9]+|[^A-Za-z0-9]+")
_LOWER_RUN: Final = re.compile(r"[a-z]{6}")
_FILE: Final = re.compile(r"\.[A-Za-z]{2,4}(?::[0-9]+)*$")
_NO_HOST: Final = re.compile(r"\.(?:png|jpe?g|gif|svg|webp|css|js|ts|py|go|rs|md|json|ya?ml|html?|local|lan)$")


def luhn(value: str, before: str, after: str) -> bool:
    """Whether a number of a payment card has the right check digit (ISO/IEC 7812-1, annex B).

    A number inside a longer one, a decimal, a path or an identifier is not a card's.
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
    if len(header) > EXAMINED or _DOCUMENTED.search(value):
        return False
    if value.startswith("eyJ") and ".eyJ" in value and value.count(".") == 2:
        return _TEMPLATE.search(value[:EXAMINED]) is None and min(map(len, value.split("."))) >= 8
    if (
        value.startswith("eyJ")
        and min(map(len, value.split("."))) >= 20
        and len(value) >= 100
        and value.count(".") == 2
    ):
        return _TEMPLATE.search(value[:EXAMINED]) is None  # a header that does not decode was cut or changed
    try:
        decoded = json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return False
    return isinstance(decoded, dict) and "alg" in decoded


def jwt_in_base64(value: str, before: str, after: str) -> bool:
    """Whether a text in base64 is a JWT."""
    try:
        decoded = base64.urlsafe_b64decode(value[: EXAMINED - EXAMINED % 4].rstrip("=") + "==").decode()
    except (binascii.Error, ValueError):
        return False
    return "." in decoded and jwt(decoded, before, after)


def decoded(value: str) -> str | None:
    """Return the text that a value is the base64 of; None if that is not ASCII text."""
    plain = value.translate(_BASE64).rstrip("=")
    try:
        data = base64.b64decode(plain[: len(plain) - (len(plain) % 4 == 1)] + "=" * (-len(plain) % 4))
    except binascii.Error:
        return None
    return data.decode() if data.isascii() and not data.translate(None, _TEXT_BYTES) else None


def private_pem(value: str, before: str, after: str) -> bool:
    """Whether base64 begins with the head of a private key, and not with that of a certificate."""
    del before, after
    return b"PRIVATE KEY" in base64.b64decode(value[:80])


def email(value: str, before: str, after: str) -> bool:
    """Whether an address may be a person's: its host is not a file name, and it is not the user of a URL."""
    del after
    return _NO_HOST.search(value.lower()) is None and not value.lower().startswith("git@") and not before.endswith("//")


def phone(value: str, before: str, after: str) -> bool:
    """Whether an international number has the number of digits that E.164 requires."""
    del before, after
    return 8 <= sum(character.isdigit() for character in value) <= 15


def key(value: str, before: str, after: str) -> bool:
    """Whether a key of a known form is a real one, not a document's placeholder such as `ghp_xxxx…`."""
    del before, after
    body = value[:EXAMINED]
    return _TEMPLATE.search(body) is None and entropy(body) >= 2.5


def header(value: str, before: str, after: str) -> bool:
    """Whether a value of an authorization header is random, and not a call in code."""
    # RFC 8555, 8.1: what an ACME client publishes is called a key authorization.
    return after[:1] != "(" and _KEY_AUTHORIZATION.search(before) is None and is_random(value[:EXAMINED])


def random(value: str, before: str, after: str) -> bool:
    """Whether a value of no known form is as random as keys are, and not a placeholder."""
    del before, after
    return is_random(value[:EXAMINED])


def url_password(value: str, before: str, after: str) -> bool:
    """Whether the password of a URL is one, even a weak one: not a placeholder, and not the port of a host."""
    del after
    user = re.search(r"//([^/:]*):$", before)
    return (
        _PLACEHOLDER.search(value) is None
        and value.lower() not in {"pass", "pwd", "psw", "user", "token", "pw", "xyz", "abc", "123", "foo", "bar"}
        and _MY_TOKEN.fullmatch(value) is None
        and not (user is not None and user[1].lower() == value.lower())
        and not value.startswith("key_")
        and not (len(value) < 7 and value.isalpha() and value.islower() and is_wordlike(value, 0.8))
    )


def assignment(value: str, before: str, after: str) -> bool:
    """Whether the text after the name of a secret is one: random, and not code, a path or a placeholder."""
    whole, value = value, value.rstrip(".,;:=&?!")[:EXAMINED] or value
    if after[:1] in {"(", "[", "{"} or whole.endswith("...") or value.startswith(("urn:", "__")):
        return False
    if len(value) > _SHORT and is_unrelated(before):
        return False
    if "://" in value or value.startswith(("/", "./", "../", "--")) or "~/" in value or _FILE.search(value):
        return False
    if _UUID.fullmatch(value):
        if len(set(value)) < _UUID_CHARACTERS:
            return False
        # `token` often names a position in a list; in capitals it is a variable that programs are started with.
        return _UUID_NAME.search(before) is not None and not is_no_secret(before)
    if _NUMBERED.search(value) or _DOTTED.search(value) or is_wordlike(value, 0.8) or is_identifier(value):
        return False
    return is_random(value) and not is_term(value) and not is_unrelated(before)


def prefixed(value: str, before: str, after: str) -> bool:
    """Whether what follows a prefix that a service has given its keys is random in letters of both cases and digits."""
    body = re.split("[_-]", value)[-1]
    return (
        after[:1] not in {".", "(", "="}
        and not before.endswith(("/", ".", "-"))
        and len(body) >= 20
        and is_generated(body)
        and any(map(str.isdigit, body))
        and not body.isdigit()
        and is_random(body)
    )


def unlisted(value: str, before: str, after: str) -> bool:
    """Whether a short prefix precedes a long run of letters of both cases and digits that was drawn, as in keys.

    Identifiers of objects and names of files have such a form too: those with well-known prefixes are left out.
    """
    prefix, body = re.split("[_-]", value[:EXAMINED], maxsplit=1)
    plain = _WORDS_BEFORE.sub("", body).replace("_", "").replace("-", "")
    mixed = plain != plain.lower()
    parts = re.split("[_-]", body)
    least = (_UNLISTED_KEY if _KEY_WORD.search(prefix) else _UNLISTED) if mixed else _UNLISTED_LOWER
    return (
        len(plain) >= least
        and prefix.lower() not in _NO_KEY
        and _AFTER_NAME.match(after) is None
        and not before.endswith(("/", ".", "-", "_", "+", "#", "%", "@", "$", "~"))
        and sum(map(str.isdigit, plain)) >= 2
        and _SAME_CLASS.search(plain) is None
        and _changes(plain) >= (0.4 if mixed else 0.3)
        and entropy(plain) >= (3.5 if mixed else 3.0)
        and _TEMPLATE.search(value[:EXAMINED]) is None
        and not is_placeholder(body)
        and not any(is_wordlike(part) for part in (body, *parts) if len(part) >= _WORD)
        and not any(part.isdigit() and len(part) >= _NUMBER for part in parts)
        and not (value[len(prefix)] == "-" and _HASH.fullmatch(parts[-1]))
    )


def drawn(value: str, before: str, after: str) -> bool:
    """Whether what follows a short prefix was drawn: letters of both cases and digits, and no words."""
    body = _FIRST_PART.sub("", value, count=1)[:EXAMINED]
    return (
        after[:1] not in {"(", "="}
        and not before.endswith(("/", "-", "+"))
        and _TEMPLATE.search(body) is None
        and any(map(str.isdigit, body))
        and any(map(str.isupper, body))
        and any(map(str.islower, body))
        and is_generated(body)
    )


def tail(value: str, before: str, after: str) -> bool:
    """Whether what follows the last dot of a value was drawn, and is no name of code."""
    body = value.rsplit(".", 1)[-1]
    return (
        after[:1] not in {".", "(", "=", "["}
        and sum(map(str.isdigit, body)) >= 2
        and is_generated(body)
        and is_random(body)
        and not before.endswith(("/", ".", "-", "+"))
    )


def listed(value: str, before: str, after: str) -> bool:
    """Whether the value of a member after the name of a secret is one, as `assignment` decides."""
    name = _LISTED_NAME.search(before)
    return assignment(value, f"{name[1]}=" if name else before, after)


def named(value: str, before: str, after: str) -> bool:
    """Whether the text after the name of a secret is one: generated, or a password as people make them."""
    whole, value = value[:EXAMINED], value.rstrip(".,;:=&?!)")[:EXAMINED] or value
    if after[:1] in {"(", "[", "{"} or whole.endswith("..."):
        return False
    if len(value) > _SHORT and is_unrelated(before):
        return False
    # What few values are comes first: of text that is no secret, most others need not be asked.
    if _UUID.fullmatch(value):
        found = len(set(value)) >= _UUID_CHARACTERS and (
            _UUID_NAME.search(before) is not None or _UUID_TOKEN.search(before) is not None
        )
    else:
        found = is_generated(value) or (is_typed(whole) and _PASSWORD_NAME.search(before) is not None)
    return (
        found
        and not is_code(value)
        and not (len(value) < 16 and _PLAIN_KEY.search(before))
        and not (is_member(value) and not (whole[-1:] in {"!", "?"} and is_typed(whole)))
        and not is_unrelated(before)
    )


def line(value: str, before: str, after: str) -> bool:
    """Whether the rest of a line after the name of a secret is one: of all characters, and not code."""
    return named(value, before, after) or (is_mixed(value) and not is_code(value) and not is_unrelated(before))


def column(value: str, before: str, after: str) -> bool:
    """Whether the value in the column next to the name of a secret is one."""
    return _FILE.search(value) is None and named(value, before, after)


def argument(value: str, before: str, after: str) -> bool:
    """Whether a secret argument of a command is one, even a weak one: not a placeholder, and not code."""
    del after
    value = value.rstrip("\"'`;,")[:EXAMINED]
    if len(value) < 6 or not (is_generated(value) or is_typed(value)):
        return False
    if is_code(value) or is_name(value) or is_term(value) or is_unrelated(before):
        return False
    if value.startswith(("((", "(&", "(*")) or (value[0] in "*&" and is_identifier(value[1:])):
        return False
    return not (_DOTTED.search(value) and _TYPE.search(value)) and not (
        value.startswith("(") and ")" not in value and not is_typed(value)  # a remark after a name in prose
    )


def sentence(value: str, before: str, after: str) -> bool:
    """Whether the text that a sentence calls a secret is one."""
    return named(value.rstrip("\"'`,"), before, after) or argument(value, before, after)


def is_code(value: str) -> bool:
    """Whether a value is code, a path or a template, and does not hold an equals sign by chance."""
    if _CODE.search(value):
        return True
    assigns = _ASSIGNS.match(value)
    return assigns is not None and not (len(assigns[1]) >= 10 and is_generated(assigns[1]))


def is_member(value: str) -> bool:
    """Whether a value is a name of code, or such names with dots between them."""
    dotted = _DOTTED.search(value) is not None
    of_type = _TYPE.search(value) is not None
    return (
        (dotted and (is_wordlike(value, 0.5) or of_type))
        or (of_type and value.isalpha())
        or is_identifier(value)
        or is_name(value)
        or is_term(value)
    )


def is_name(value: str) -> bool:
    """Whether a value is a name of several words as code has them, perhaps with a sign before it and after it."""
    plain = _SIGIL.sub("", value[:EXAMINED]).rstrip(".,;:)}]")
    return _SNAKE.fullmatch(plain) is not None or _CAMEL.fullmatch(plain) is not None


def is_term(value: str) -> bool:
    """Whether a value consists of words and of names of algorithms and standards, such as `rsa-sha512`."""
    value = value[:EXAMINED]
    if _TERM_JOINTS.fullmatch(value) is None:
        return False
    rest, count = _TERMS.subn("", value)
    return (
        count > 0
        and not any(map(str.isdigit, rest))
        and all(len(word) <= 3 or is_wordlike(word, 0.6) for word in _LETTER_RUNS.findall(rest))
    )


def is_unrelated(before: str) -> bool:
    """Whether the text before a value names no secret although a word in it does, or is code that follows a pointer."""
    return (
        before.endswith(("->", "badge.svg?token=")) or is_no_secret(before) or _NO_ARGUMENT.search(before) is not None
    )


def is_no_secret(before: str) -> bool:
    """Whether the name of a value has a word for secrets and names none, such as `max_tokens`.

    `before`: the text before the value. The name is searched for where it must be: one expression for both would try
    each character of the text.
    """
    end = _NAME_END.search(before, max(0, len(before) - _NAME_END_LENGTH))
    return end is not None and (
        _NO_SECRET.search(before, max(0, end.start() - _NO_SECRET_LENGTH), end.start()) is not None
    )


def is_placeholder(value: str) -> bool:
    """Whether a value is a placeholder of a secret, or is the name of a version with its date."""
    prefix = _PREFIX.match(value)
    value = value if prefix is None else value[prefix.end() :]
    dated = _DATED.search(value)
    return (
        _PLACEHOLDER_IN_ALL.search(value) is not None
        or (dated is not None and len(value) < 26)
        or _DOCUMENTED.search(value) is not None
    )


def is_generated(value: str) -> bool:
    """Whether consecutive characters look as if a generator of keys and passwords had drawn them."""
    value = value[:EXAMINED]
    if len(value) < 8 or not any(map(str.isalpha, value)):
        return False
    has_digits = any(map(str.isdigit, value))
    letters_only = len(value) >= 20 and value.isalpha() and value.islower()
    if not has_digits and not letters_only and (len(value) < 12 or _changes(value) < 0.3):
        return False
    if len(set(value)) < 5 or is_wordlike(value) or is_placeholder(value) or _NUMBERED.search(value):
        return False
    if not has_digits:
        return not is_wordlike(value, 0.5 if letters_only else 0.55) and entropy(value) >= 3.0
    return entropy(value) >= 2.6


def is_typed(value: str) -> bool:
    """Whether a value is a password as people make them: a word with a digit and a mark."""
    return (
        8 <= len(value) <= 64
        and _MARK.search(value) is not None
        and any(character.isdigit() for character in value)
        and any(character.isalpha() for character in value)
        and _PLACEHOLDER_IN_ALL.search(value) is None
    )


def is_mixed(value: str) -> bool:
    """Whether a value mixes letters, digits and punctuation as no words do."""
    value = value[:EXAMINED]
    return is_typed(value) and not is_wordlike(value) and entropy(value) >= 2.6


def is_wordlike(value: str, share: float = 0.65) -> bool:
    """Whether most neighbouring letters are common pairs of words: a third are in random text, nearly all in words."""
    if _changes(value[:EXAMINED]) >= 0.6 or sum(map(str.isdigit, value[:EXAMINED])) >= 0.3 * len(value):
        return False
    pairs = _LETTER_PAIRS.findall(value.lower()[:EXAMINED])
    # In hexadecimal digits letters are rarely adjacent.
    return len(pairs) >= max(1, (len(value) - 1) // 4) and sum(pair in _COMMON_PAIRS for pair in pairs) >= share * len(
        pairs
    )


def is_identifier(value: str) -> bool:
    """Whether a value is an identifier of code, perhaps with a number in it: words make up most of it."""
    if _IDENTIFIER.fullmatch(value[:EXAMINED]) is None:
        return False
    words = _WORDS.findall(value[:EXAMINED])
    lower_case = [word for word in words if not word.isupper()] or words
    pairs = [pair for word in lower_case for pair in _LETTER_PAIRS.findall(word.lower())]
    return sum(map(len, words)) >= 0.55 * len(value[:EXAMINED]) and (
        sum(pair in _COMMON_PAIRS for pair in pairs) >= 0.75 * len(pairs)
    )


def is_random(value: str) -> bool:
    """Whether consecutive characters look random, and not like words, names and numbers."""
    if len(value) < 8 or _PLACEHOLDER.search(value) or (_LOWER_RUN.search(value) and len(value) < 24):
        return False
    if is_placeholder(value):
        return False
    digits = sum(character.isdigit() for character in value)
    letters = sum(character.isalpha() for character in value)
    if not digits or not letters:
        # Without digits only a long mixture of both cases is not a word; 20 random letters have a digit 97 times in
        # 100.
        return bool(letters) and len(value) >= 20 and _changes(value) >= 0.35 and entropy(value) >= 3.5
    return _changes(value) >= 0.2 and entropy(value) >= 2.6


def _changes(value: str) -> float:
    """Return how often a character is of another class than the one before: lower, upper, digit, other."""
    return (len(_CLASSES.findall(value)) - 1) / max(len(value) - 1, 1)


def entropy(value: str) -> float:
    """Return the Shannon entropy of the value's characters, in bits a character."""
    if not value:
        return 0.0
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values())


CHECKS: Final[Mapping[str, Check]] = {
    "key": key,
    "header": header,
    "random": random,
    "assignment": assignment,
    "listed": listed,
    "prefixed": prefixed,
    "unlisted": unlisted,
    "drawn": drawn,
    "tail": tail,
    "named": named,
    "line": line,
    "column": column,
    "argument": argument,
    "sentence": sentence,
    "url_password": url_password,
    "private_pem": private_pem,
    "jwt": jwt,
    "jwt_in_base64": jwt_in_base64,
    "luhn": luhn,
    "iban": iban,
    "email": email,
    "phone": phone,
}
"""Every check by its name."""
