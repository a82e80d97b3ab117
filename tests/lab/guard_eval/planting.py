"""Made-up values of every kind, planted in texts where agents meet them.

The forms are written down here once more, apart from the rules' patterns: a pattern that is too narrow misses values
that are drawn from the form.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

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
