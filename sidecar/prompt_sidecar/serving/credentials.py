"""Callers by the provider's credential, where a door is to tell agents apart by it.

A credential becomes a keyed digest; it is never kept or logged. Of a JWT the subject is taken, as its text changes
every hour. Its signature is not checked, as the sidecar has no key for it: this keeps agents apart that do
not mean to meet, and is no authentication.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from typing import Final

from prompt_sidecar.serving.members import loads

_HEADERS: Final = ("authorization", "x-api-key", "x-goog-api-key", "api-key")
"""Headers that carry a credential for the provider, in the order in which they count."""
_DIGITS: Final = 32
"""Hexadecimal digits of a digest: 128 bits."""
_JWT_PARTS: Final = 3


def credential_caller(headers: Mapping[str, str], key: bytes) -> str:
    """Return whom a request's credential names; empty: it has none. Names of `headers` are found in lower case."""
    for name in _HEADERS:
        if value := headers.get(name, ""):
            stable = _stable(value).encode("utf-8", "surrogatepass")
            return "credential:" + hmac.digest(key, stable, "sha256").hex()[:_DIGITS]
    return ""


def _stable(credential: str) -> str:
    """Return what of a credential stays the same: a JWT's issuer and subject, else all of it."""
    parts = credential.rpartition(" ")[2].split(".")
    if len(parts) == _JWT_PARTS:
        try:
            claims = loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
            return f"{claims.get('iss', '')}\x1f{claims['sub']}"
        except (ValueError, KeyError, AttributeError, TypeError):
            pass
    return credential
