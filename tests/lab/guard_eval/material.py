"""Texts with a secret and texts without one: planted values, look-alikes, and what others wrote to test their scanners.

Made-up values of every kind are planted in texts where agents meet them. Their forms are written down here once more,
apart from the rules' patterns: a pattern that is too narrow misses values that are drawn from the form. Texts that hold
no secret and look as if they did are lock files, ids, hashes, encoded and minified data.

Test sets of others are read from a checkout, never copied. detect-secrets has them as parameters of its tests
(`tests/plugins`, in Python), gitleaks beside each rule (`cmd/generate/config/rules`, in Go: the lists `tps` and `fps`);
texts that these programs put together while they run are left out, as are kinds of values that no rule here is for.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import random
import re
import string
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_NOT_CLAIMED: Final = frozenset(
    {
        *("ibm_cloud_iam", "ibm_cos_hmac", "softlayer", "cloudant", "ip_public", "high_entropy_strings", "base"),
        *("db2", "box", "gh", "gh_enterprise"),
    }
)
"""Tests of detect-secrets for kinds that no rule here is for: keys without a form of their own, and addresses."""
_GO_LIST: Final = re.compile(
    r"\b(tps|fps)\s*(?::=|=)\s*(?:append\((?:tps|fps),|\[\]string\{)[ \t]*(?://[^\n]*)?\n(.*?)\n\s*(?:\}|\))\n",
    re.DOTALL,
)
_GO_TEXT: Final = re.compile(r'^\s*(?:"((?:[^"\\]|\\.)*)"|`([^`]*)`),\s*(?://.*)?$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fixture:
    """One text of a test set."""

    source: str
    kind: str
    """The file that it stands in."""
    text: str
    secret: bool
    """Whether its authors want something found."""

    @property
    def held_out(self) -> bool:
        """Whether it is in the half that rules are not tuned on."""
        return bool(hashlib.sha256(self.text.encode(errors="replace")).digest()[0] & 1)


def detect_secrets(checkout: Path) -> Sequence[Fixture]:
    """The parameters of detect-secrets' tests of its plugins."""
    found: dict[str, Fixture] = {}
    for path in sorted((checkout / "tests" / "plugins").glob("*_test.py")):
        kind = path.name.removesuffix("_test.py")
        if kind in _NOT_CLAIMED:
            continue
        for text, secret in _pairs(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault(text, Fixture("detect-secrets", kind, text, secret))
    return list(found.values())


def _pairs(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Each tuple of a text and a truth value in parameters of tests."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple) and len(node.elts) >= 2:
            try:
                text, secret = ast.literal_eval(node.elts[0]), ast.literal_eval(node.elts[1])
            except ValueError:
                continue
            if isinstance(text, str) and isinstance(secret, bool):
                yield text, secret


def gitleaks(checkout: Path) -> Sequence[Fixture]:
    """The texts beside gitleaks' rules that stand there whole."""
    found: dict[str, Fixture] = {}
    for path in sorted((checkout / "cmd" / "generate" / "config" / "rules").glob("*.go")):
        if path.name.endswith("_test.go"):
            continue
        for name, body in _GO_LIST.findall(path.read_text(encoding="utf-8")):
            for quoted, raw in _GO_TEXT.findall(body):
                try:
                    text = raw or ast.literal_eval(f'"{quoted}"')
                except (SyntaxError, ValueError):
                    continue
                found.setdefault(text, Fixture("gitleaks", path.stem, text, name == "tps"))
    return list(found.values())


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


_WORD: Final = string.ascii_letters + string.digits
_URL: Final = _WORD + "_-"
_HEX: Final = "0123456789abcdef"
_UPPER: Final = string.ascii_uppercase + string.digits
_BASE32: Final = string.ascii_uppercase + "234567"
_BASE64: Final = _WORD + "+/"

Draw = Callable[[random.Random], str]


def _of(prefix: str, alphabet: str, length: int, suffix: str = "") -> Draw:
    return lambda chance: prefix + "".join(chance.choices(alphabet, k=length)) + suffix


def _joined(*draws: Draw, by: str = "") -> Draw:
    return lambda chance: by.join(draw(chance) for draw in draws)


def _jwt(chance: random.Random) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    header = part({"alg": chance.choice(["HS256", "RS256", "ES256"]), "typ": "JWT"})
    claims = part({"sub": str(chance.getrandbits(40)), "exp": chance.getrandbits(31)})
    return f"{header}.{claims}.{_of('', _URL, 43)(chance)}"


def _private_key(chance: random.Random) -> str:
    kind = chance.choice(["RSA ", "EC ", "", "OPENSSH ", "ENCRYPTED "]) + "private key".upper()
    lines = "\n".join(_of("", _BASE64, 64)(chance) for _ in range(chance.randint(3, 26)))
    return f"-----BEGIN {kind}-----\n{lines}\n{_of('', _BASE64, 30, '==')(chance)}\n-----END {kind}-----"


def _card(chance: random.Random) -> str:
    digits = chance.choice(["4", "51", "55", "2221", "6011"])
    digits += "".join(chance.choices(string.digits, k=15 - len(digits)))
    total = sum(sum(divmod(int(d) * (2 - place % 2), 10)) for place, d in enumerate(digits))
    digits += str(-total % 10)
    by = chance.choice(["", " ", "-"])
    return by.join(digits[at : at + 4] for at in range(0, 16, 4))


def _iban(chance: random.Random) -> str:
    country, length, letters = chance.choice(
        [("DE", 22, 0), ("GB", 22, 4), ("FR", 27, 0), ("NL", 18, 4), ("ES", 24, 0)]
    )
    bank = "".join(chance.choices(string.ascii_uppercase, k=letters))
    body = bank + "".join(chance.choices(string.digits, k=length - 4 - letters))
    check = 98 - int("".join(str(int(c, 36)) for c in body + country + "00")) % 97
    plain = f"{country}{check:02}{body}"
    return plain if chance.random() < 0.5 else " ".join(plain[at : at + 4] for at in range(0, length, 4))


def _password(chance: random.Random) -> str:
    """Sixteen to thirty-two characters, as password managers make them."""
    alphabet = chance.choice([_WORD, _HEX, _URL, _WORD + "!#$%&*+@^~"])
    value = "".join(chance.choices(alphabet, k=chance.randint(16, 32)))
    return value if any(c.isdigit() for c in value) and any(c.isalpha() for c in value) else _password(chance)


KINDS: Final[dict[str, Draw]] = {
    "aws_access_key": _of("AKIA", _BASE32, 16),
    "gcp_api_key": _of("AIza", _URL, 35),
    "gcp_oauth_secret": _of("GOCSPX-", _URL, 28),
    "azure_client_secret": _joined(_of("", _WORD, 3), _of("8Q~", _WORD + "_.~-", 34)),
    "digitalocean_token": _of("dop_v1_", _HEX, 64),
    "databricks_token": _of("dapi", _HEX, 32),
    "heroku_key": _of("HRKU-AA", _URL, 58),
    "github_token": _of("ghp_", _WORD, 36),
    "github_fine_token": _joined(_of("github_pat_", _WORD, 22), _of("_", _WORD, 59)),
    "gitlab_token": _of("glpat-", _URL, 20),
    "bitbucket_token": _of("ATBB", _WORD, 32),
    "stripe_key": _of("sk_" + "live_", _WORD, 99),
    "square_token": _of("sq0atp-", _URL, 22),
    "shopify_token": _of("shpat_", _HEX, 32),
    "slack_token": _joined(_of("xoxb-", string.digits, 12), _of("-", string.digits, 12), _of("-", _WORD, 24)),
    "discord_token": _joined(_of("M", _WORD, 25), _of(".G", _WORD, 5), _of(".", _URL, 38)),
    "telegram_token": _joined(_of("", "123456789", 10), _of(":AA", _URL, 33)),
    "twilio_key": _of("SK", _HEX, 32),
    "sendgrid_key": _joined(_of("SG.", _URL, 22), _of(".", _URL, 43)),
    "openai_key": _joined(_of("sk-proj-", _URL, 74), _of("T3Blbk" + "FJ", _URL, 74)),
    "anthropic_key": _of("sk-ant-" + "api03-", _URL, 93, "AA"),
    "huggingface_token": _of("hf_", string.ascii_letters, 34),
    "groq_key": _of("gsk_", _WORD, 52),
    "npm_token": _of("npm_", _WORD, 36),
    "pypi_token": _of("pypi-AgEIcHlwaS5vcmc", _URL, 155),
    "rubygems_key": _of("rubygems_", _HEX, 48),
    "dockerhub_token": _of("dckr_pat_", _URL, 27),
    "jwt": _jwt,
    "private_key": _private_key,
    "card": _card,
    "iban": _iban,
}
"""How a value of each kind is drawn, by the rule that is to find it."""
NAMED: Final[dict[str, Draw]] = {
    "aws_secret_key": _of("", _BASE64, 40),
    "azure_storage_key": _of("", _BASE64, 86, "=="),
    "url_password": _password,
    "slack_webhook": _joined(_of("services/T", _UPPER, 10), _of("/B", _UPPER, 10), _of("/", _WORD, 24)),
    "named_secret": _password,
    "authorization_header": _of("", _URL, 40),
}
"""Kinds without a form of their own, which stand behind a name."""
_CONTEXTS: Final = (
    "export SERVICE_KEY={}",
    '  "key": "{}",',
    "key: {}",
    "Use {} for the staging account, please.",
    "2026-11-22T10:00:01Z INFO connected with {} in 12 ms",
    "client = Client('{}')",
    "curl -s https://api.example.org/v1/items -H 'X-Key: {}'",
    "| staging | {} | rotated |",
)
_NAMED_CONTEXTS: Final = {
    "aws_secret_key": ("AWS_SECRET_ACCESS_KEY={}", 'aws_secret_access_key = "{}"', '"SecretAccessKey": "{}",'),
    "azure_storage_key": ("AccountName=shop;AccountKey={};EndpointSuffix=core.windows.net", "STORAGE_ACCOUNT_KEY={}"),
    "slack_webhook": ("SLACK_URL=https://hooks.slack.com/{}", "posts to https://hooks.slack.com/{} each hour"),
    "url_password": ("DATABASE_URL=postgres://app:{}@db.internal:5432/orders", "redis://:{}@cache:6379/0"),
    "named_secret": (
        "DB_PASSWORD={}", 'api_key: "{}"', "  client_secret = '{}'", '"auth_token": "{}"', "SESSION_SECRET={}",
        "smtp_password: {}",
    ),
    "authorization_header": ("Authorization: Bearer {}", '"Authorization": "Bearer {}"'),
}  # fmt: skip


MEMBERS: Final = ("password", "DB_PASSWORD", "apiKey", "client_secret", "auth_token", "smtp-password")
"""Names of members that hold a secret."""


def drawn(kind: str, count: int, seed: int) -> Iterator[str]:
    """Values of a kind."""
    chance = random.Random(seed)
    for _ in range(count):
        yield {**KINDS, **NAMED}[kind](chance)


@dataclass(frozen=True, slots=True)
class Planted:
    """A text with a value of a kind at a known place."""

    kind: str
    text: str
    start: int
    end: int


def planted(texts: Sequence[str], each: int, seed: int) -> Iterator[Planted]:
    """Plant values of each kind, one in a text of its own, between two of its lines."""
    chance = random.Random(seed)
    for kind, draw in {**KINDS, **NAMED}.items():
        contexts = _NAMED_CONTEXTS.get(kind, _CONTEXTS)
        for number in range(each):
            host = chance.choice(texts)
            lines = host[: 1 << 14].split("\n")
            place = chance.randrange(len(lines) + 1)
            value = draw(chance)
            line = contexts[number % len(contexts)]
            if kind == "url_password":
                value = "".join(c if c in _URL else "7" for c in value)
            before = "\n".join([*lines[:place], ""]) + line[: line.index("{}")]
            after = "\n".join([line[line.index("{}") + 2 :], *lines[place:]])
            yield Planted(kind, before + value + after, len(before), len(before) + len(value))
