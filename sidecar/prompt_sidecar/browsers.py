"""Requests that a browser sends for a web page of somebody else, known by their headers.

Theory. Every page in a browser of this machine can reach a listener on loopback, though nobody outside can. It has
two ways, and both show:

    by a name of its own that leads here      the `Host` header has that name (DNS rebinding). The browser then takes
                                              page and listener for one site, and lets the page read every answer
    by the listener's address                 `Origin` names the page, or where a browser leaves that out (images,
                                              links), `Sec-Fetch-Site` says that the page is of another site

An address cannot be made to lead elsewhere, so all addresses are accepted as hosts. Programs other than browsers send
neither `Origin` nor `Sec-Fetch-Site`, and as `Host` what they connect to. Pages that this machine serves itself are no
stranger's.

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
from typing import Final

_HOST: Final = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(:[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]{0,63}://(.{1,300})", re.IGNORECASE | re.ASCII)
_LOCALHOST: Final = "localhost"
_PRIVATE: Final = (".internal", ".local", ".home.arpa", ".svc")
"""Ends of names that the public DNS does not give: reserved by ICANN, RFC 6762 and RFC 8375; Kubernetes' short names
end in `.svc`, which is no top-level domain."""
_SHOWN_CHARACTERS: Final = 200
"""Of a host or origin in a line of the log; the longest name has 253."""
_log = logging.getLogger("prompt_sidecar.refused")


class Sign(StrEnum):
    """What shows that a request may be one of a page of another site."""

    HOST = "host"
    ORIGIN = "origin"


@dataclass(frozen=True, slots=True)
class BrowserRefusal:
    """How a request is refused: a status of HTTP, and a sentence that names the setting by which it would not be."""

    status: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class BrowserHeaders:
    """The headers of a request that a browser sets and a page cannot; empty: there is none. Several are joined."""

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
    """Hosts in lower case, besides localhost and addresses."""
    any_host: bool = False
    """Whether it may be called by any name, as anybody may read what it answers."""
    private_names: bool = False
    """Whether names that the public DNS does not give are accepted as hosts: those of containers and services."""
    links: bool = False
    """Whether people may follow links of other sites to it."""

    @classmethod
    def of(cls, hosts: Iterable[str], **how: bool) -> Sites:
        """The sites with names from the settings; `how` are the other fields."""
        return cls(frozenset(host.lower().strip("[]").rstrip(".") for host in hosts), **how)

    def stranger(self, sent: BrowserHeaders) -> Sign | None:
        """What shows that a request is one of a stranger's page; None: nothing does."""
        if not self._is_host(sent.host):
            return Sign.HOST
        if sent.origin:
            return None if self._is_origin(sent.origin) else Sign.ORIGIN
        follows_a_link = self.links and sent.mode == "navigate"
        return Sign.ORIGIN if sent.site in {"cross-site", "same-site"} and not follows_a_link else None

    def _is_host(self, host: str) -> bool:
        """Whether a `Host` is this listener, and no name that somebody else made lead here; browsers always send it."""
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
        """Whether an `Origin` is this machine, or one that the settings name."""
        found = _ORIGIN.fullmatch(origin)
        name = _name(found[1]) if found is not None else ""
        address = _address(name)
        return _is_local(name) or name in self.names or (address is not None and address.is_loopback)


def _name(authority: str) -> str:
    """The name or address of a host with or without its port, in lower case; empty: it is malformed."""
    found = _HOST.fullmatch(authority)
    return found[1].lower().strip("[]").rstrip(".") if found is not None else ""


def _is_local(name: str) -> bool:
    """Whether a name is one that browsers never look up, as it is this machine (RFC 6761, 6.3)."""
    return name == _LOCALHOST or name.endswith(f".{_LOCALHOST}")


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


class Visitors:
    """Refuses the pages of strangers at one listener; counts each refusal and logs the first of each kind. Thread-safe.

    Args:
        listener: its name in metrics.
        setting: the one with further hosts, which messages name.
        sites: whose pages may use it.
    """

    def __init__(self, listener: str, setting: str, sites: Sites) -> None:
        self._listener = listener
        self._setting = setting
        self._sites = sites
        self._lock = threading.Lock()
        self._logged: set[Sign] = set()
        self.count: Callable[[str, str], object] = lambda _listener, _sign: None
        """Called with the listener and the sign at each refusal."""

    def refusal(self, sent: BrowserHeaders) -> BrowserRefusal | None:
        """How a request is refused; None: it is not."""
        sign = self._sites.stranger(sent)
        if sign is None:
            return None
        self.count(self._listener, sign)
        self._log_first(sign, sent.host if sign is Sign.HOST else sent.origin)
        if sign is Sign.HOST:
            return BrowserRefusal(421, "FOREIGN_HOST", f"use localhost, an IP address, or a name in {self._setting}")
        told = f"web pages of other sites may not ask; add the host of the page to {self._setting} if this one may"
        return BrowserRefusal(403, "FOREIGN_ORIGIN", told)

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
