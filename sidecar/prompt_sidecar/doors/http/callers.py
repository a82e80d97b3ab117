"""Whose a request is, by what it carries.

In this order: the name of the sidecar's own token where tokens are configured, the name in a client's certificate
where those are asked for, the name that settings give to the provider's credential, and else `local`, or a keyed digest
of the credential where `http.caller_by` says so.
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
    """Names callers, by `names` where they have one. `key` makes digests; `by_credential` as `http.caller_by`."""

    tokens: Tokens
    names: CallerNames
    key: bytes
    by_credential: bool

    def of(self, headers: Mapping[str, str], certificate: Mapping[str, Any] | None) -> str:
        """Return the caller.

        Args:
            headers: the request's; names in lower case, or of a mapping that ignores it.
            certificate: the client's, as `ssl.SSLSocket.getpeercert` returns it; None: there is none.

        Raises:
            Unauthenticated: a token is needed and none, or an unknown one, was sent; or a certificate has no name.
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
