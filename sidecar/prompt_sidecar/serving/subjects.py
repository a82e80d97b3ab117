"""The subject of a client's certificate, spelled as gRPC spells it, so that all doors give one certificate one name.

gRPC gives it in the form of RFC 2253, from its last part to its first; Python's `ssl` gives the parts, from first to
last, with OpenSSL's long names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_SHORT: Final[Mapping[str, str]] = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "generationQualifier": "generationQualifier",
    "givenName": "GN",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "street",
    "surname": "SN",
    "userId": "UID",
}
"""OpenSSL's short names of attributes that have a long one too (crypto/objects/objects.txt)."""
_SPECIAL: Final = frozenset(',+"\\<>;')

Subject = Sequence[Sequence[tuple[str, str]]]
"""As `ssl.SSLSocket.getpeercert` returns it: parts, each of one or several names with their values."""


def spelled(subject: Subject) -> str:
    """Return a subject in the form of RFC 2253, as OpenSSL writes it; empty: it has no parts."""
    parts = (
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in reversed(part)) for part in subject
    )
    return ",".join(reversed(list(parts)))


def _escaped(value: str) -> str:
    last = len(value) - 1
    return "".join(
        f"\\{character}"
        if character in _SPECIAL or (index == 0 and character in " #") or (index == last and character == " ")
        else character
        if " " <= character <= "~"
        else "".join(f"\\{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
        for index, character in enumerate(value)
    )
