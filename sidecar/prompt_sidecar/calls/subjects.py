"""The caller that a client's certificate names, for all doors: its subject, or else its alternative names.

gRPC returns the subject in the form of RFC 2253, from its last part to its first; Python's `ssl` returns the parts,
from first to last, with OpenSSL's long names. Service meshes issue certificates without a subject and with a URI
(SPIFFE X.509-SVID, section 2): by the subject alone, many callers would be one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from prompt_sidecar.errors import Unauthenticated

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
"""A subject as `ssl.SSLSocket.getpeercert` returns it: parts, each of one or several names with their values."""


def proven_by_grpc(context: Mapping[str, Any]) -> str:
    """Return the name in the certificate that gRPC has verified, from `auth_context`; empty if there was none.

    Raises:
        Unauthenticated: the certificate has no name.
    """
    if "x509_pem_cert" not in context:
        return ""
    subject, uris, hosts = (
        [each.decode("utf-8", "backslashreplace") for each in context.get(name, ())]
        for name in ("x509_subject", "peer_uri", "peer_dns")
    )
    return _proven_name("".join(subject), uris, hosts)


def proven_by_ssl(certificate: Mapping[str, Any] | None) -> str:
    """Return the name in a certificate from `ssl.SSLSocket.getpeercert`; empty if there was none.

    Raises:
        Unauthenticated: the certificate has no name.
    """
    if not certificate:
        return ""
    names: Sequence[tuple[str, str]] = certificate.get("subjectAltName", ())
    uris, hosts = ([value for kind, value in names if kind == wanted] for wanted in ("URI", "DNS"))
    return _proven_name(spelled(certificate.get("subject", ())), uris, hosts)


def _proven_name(subject: str, uris: Iterable[str], hosts: Iterable[str]) -> str:
    names = [f"{kind}:{_escaped(value)}" for kind, values in (("URI", uris), ("DNS", hosts)) for value in values]
    if not subject and not names:
        raise Unauthenticated("the client's certificate has neither a subject nor a URI or DNS name: nobody is proven")
    return subject or ",".join(names)


def spelled(subject: Subject) -> str:
    """Return a subject in the form of RFC 2253, as OpenSSL writes it; empty if it has no parts."""
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
