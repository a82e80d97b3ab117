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
        (f"- **Redis Token**: `{_HEX}`", "- **Redis Token**: `#`"),
        (f"new db password -> {_VALUE}", "new db password -> #"),
        (f"$conf{{admin_password}} = '{_VALUE}';", "$conf{admin_password} = '#';"),
        (f"| `db_password` | `{_VALUE}` | ops |", "| `db_password` | `#` | ops |"),
        (f"&lt;dbPassword&gt;{_HEX}&lt;/dbPassword&gt;", "&lt;dbPassword&gt;#&lt;/dbPassword&gt;"),
        (f"requirepass {_HEX}", "requirepass #"),
        (f"acme_production_{fake(32)}, please", "#, please"),
        (f"%70assword%3D{_HEX}", "%70assword%3D#"),
        (f"%64%62%5f%70%61%73%73%77%6f%72%64%3d{_HEX}", "%64%62%5f%70%61%73%73%77%6f%72%64%3d#"),
        (f"Private-Lines: 1\n{fake(48)}\nPrivate-MAC: 00", "Private-Lines: 1\n#Private-MAC: 00"),
    ],
)
def test_a_value_by_its_name(text: str, masked: str) -> None:
    """What a name, a command or a sentence calls a secret is masked, and nothing else."""
    assert masked == _masked(text)


@pytest.mark.parametrize("sign", [".", ",", ".)", "!", ";"])
@pytest.mark.parametrize("name", ["TOKEN=", "password: ", "Authorization: Bearer "])
def test_a_form_behind_a_name_keeps_its_kind(name: str, sign: str) -> None:
    """The sign after it ends the sentence and is no part of the value, although a password may have one."""
    text = f"Set {name}ghp_{fake(36)}{sign} Then go on."
    found = [(find.rule.kind, text[find.start : find.end]) for find in _RULES.scan([text])[0]]
    assert [("github_token", "ghp_" + fake(36))] == found


def test_a_longer_value_is_masked_whole() -> None:
    """A value by its name that only begins with a form, and goes on."""
    text = f"password: ghp_{fake(36)}.{_VALUE}"
    assert "password: #" == _masked(text)


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
        "if (authctxt->krb5_ctx == NULL) krb5_free_principal(authctxt->krb5_ctx, authctxt->krb5_user);",
        "  --mocha-test-pass-color: #007f6a;",
        'pkcs8_key["privateKey"] = pkcs1_key',
        "auth = rsa-sha512",
        'set_configurator(req_auth, "dns-rfc2136")',
        "Legacy RSA private key PKCS8-to-PKCS1 conversion",
        "HMAC_AUTH_TAG = {A128CBC_HS256, A192CBC_HS384}",
        'SID = "S-1-" IdentifierAuthority 1*SubAuthority',
        "auth_header = urllib3.util.make_headers(basic_auth=1)",
        "var defaultEscapeKeys = []byte{16, 17}",
        "oauthConfig = &oauth2.Config{",
        'CREDENTIAL_EMPTY_VALUE = "__acme_EMPTY_VALUE_7b1af746-3729-4c60-9b9b-e08eb29e58da"',
        "apt-key adv --recv-keys 573BFD6B3D8FBC641079A6ABABF5BD827BD9BF62",
        " * MLO group key is identified by %NL80211_ATTR_MLO_LINK_ID. Returns a cookie (%NL80211_ATTR_COOKIE)",
        "#define XkbAddKeyType\t\t\tSrvXkbAddKeyType",
        "typedef struct gnutls_x509_key_purposes_st *gnutls_x509_key_purposes_t;",
        "umac128_set_key (&ctx128, key);",
        "new URL('https://abc:xyz@localhost/')",
        '"access_token":"2YotnFZFEjr1zCsicMWpAA", "Location: https://a.example/cb?code=SplxlOBeZQQYbYS6WxSbIA"',
        'names = ["foreignKeyColumn","draftIdsChunks","id"]',
        "import from KeePass 1-Datenbank&quot; now",
        "{url:`http://localhost:9999`,storageKey:`acme.auth.token`,autoRefreshToken:!0,persistSession:!0}",
    ],
)
def test_what_is_no_secret(text: str) -> None:
    """Names that code gives, public keys, and names that tell no secret."""
    assert text == _masked(text)
