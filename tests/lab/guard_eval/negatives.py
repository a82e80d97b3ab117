"""Texts that hold no secret and look as if they did: lock files, ids, hashes, encoded and minified data."""

from __future__ import annotations

import base64
import random
import string
import uuid
from collections.abc import Iterator, Mapping
from typing import Final

SIZE: Final = 500_000
"""Characters of each sort."""


def negatives(seed: int) -> Mapping[str, str]:
    """Texts by sort. Nothing in them was a secret of anybody: they are drawn from a seed."""
    return {name: _until(lines) for name, lines in _sorts(random.Random(seed)).items()}


def _until(lines: Iterator[str]) -> str:
    found: list[str] = []
    size = 0
    while size < SIZE:
        found.append(next(lines))
        size += len(found[-1]) + 1
    return "\n".join(found)


def _sorts(chance: random.Random) -> Mapping[str, Iterator[str]]:
    return {
        "package-lock.json": _npm(chance),
        "hashed requirements": _requirements(chance),
        "go.sum, Cargo.lock": _sums(chance),
        "UUIDs and trace ids": _ids(chance),
        "git log": _git(chance),
        "base64 data": _base64(chance),
        "minified code": _minified(chance),
        "numbers and timestamps": _numbers(chance),
        "code about secrets": _code(chance),
    }


def _name(chance: random.Random) -> str:
    return "-".join(chance.choice(_NOUNS) for _ in range(chance.randint(1, 3)))


def _npm(chance: random.Random) -> Iterator[str]:
    while True:
        name, version = _name(chance), f"{chance.randrange(20)}.{chance.randrange(30)}.{chance.randrange(30)}"
        digest = base64.b64encode(chance.randbytes(64)).decode()
        yield f'    "node_modules/{name}": {{\n      "version": "{version}",'
        yield f'      "resolved": "https://registry.example.org/{name}/-/{name}-{version}.tgz",'
        yield f'      "integrity": "sha512-{digest}",\n      "dev": true\n    }},'


def _requirements(chance: random.Random) -> Iterator[str]:
    while True:
        yield f"{_name(chance)}=={chance.randrange(9)}.{chance.randrange(20)} \\"
        yield f"    --hash=sha256:{chance.randbytes(32).hex()}"


def _sums(chance: random.Random) -> Iterator[str]:
    while True:
        digest = base64.b64encode(chance.randbytes(32)).decode()
        yield f"github.com/{_name(chance)}/{_name(chance)} v{chance.randrange(9)}.{chance.randrange(20)}.0 h1:{digest}"
        yield f'name = "{_name(chance)}"\nchecksum = "{chance.randbytes(32).hex()}"'


def _ids(chance: random.Random) -> Iterator[str]:
    letters = string.ascii_letters + string.digits
    while True:
        first, second = (uuid.UUID(bytes=chance.randbytes(16), version=4) for _ in range(2))
        trace, span = chance.randbytes(16).hex(), chance.randbytes(8).hex()
        yield f'{{"request_id": "{first}", "traceparent": "00-{trace}-{span}-01"}}'
        yield f'session {second} user_{chance.randrange(10**8)} etag W/"{chance.randbytes(16).hex()}"'
        yield f"call_{''.join(chance.choices(letters, k=24))} toolu_01{chance.randbytes(11).hex()}"


def _git(chance: random.Random) -> Iterator[str]:
    while True:
        old, new = (chance.randbytes(4).hex()[:7] for _ in range(2))
        yield f"commit {chance.randbytes(20).hex()}\nindex {old}..{new} 100644"
        yield f"@@ -{chance.randrange(900)},7 +{chance.randrange(900)},9 @@ def {_name(chance).replace('-', '_')}("


def _base64(chance: random.Random) -> Iterator[str]:
    while True:
        yield "data:image/png;base64," + base64.b64encode(chance.randbytes(chance.randint(200, 4_000))).decode()


