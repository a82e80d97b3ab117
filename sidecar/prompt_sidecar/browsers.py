"""Recognises, by their headers, requests that a browser sends for a web page of another site.

Theory. Every page in a browser on this machine can reach a listener on loopback, although other machines cannot. There
are two ways, and both can be recognised:

    by a name that resolves to this listener  the `Host` header has that name (DNS rebinding). The browser then treats
                                              page and listener as one site, and lets the page read every answer
    by the listener's address                 `Origin` names the page's site; if a browser leaves that out (images,
                                              links), `Sec-Fetch-Site` says that the page is of another site

An IP address cannot be redirected by DNS, so all addresses are accepted as hosts. Programs other than browsers send
neither `Origin` nor `Sec-Fetch-Site`, and as `Host` the name they connect to. Pages that this machine serves itself are
not refused.

Sources: the Fetch standard ("Origin header"), W3C Fetch Metadata, RFC 9110, 7.2 (Host), RFC 6454, 7 (Origin).
"""

from __future__ import annotations

import ipaddress
import logging
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

_HOST: Final = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(:[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]{0,63}://(.{1,300})", re.IGNORECASE | re.ASCII)
_LOCALHOST: Final = "localhost"
_PRIVATE: Final = (".internal", ".local", ".home.arpa", ".svc")
"""Suffixes of names that are not in the public DNS: reserved by ICANN, RFC 6762 and RFC 8375; Kubernetes' short names
end in `.svc`, which is not a top-level domain."""
_SHOWN_CHARACTERS: Final = 200
"""Characters of a host or origin in a line of the log; the longest name has 253."""
_log = logging.getLogger("prompt_sidecar.refused")


class Sign(StrEnum):
    """What indicates that a request may come from a page of another site."""

    HOST = "host"
    ORIGIN = "origin"


@dataclass(frozen=True, slots=True)
class BrowserRefusal:
    """A refusal: an HTTP status, and a sentence that names the setting which would allow the request."""

    status: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class BrowserHeaders:
    """Request headers that a browser sets and a page cannot; empty if absent. Repeated headers are joined."""

    host: str = ""
    origin: str = ""
    site: str = ""
    """`Sec-Fetch-Site`."""
    mode: str = ""
    """`Sec-Fetch-Mode`."""


@dataclass(frozen=True, slots=True)
class Sites:
    """The sites whose pages may use a listener."""

    names: frozenset[str] = frozenset()
    """Hosts in lower case, in addition to localhost and addresses."""
    any_host: bool = False
    """Whether any host name is accepted, as its answers are public."""
    private_names: bool = False
    """Whether names outside the public DNS are accepted as hosts: those of containers and services."""
    links: bool = False
    """Whether users may follow links of other sites to it."""

    @classmethod
    def of(cls, hosts: Iterable[str], **how: bool) -> Sites:
        """Return the sites with names from the settings; `how` are the other fields."""
        return cls(frozenset(host.lower().strip("[]").rstrip(".") for host in hosts), **how)

    def stranger(self, sent: BrowserHeaders) -> Sign | None:
        """Return what indicates that a request comes from another site's page; None if nothing does."""
        if not self._is_host(sent.host):
            return Sign.HOST
        if sent.origin:
            return None if self._is_origin(sent.origin) else Sign.ORIGIN
        follows_a_link = self.links and sent.mode == "navigate"
        return Sign.ORIGIN if sent.site in {"cross-site", "same-site"} and not follows_a_link else None

    def _is_host(self, host: str) -> bool:
        """Whether a `Host` is this listener's, and not a foreign name that resolves to it; browsers always send it."""
        if not host or self.any_host:
            return True
        name = _name(host)
        return bool(name) and (
            _is_local(name)
            or name in self.names
            or _address(name) is not None
            or (self.private_names and ("." not in name or name.endswith(_PRIVATE)))
        )

    def _is_origin(self, origin: str) -> bool:
        """Whether an `Origin` is this machine, or one in the settings."""
        found = _ORIGIN.fullmatch(origin)
        name = _name(found[1]) if found is not None else ""
        address = _address(name)
        return _is_local(name) or name in self.names or (address is not None and address.is_loopback)


def _name(authority: str) -> str:
    """Return the name or address in a host with or without a port, in lower case; empty if it is malformed."""
    found = _HOST.fullmatch(authority)
    return found[1].lower().strip("[]").rstrip(".") if found is not None else ""


def _is_local(name: str) -> bool:
    """Whether browsers resolve a name to this machine without DNS (RFC 6761, 6.3)."""
    return name == _LOCALHOST or name.endswith(f".{_LOCALHOST}")


@lru_cache(maxsize=64)  # parsing takes longer than all else that is checked, and agents use few hosts
def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


class Visitors:
    """Refuses pages of other sites at one listener; counts each refusal and logs the first of each kind. Thread-safe.

    Args:
        listener: the listener's name in metrics.
        setting: the setting for further hosts, named in messages.
        sites: the sites whose pages may use it.
    """

    def __init__(self, listener: str, setting: str, sites: Sites) -> None:
        self._listener = listener
        self._setting = setting
        self._sites = sites
        self._lock = threading.Lock()
        self._logged: set[Sign] = set()
        self.count: Callable[[str, str], object] = lambda _listener, _sign: None
        """Called with the listener and the sign for each refusal."""

    def refusal(self, sent: BrowserHeaders) -> BrowserRefusal | None:
        """Return the refusal of a request; None if it is allowed."""
        sign = self._sites.stranger(sent)
        if sign is None:
            return None
        self.count(self._listener, sign)
        self._log_first(sign, sent.host if sign is Sign.HOST else sent.origin)
        if sign is Sign.HOST:
            return BrowserRefusal(421, "FOREIGN_HOST", f"use localhost, an IP address, or a name in {self._setting}")
        message = f"web pages of other sites may not ask; add the host of the page to {self._setting} if this one may"
        return BrowserRefusal(403, "FOREIGN_ORIGIN", message)

    def _log_first(self, sign: Sign, value: str) -> None:
        with self._lock:
            if sign in self._logged:
                return
            self._logged.add(sign)
        _log.warning(
            "%s: a request was refused that a web page of another site may have sent: its %s is %s; if it may ask, add "
            "the name to %s; further ones are counted and not logged",
            self._listener,
            sign,
            ascii(value[:_SHOWN_CHARACTERS]) if value else "absent",
            self._setting,
        )
