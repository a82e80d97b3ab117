"""The names that the settings give to callers, at every door.

A door determines a caller's identity: `token:NAME` of the sidecar's own token, `mtls:SUBJECT` of a client's
certificate, `unix`, `local`; and of the provider's credential in an HTTP request `sha256:DIGEST` of an API key, or
`jwt:ISSUER SUBJECT`. A table `[callers."NAME"]` may list several of these as its `identities`: they are then one
caller, which keeps its runs when it uses another door or another token. Credentials are identified by digests, so that
the settings contain no key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prompt_sidecar.calls.credentials import credential_of
from prompt_sidecar.calls.turns import Owner

MOST_IDENTITIES: Final = 1_000
"""Identities of one caller: a team's keys."""
IDENTITY_CHARACTERS: Final = 1_024
"""Longest identity, in characters: longer than the subject of any certificate in use."""
_IDENTITY: Final = re.compile(r"token:.+|mtls:.+|unix|local|sha256:[0-9a-f]{64}|jwt:\S* \S.*")
ACCEPTED: Final = (
    "token:NAME, mtls:SUBJECT, unix, local, sha256:DIGEST with 64 hexadecimal digits, or jwt:ISSUER SUBJECT"
)


class CallerNames:
    """Finds the names of callers. `names` is identity → name; an identity without an entry is its own name."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self._names = dict(names or {})
        self._shared = {self.of("local"), self.of("unix")}
        """Names of the callers that may be several clients."""
        self._of_credentials = any(each.startswith(("sha256:", "jwt:")) for each in self._names)

    def of(self, identity: str) -> str:
        """Return the name of a caller from the identity that a door has determined."""
        return self._names.get(identity, identity)

    def owner(self, caller: str, connection: str) -> Owner:
        """Return the owner of a call; callers that a door could not distinguish are distinguished by connection."""
        return Owner(connection if caller in self._shared else caller, connection)

    def of_credential(self, headers: Mapping[str, str]) -> str:
        """Return the name of the caller with a provider's credential; empty if there is no name, or no credential."""
        if not self._of_credentials or not (credential := credential_of(headers)):
            return ""
        identity = f"jwt:{credential.issuer} {credential.subject}" if credential.subject else _digest(credential.text)
        return self._names.get(identity, "")


def names_of(identities: Mapping[str, Sequence[str]]) -> Mapping[str, str]:
    """Return name by identity, from identities by name."""
    return {identity: name for name, several in identities.items() for identity in several}


def faults(identities: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str]]:
    """Yield name and fault, for each identity that is malformed or used by two names."""
    taken: dict[str, str] = {}
    for name, several in identities.items():
        for identity in several:
            if not _IDENTITY.fullmatch(identity):
                # It may be the credential itself, written in place of its digest, so it is not shown.
                yield name, f"identities has a text of {len(identity)} characters; each must be {ACCEPTED}"
            elif taken.setdefault(identity, name) != name:
                yield name, f'identities has {identity!r}, which callers."{taken[identity]}" has too'


def _digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
