"""Whose a request is, by what it carries.

In this order: the name of the sidecar's own token where tokens are configured, the subject of a client's certificate
where those are asked for, and else `local`, or a keyed digest of the provider's credential where `http.caller_by` says
so. Of a JWT the subject is taken, as its text changes every hour. A provider's credential is never kept or logged.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Mapping
from typing import Any, Final

from prompt_sidecar.errors import Unauthenticated
from prompt_sidecar.serving.tokens import Tokens

TOKEN_HEADER: Final = "x-prompt-sidecar-token"  # noqa: S105 - a header's name
CREDENTIALS: Final = ("authorization", "x-api-key", "x-goog-api-key", "api-key")
"""Headers that carry the credential for the provider."""
_DIGITS: Final = 16
_JWT_PARTS: Final = 3


class Callers:
    """Names callers. `key` makes digests of credentials; `by_credential` as `http.caller_by`."""

    def __init__(self, tokens: Tokens, key: bytes, *, by_credential: bool) -> None:
        self._tokens = tokens
        self._key = key
        self._by_credential = by_credential

    def of(self, headers: Mapping[str, str], certificate: Mapping[str, Any] | None) -> str:
        """Return the caller.

        Args:
            headers: the request's; names in lower case, or of a mapping that ignores it.
            certificate: the client's, as `ssl.SSLSocket.getpeercert` returns it; None: there is none.

        Raises:
            Unauthenticated: a token is needed and none, or an unknown one, was sent.
        """
        if self._tokens:
            caller = self._tokens.caller(headers.get(TOKEN_HEADER, "").strip())
            if caller is None:
                raise Unauthenticated(f"send the header {TOKEN_HEADER} with a token of this sidecar")
            return caller
        if certificate:
            subject = [f"{name}={value}" for part in certificate.get("subject", ()) for name, value in part]
            if subject:
                return "mtls:" + ",".join(subject)
        if self._by_credential:
            for name in CREDENTIALS:
                if value := headers.get(name, ""):
                    return "credential:" + self._digest(_stable(value))
        return "local"

    def _digest(self, text: str) -> str:
        return hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256").hex()[:_DIGITS]


def _stable(credential: str) -> str:
    """Return what of a credential stays the same: a JWT's issuer and subject, else all of it."""
    token = credential.rpartition(" ")[2]
    parts = token.split(".")
    if len(parts) != _JWT_PARTS:
        return credential
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return f"{claims.get('iss', '')}\x1f{claims['sub']}"
    except (ValueError, KeyError, AttributeError):
        return credential
