"""Secrets as files, code and sentences show them, and what stands behind the same names and is none."""

from __future__ import annotations

import random

import pytest

from prompt_sidecar.guard.forms import fake
from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.guard.rules import default_rules
from tests.guard.planting import named

_RULES = default_rules(GuardOptions(ENFORCE))
_VALUE = named(random.Random(21))
_HEX = "a452ad93eec1ff10" + "17f98eec2337f24f"
_LETTERS = "hbdkcomnnwcobz" + "mktohruevlyrij"
_BLOCK = "private key".upper()
_LINES = [fake(64)[at:] + fake(64)[:at] for at in range(5)]


def _masked(text: str) -> str:
    finds = _RULES.scan([text])[0]
    for find in reversed(finds):
        text = text[: find.start] + "#" + text[find.end :]
    return text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"ALGOLIA_ADMIN_KEY={_HEX}", "ALGOLIA_ADMIN_KEY=#"),
        (f"BACKEND_TOKEN={_HEX}", "BACKEND_TOKEN=#"),
        (f"secret = '{_LETTERS}'", "secret = '#'"),
        (f'name,value\nMYSQL_PWD,"{_VALUE}",2026', 'name,value\nMYSQL_PWD,"#",2026'),
        (f"Set `REDIS_PASS` to `{_VALUE}` and restart", "Set `REDIS_PASS` to `#` and restart"),
        (f"the sonar token is {_HEX} - do not share it", "the sonar token is # - do not share it"),
        (f'get(url, auth=("bob", "{_VALUE}"))', 'get(url, auth=("bob", "#"))'),
        (f"htpasswd -bc .htpasswd admin {_VALUE}", "htpasswd -bc .htpasswd admin #"),
        ("AKID" + fake(32), "#"),
        (f"Private-Lines: 1\n{fake(48)}\nPrivate-MAC: 00", "Private-Lines: 1\n#Private-MAC: 00"),
    ],
)
def test_a_value_by_its_name(text: str, masked: str) -> None:
    """What a name, a command or a sentence calls a secret is masked, and nothing else."""
    assert masked == _masked(text)


@pytest.mark.parametrize("joint", ['" "', '" + "', '" +\n  "', '"\n    "', "'\\\n'"])
@pytest.mark.parametrize("cut", [7, 20])
def test_a_form_that_strings_divide(joint: str, cut: int) -> None:
    """A key by its form alone, of which neither string is one: no name tells it."""
    key = "ghp_" + fake(36)
    quote = joint[0]
    text = f"x = {quote}{key[:cut]}{joint}{key[cut:]}{quote}"
    assert f"x = {quote}#{quote}" == _masked(text)


@pytest.mark.parametrize("number", ["{:6}\t", "{}: ", "{}:", "{}-", "{}→", "{} | "])
def test_a_private_key_with_numbered_lines(number: str) -> None:
    """Tools that read files put the number of each line before it."""
    lines = [f"-----BEGIN {_BLOCK}-----", *_LINES, f"-----END {_BLOCK}-----", "ok"]
    shown = _masked("\n".join(number.format(count) + line for count, line in enumerate(lines, 1)))
    assert not any(line[:20] in shown for line in _LINES)
    assert shown.endswith("ok")


@pytest.mark.parametrize(
    "text",
    [
        "private_key: PKCS7PrivateKeyTypes,",
        "password_prompt = 'PKCS11_DEFAULT_PROMPT'",
        'dependencies = [("auth", "0001_initial")]',
        "PuTTY-User-Key-File-3: ssh-ed25519",
        "maxTokens: a1b2c3d4e5f6",
        "end_token = 'e5f6a7b8c9d0'",
        f'hostKey = ("AAAAB3NzaC1yc2E" + "{fake(60)}")',
        "token: kubernetesserviceaccount",
    ],
)
def test_what_is_no_secret(text: str) -> None:
    """Names that code gives, public keys, and names that tell no secret."""
    assert text == _masked(text)