def _minified(chance: random.Random) -> Iterator[str]:
    def statement() -> str:
        one, two, three, four = (chance.choice(string.ascii_letters) + chance.choice("abcdefgnrst") for _ in range(4))
        noun, other = (chance.choice(_NOUNS) for _ in range(2))
        call = f'{four}["{other}"](0x{chance.randrange(1 << 16):x},{three}.token||{two}.key)'
        return f"{one}.{noun}=function({two},{three}){{return {two}?{chance.randrange(99)}:{call}}}"

    while True:
        yield ";".join(statement() for _ in range(40))


def _numbers(chance: random.Random) -> Iterator[str]:
    while True:
        yield f"{chance.randrange(10**9, 2 * 10**9)} {chance.random():.16f} 0x{chance.getrandbits(64):016x}"
        yield f"{chance.randrange(10**15, 10**16)} {chance.randrange(10**12, 10**13)} {chance.random() * 1e6:.9f}"
        address = ".".join(str(chance.randrange(256)) for _ in range(4))
        yield f"2026-11-{chance.randint(1, 30):02} {address}:{chance.randrange(65536)} id={chance.randrange(10**12)}"


def _code(chance: random.Random) -> Iterator[str]:
    while True:
        noun, other = (chance.choice(_NOUNS) for _ in range(2))
        words = {"noun": noun, "Noun": noun.title(), "NOUN": noun.upper(), "other": other, "Other": other.title()}
        yield chance.choice(_CODE).format(**words)


_NOUNS: Final = [
    *("account", "archive", "batch", "buffer", "cache", "channel", "client", "cluster", "config", "context", "counter"),
    *("cursor", "driver", "editor", "engine", "event", "filter", "format", "handler", "header", "helper", "index"),
    *("input", "layout", "ledger", "loader", "logger", "manager", "mapper", "marker", "message", "method", "module"),
    *("number", "object", "option", "output", "parser", "policy", "prefix", "printer", "profile", "prompt", "query"),
    *("reader", "record", "region", "router", "runner", "schema", "server", "session", "signal", "socket", "source"),
    *("status", "stream", "string", "summary", "switch", "system", "target", "template", "timer", "token", "tracker"),
]
_CODE: Final = (
    "password = os.environ['{NOUN}_PASSWORD']",
    "api_key = settings.{noun}_api_key or get_{other}_key()",
    "const token = await this.{noun}Service.get{Other}Token(user);",
    'if (!process.env.{NOUN}_SECRET) throw new Error("{NOUN}_SECRET is not set");',
    "export {NOUN}_TOKEN=$(cat /run/secrets/{noun}_token)",
    "  secretKeyRef:\n    name: {noun}-credentials\n    key: {other}-password",
    "def test_{noun}_token_is_refreshed(self, {other}_token: str) -> None:",
    'password: \'{{{{ lookup("env", "{NOUN}_PASSWORD") }}}}\'',
    '"description": "The access token: a {noun} that the {other} returns.",',
    "assert token == expected_{noun}_token, 'token: mismatch in {other}'",
    "client_secret=config.get('{noun}', 'client_secret')",
    "# secret: stored in {noun}/{other}, never in the repository",
    "SECRET_KEY = get_random_secret_key()  # {noun}",
    "input type=password name={noun}_password autocomplete=current-password",
    "    auth = HTTPBasicAuth(username, {noun}_password)",
    "https://user:${{{NOUN}_PASSWORD}}@{noun}.example.com/{other}.git",
    "max_tokens: int = 4096  # {noun} of the {other}",
    '<PasswordBox x:Name="{noun}PasswordBox" PasswordChanged="{Noun}_PasswordChanged"/>',
    "token_type_ids={noun}_token_type_ids.to({other}_device)",
    "ssh-{noun}: key=~/.ssh/id_ed25519_{other}",
)
"""Lines of programs in which the words for secrets stand and no secret does."""
