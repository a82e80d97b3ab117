"""Determines the caller of a request, and the run that it belongs to.

The caller is the name that Envoy authenticated as, or `local`; `envoy.caller_by` can make each provider's credential a
caller of its own. The run is named by the header `x-prompt-sidecar-run`, or else derived from the conversation
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
"""Prefix of the ids of derived runs."""
CONVERSATIONS_BOUND = "envoy.max_conversations"


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller and one of its runs."""

    caller: str
    run_id: str


@dataclass(frozen=True, slots=True)
class Identities:
    """Determines callers and runs. `key` makes digests; `by_credential`: each provider's credential is a caller."""

    key: bytes
    by_credential: bool
    names: CallerNames
    conversations: Conversations

    def of(self, format_name: str, headers: Mapping[str, str], body: bytes, peer: str) -> Identity:
        """Return the caller and the run of a request.

        Args:
            format_name: the body's format.
            headers: of the request, names in lower case.
            body: of the request.
            peer: the name that Envoy authenticated as; empty if it need not authenticate.

        Raises:
            InvalidRequest: the header that names the run is not valid, or the body is not a JSON object.
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
        """Return the caller of a request; arguments as `of`."""
        if name := self.names.of_credential(headers):
            return name
        credential = credential_caller(headers, self.key) if self.by_credential else ""
        return "/".join(part for part in (peer and self.names.of(peer), credential) if part) or self.names.of("local")
