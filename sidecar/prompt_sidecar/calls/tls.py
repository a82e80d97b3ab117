"""The certificate and key of all doors, and the authorities of client certificates; they can be reloaded.

They are checked before they are used: gRPC would accept a key that does not belong to its certificate without an error,
and then refuse every client.
"""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.files import read_file
from prompt_sidecar.process.starting import StartError


@dataclass(frozen=True, slots=True)
class Pem:
    """The contents of the files."""

    key: bytes
    chain: bytes
    authorities: bytes | None


class TlsFiles:
    """The TLS files that the settings name. Raises StartError if they cannot be used; the message names the setting."""

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """For doors that use Python's `ssl`; `reload` updates it."""
        self.pem = _read(options, self.context)

    def reload(self) -> str:
        """Read the files again, for new connections; return what changed, for the log.

        Raises:
            StartError: a file cannot be used; the old ones stay in use.
        """
        old, new = self.pem, _read(self._options, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
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
        _load(self._options, self.context)
        self.pem = new  # last: after a failure before, the old files stay in use
        return f"TLS: new {', '.join(changed)}, for new connections; the certificate's SHA-256 is {digest}"


def _read(options: ServerOptions, context: ssl.SSLContext) -> Pem:
    """Read the files, and load them into a context, which checks that they belong together."""
    files = _contents(options)
    _load(options, context)
    if _contents(options) != files:
        raise StartError("the TLS files change while they are read; try again")
    return files


def _load(options: ServerOptions, context: ssl.SSLContext) -> None:
    try:
        context.load_cert_chain(options.tls_certificate, options.tls_key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise StartError(
            f"server.tls_certificate {options.tls_certificate} and server.tls_key {options.tls_key}: {why}; they "
            "must be a certificate chain and its key in PEM"
        ) from None
    if options.client_ca:
        try:
            context.load_verify_locations(options.client_ca)
        except (ssl.SSLError, OSError) as error:
            raise StartError(
                f"server.client_ca {options.client_ca}: {getattr(error, 'reason', None) or 'no certificate in it'}; "
                "it must hold the authorities in PEM"
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED


def _no_password() -> str:
    """Refuse a key with a password; without this, OpenSSL asks on the terminal."""
    raise ValueError("the key has a password")


def _contents(options: ServerOptions) -> Pem:
    return Pem(
        _file("tls_key", options.tls_key),
        _file("tls_certificate", options.tls_certificate),
        _file("client_ca", options.client_ca) if options.client_ca else None,
    )


def _file(name: str, path: str) -> bytes:
    try:
        return read_file(path, pipes=False)
    except OSError as error:
        raise StartError(f"server.{name} {path} cannot be read: {error.strerror}") from None


def _fingerprint(chain: bytes) -> str:
    """Return the digest of the first certificate, as `openssl x509 -fingerprint -sha256` prints it."""
    first = chain.decode("ascii", "replace").partition("-----END CERTIFICATE-----")
    return hashlib.sha256(
        ssl.PEM_cert_to_DER_cert(first[0][first[0].index("-----BEGIN CERT") :] + first[1])
    ).hexdigest()
