"""Callers by the provider's credential, for doors that are configured to distinguish agents by it.

A credential becomes a keyed digest; it is never kept or logged. For a JWT the subject is used, as its text changes
every hour. Its signature is not verified, as the sidecar has no key for it: this separates agents that cooperate, and
is not authentication.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from prompt_sidecar.prompt.members import loads

_HEADERS: Final = ("authorization", "x-api-key", "x-goog-api-key", "api-key")
"""Headers that carry a credential for the provider, in order of precedence."""
_DIGITS: Final = 32
"""Hexadecimal digits of a digest: 128 bits."""
_JWT_PARTS: Final = 3


@dataclass(frozen=True, slots=True)
class Credential:
    """A request's credential for its provider."""

    text: str
    """The credential without the scheme before it, such as `Bearer`."""
    issuer: str = ""
    subject: str = ""
    """The subject of a JWT; empty for other credentials."""


def credential_of(headers: Mapping[str, str]) -> Credential | None:
    """Return a request's credential, or None. Names of `headers` are in lower case."""
    value = next((headers[name] for name in _HEADERS if headers.get(name)), "")
    text = value.rpartition(" ")[2]
    return Credential(text, *_claims(text)) if value else None


def credential_caller(headers: Mapping[str, str], key: bytes) -> str:
    """Return the caller derived from a request's credential; empty if it has none."""
    credential = credential_of(headers)
    if credential is None:
        return ""
    stable = f"{credential.issuer}\x1f{credential.subject}" if credential.subject else credential.text
    return "credential:" + hmac.digest(key, stable.encode("utf-8", "surrogatepass"), "sha256").hex()[:_DIGITS]


def _claims(token: str) -> tuple[str, str]:
    """Return a JWT's issuer and subject; empty if it is not a JWT, or has no subject."""
    parts = token.split(".")
    if len(parts) == _JWT_PARTS:
        try:
            claims = loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
            return str(claims.get("iss", "")), str(claims["sub"])
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            pass
    return "", ""
