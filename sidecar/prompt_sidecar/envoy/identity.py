"""Whose prompt a request holds, and which run it belongs to.

The caller is who Envoy proved to be, or `local`; where `envoy.caller_by` says so, each provider's credential is a
caller of its own, known by a keyed digest: of a JWT the subject, as its text changes every hour.

A run is what the header `x-prompt-sidecar-run` names. Else it is derived from what a conversation begins with and
keeps: the session that the agent names, or without one its system prompt; whether it has tools (a title is asked for
with the same words as the task, and without tools); and the user's first message. Two conversations that begin alike
are one run then: the core follows such branches, and the second one costs a rewritten prefix.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from prompt_sidecar.serving.checks import checked_run_id

RUN_HEADER: Final = "x-prompt-sidecar-run"
PREFIX: Final = "envoy-"
"""What ids of runs that are derived begin with."""
CREDENTIALS: Final = ("authorization", "x-api-key", "x-goog-api-key", "api-key")
"""Headers that carry the credential for the provider, in the order in which they count."""
SESSIONS: Final = (
    ("x-claude-code-session-id", "x-claude-code-agent-id"),
    ("session_id", ""),
    ("x-session-id", ""),
)
"""Headers by which agents name their session, and an agent within it: Claude Code's, Codex's, and others'."""
_DIGITS: Final = 32
_JWT_PARTS: Final = 3
_MESSAGES: Final = ("messages", "input", "contents")
"""Members that hold the history, by format."""
_SYSTEM: Final = ("system", "instructions", "systemInstruction", "system_instruction")
_TOOLS: Final = ("tools", "toolConfig")

_BODY: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])


class _Role(msgspec.Struct):
    role: str = ""


_ROLE: Final = msgspec.json.Decoder(_Role)


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller and one of its runs."""

    caller: str
    run_id: str


@dataclass(frozen=True, slots=True)
class Identities:
    """Names callers and runs. `key` makes digests; `by_credential`: whether a provider's credential is a caller."""

    key: bytes
    by_credential: bool

    def of(self, headers: Mapping[str, str], body: bytes, peer: str) -> Identity:
        """Return whose run a request belongs to.

        Args:
            headers: the request's, names in lower case.
            body: the request's.
            peer: who Envoy proved to be; empty: nobody asked.

        Raises:
            InvalidRequest: the header that names the run is not valid.
        """
        caller = self._caller(headers, peer)
        if RUN_HEADER in headers:
            return Identity(caller, checked_run_id(headers[RUN_HEADER]))
        session = next((headers[name] + headers.get(agent, "") for name, agent in SESSIONS if headers.get(name)), "")
        return Identity(caller, PREFIX + self._digest(caller.encode(), session.encode(), *_opening(body, session)))

    def _caller(self, headers: Mapping[str, str], peer: str) -> str:
        caller = peer or "local"
        credential = next((headers[name] for name in CREDENTIALS if headers.get(name)), "")
        if not (self.by_credential and credential):
            return caller
        return f"{caller}/credential:{self._digest(_stable(credential))}"

    def _digest(self, *parts: bytes) -> str:
        text = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hmac.digest(self.key, text, "sha256").hex()[:_DIGITS]


def _opening(body: bytes, session: str) -> list[bytes]:
    """Return what a conversation begins with; a body that is none is its own beginning, and the core refuses it."""
    try:
        members = _BODY.decode(body)
        history = next((members[name] for name in _MESSAGES if name in members), b"[]")
        entries = _LIST.decode(history)
        first: list[bytes] = []
        for entry in entries:
            role = _ROLE.decode(entry).role
            if role == "user":
                first.append(bytes(entry))
                break
            if not session and role in {"system", "developer"}:
                first.append(bytes(entry))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return [body]
    tools = next((bytes(members[name]) for name in _TOOLS if name in members), b"")
    first.append(b"tools" if tools not in {b"", b"null", b"[]"} else b"")
    if not session:
        first += [bytes(members[name]) for name in _SYSTEM if name in members]
    return first


def _stable(credential: str) -> bytes:
    """Return what of a credential stays the same: a JWT's issuer and subject, else all of it."""
    parts = credential.rpartition(" ")[2].split(".")
    if len(parts) == _JWT_PARTS:
        try:
            claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
            return f"{claims.get('iss', '')}\x1f{claims['sub']}".encode()
        except (ValueError, KeyError, AttributeError):
            pass
    return credential.encode("utf-8", "surrogatepass")
