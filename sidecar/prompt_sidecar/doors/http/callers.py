"""Determines the caller of a request from its credentials.

In this order: the name of the sidecar's own token, if tokens are configured; the name in the client's certificate, if
certificates are required; the name that the settings give to the provider's credential; otherwise `local`, or a keyed
digest of the credential if `http.caller_by` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prompt_sidecar.calls.caller_names import CallerNames
from prompt_sidecar.calls.credentials import credential_caller
from prompt_sidecar.calls.headers import TOKEN
from prompt_sidecar.calls.subjects import proven_by_ssl
from prompt_sidecar.calls.tokens import Tokens
from prompt_sidecar.errors import Unauthenticated


@dataclass(frozen=True, slots=True)
class Callers:
    """Determines callers. `names` maps credentials to names; `key` makes digests; `by_credential`: `http.caller_by`."""

    tokens: Tokens
    names: CallerNames
    key: bytes
    by_credential: bool

    def of(self, headers: Mapping[str, str], certificate: Mapping[str, Any] | None) -> str:
        """Return the caller.

        Args:
            headers: of the request; names in lower case, or a case-insensitive mapping.
            certificate: the client's, as `ssl.SSLSocket.getpeercert` returns it, or None.

        Raises:
            Unauthenticated: a token is required but missing or unknown; or a certificate has no name.
        """
        if self.tokens:
            caller = self.tokens.caller(headers.get(TOKEN, "").strip())
            if caller is None:
                raise Unauthenticated(f"send the header {TOKEN} with a token of this sidecar")
            return self.names.of(caller)
        if proven := proven_by_ssl(certificate):
            return self.names.of("mtls:" + proven)
        if name := self.names.of_credential(headers):
            return name
        if self.by_credential:
            return credential_caller(headers, self.key) or self.names.of("local")
        return self.names.of("local")
