"""The server's certificate and key, and the authorities of client certificates; they can be reloaded.

gRPC asks for them at each handshake, so new ones apply from the next connection on. They are checked before they are
used: gRPC would accept a key that does not belong to its certificate without an error, and then refuse every client.
"""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass

import grpc

from prompt_sidecar.doors.grpc.options import ServerOptions
from prompt_sidecar.files import read_file
from prompt_sidecar.process.starting import StartError, no_password


class IdentityError(StartError):
    """A TLS file cannot be used; the message names its setting."""


@dataclass(frozen=True, slots=True)
class _Files:
    """The contents of the files, PEM."""

    key: bytes
    chain: bytes
    authorities: bytes | None


class Identity:
    """The TLS files of some settings. Raises IdentityError if they cannot be used."""

    def __init__(self, settings: ServerOptions) -> None:
        self._settings = settings
        self._files = _read(settings)

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials that follow `reload`."""
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(), self._configuration, require_client_authentication=bool(self._settings.client_ca)
        )

    def reload(self) -> str:
        """Read the files again; return what changed, for the log.

        Raises:
            IdentityError: a file cannot be used; the old ones stay in use.
        """
        old, new = self._files, _read(self._settings)
        changed = [
            what
            for what, before, after in (
                ("certificate", old.chain, new.chain),
                ("key", old.key, new.key),
                ("client authorities", old.authorities, new.authorities),
            )
            if before != after
        ]
        if not changed:
            return "TLS: nothing changed"
        digest = _fingerprint(new.chain)
        self._files = new  # last: whatever fails before leaves the old ones in use
        return f"TLS: new {', '.join(changed)}, for new connections; the certificate's SHA-256 is {digest}"

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        files = self._files
        return grpc.ssl_server_certificate_configuration([(files.key, files.chain)], files.authorities)


def _read(settings: ServerOptions) -> _Files:
    """Read the files, and check that they belong together."""
    files = _contents(settings)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key, password=no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise IdentityError(
            f"server.tls_certificate {settings.tls_certificate} and server.tls_key {settings.tls_key}: {why}; they "
            "must be a certificate chain and its key in PEM"
        ) from None
    if settings.client_ca:
        try:
            context.load_verify_locations(settings.client_ca)
        except (ssl.SSLError, OSError) as error:
            raise IdentityError(
                f"server.client_ca {settings.client_ca}: {getattr(error, 'reason', None) or 'no certificate in it'}; "
                "it must hold the authorities in PEM"
            ) from None
    if _contents(settings) != files:
        raise IdentityError("the TLS files change while they are read; try again")
    return files


def _contents(settings: ServerOptions) -> _Files:
    return _Files(
        _file("tls_key", settings.tls_key),
        _file("tls_certificate", settings.tls_certificate),
        _file("client_ca", settings.client_ca) if settings.client_ca else None,
    )


def _file(name: str, path: str) -> bytes:
    try:
        return read_file(path, pipes=False)
    except OSError as error:
        raise IdentityError(f"server.{name} {path} cannot be read: {error.strerror}") from None


def _fingerprint(chain: bytes) -> str:
    """Return the digest of the first certificate, as `openssl x509 -fingerprint -sha256` has it."""
    first = chain.decode("ascii", "replace").partition("-----END CERTIFICATE-----")
    return hashlib.sha256(
        ssl.PEM_cert_to_DER_cert(first[0][first[0].index("-----BEGIN CERT") :] + first[1])
    ).hexdigest()
