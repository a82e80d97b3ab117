"""Whose prompt a request holds, and which run it belongs to.

The caller is who Envoy proved to be, or `local`; where `envoy.caller_by` says so, each provider's credential is a
caller of its own. A run is what the header `x-prompt-sidecar-run` names, else what the conversation shows
(`calls/conversations.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prompt_sidecar.answers.table import DIALECTS
from prompt_sidecar.calls import headers as names
from prompt_sidecar.calls.caller_names import CallerNames
from prompt_sidecar.calls.checks import checked_run_id
from prompt_sidecar.calls.conversations import Conversations, opening_of, session_of
from prompt_sidecar.calls.credentials import credential_caller
from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.members import Members, NotJson

PREFIX = "envoy-"
"""What ids of runs that are derived begin with."""
CONVERSATIONS_BOUND = "envoy.max_conversations"


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
    names: CallerNames
    conversations: Conversations

    def of(self, format_name: str, headers: Mapping[str, str], body: bytes, peer: str) -> Identity:
        """Return whose run a request belongs to.

        Args:
            format_name: of the body.
            headers: the request's, names in lower case.
            body: the request's.
            peer: who Envoy proved to be; empty: nobody asked.

        Raises:
            InvalidRequest: the header that names the run is not valid, or the body is no JSON object.
        """
        caller = self.caller(headers, peer)
        if names.RUN in headers:
            return Identity(caller, checked_run_id(headers[names.RUN]))
        try:
            members = Members(body)
        except NotJson:
            raise InvalidJson("the body is not a JSON object") from None
        opening = opening_of(DIALECTS[format_name], members, caller, session_of(headers, members))
        return Identity(caller, self.conversations.of(opening).run_id)

    def caller(self, headers: Mapping[str, str], peer: str) -> str:
        """Return whose a request is; arguments as `of`."""
        if name := self.names.of_credential(headers):
            return name
        credential = credential_caller(headers, self.key) if self.by_credential else ""
        return "/".join(part for part in (peer and self.names.of(peer), credential) if part) or self.names.of("local")
