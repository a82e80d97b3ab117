"""Authentication: determines the caller of a call, who owns its runs.

In this order: `unix` for a peer on the unix socket; the name of the bearer token, if tokens are configured; the name in
the client's certificate, if client certificates are; otherwise `local`. Python's gRPC does not expose the uid of a unix
peer; the socket's mode decides who may connect (0600: one uid and root), so its peers are one caller and need no token.
"""

from __future__ import annotations

from contextvars import ContextVar

import grpc

from prompt_sidecar.calls.caller_names import CallerNames
from prompt_sidecar.calls.subjects import proven_by_grpc
from prompt_sidecar.calls.tokens import Tokens, bearer_token
from prompt_sidecar.errors import Unauthenticated

CALLER: ContextVar[str] = ContextVar("caller")
"""The caller of the current call; set before its handler runs."""


def caller_of(context: grpc.ServicerContext, tokens: Tokens, names: CallerNames) -> str:
    """Return the caller of a call: its name in the settings, or else the name derived from its credentials.

    Raises:
        Unauthenticated: a token is required but missing or unknown; or a certificate has no name.
    """
    return names.of(_identity(context, tokens))


def _identity(context: grpc.ServicerContext, tokens: Tokens) -> str:
    if context.peer().startswith("unix"):
        return "unix"
    if tokens:
        return _by_token(context, tokens)
    proven = proven_by_grpc(context.auth_context())
    return f"mtls:{proven}" if proven else "local"


def _by_token(context: grpc.ServicerContext, tokens: Tokens) -> str:
    token = bearer_token(context.invocation_metadata())
    if not token:
        raise Unauthenticated("send the metadata `authorization: Bearer …` with a token of this sidecar")
    caller = tokens.caller(token)
    if caller is None:
        raise Unauthenticated("the bearer token is not known to this sidecar")
    return caller
